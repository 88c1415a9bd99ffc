"""Labels by number or by name; and whether somebody's rows fit a federation that was made without them."""

import numpy as np

from apiece.data.federation import Federation
from apiece.errors import UserError, suggest


def number_labels(y: np.ndarray, classes: tuple[str, ...], least: int = 0) -> np.ndarray:
    """The number of every label's class; labels are such numbers (from `least` on), or the names of classes.

    >>> number_labels(np.array(["no", "yes"]), ("no", "yes")).tolist()
    [0, 1]
    >>> try: number_labels(np.array([0, 7]), ("no", "yes"))
    ... except UserError as error: print(error)
    y[1] is 7, and no class: there are 2, numbered from 0 ('no', 'yes')
    """
    if is_text(y):
        known, number = np.unique(y.astype(str), return_inverse=True)
        numbers = {name: at for at, name in enumerate(classes)}
        for name in known.tolist():
            if name not in numbers:
                raise UserError(f"y{_first(y.astype(str) == name)} is '{name}', and no class: {suggest(name, classes)}")
        return np.array([numbers[name] for name in known.tolist()], np.int32)[number].reshape(y.shape)
    if y.dtype.kind not in "biuf":
        raise UserError(f"y holds {y.dtype}, neither the numbers nor the names of classes")
    wrong = ~((y >= least) & (y < len(classes)) & (y == np.floor(y)))
    if wrong.any():
        some = ", ".join(f"'{name}'" for name in classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise UserError(f"y{_first(wrong)} is {y[wrong][0]}, and no class: there are {len(classes)}, numbered from 0 "
                        f"({some})")  # fmt: skip
    return y.astype(np.int32, copy=False)


def check_newcomer(federation: Federation, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of a client that the federation does not know, as it has them; what does not fit is named.

    >>> from apiece.data import digits
    >>> check_newcomer(digits(), np.zeros((2, 64)), np.array(["3", "5"]))[1].tolist()
    [3, 5]
    """
    x, y, train = np.asarray(x), np.asarray(y), federation.train
    if x.shape[1:] != train.x.shape[1:] or len(x) != len(y) or len(y) == 0 or y.shape[1:] != train.y.shape[1:]:
        each = f", each of shape {train.y.shape[1:]}" if train.y.ndim > 1 else ""
        raise UserError(
            f"a new client needs as many labels as examples, at least one{each}, and examples of shape "
            f"{train.x.shape[1:]}; got x {x.shape} and y {y.shape}"
        )
    check_finite("x", x)
    if federation.classes:
        return x, number_labels(y, federation.classes, least=-1 if y.ndim > 1 else 0)
    check_finite("y", y)
    return x, y


def check_finite(name: str, values: np.ndarray) -> None:
    """Numbers, every one of them finite, before NumPy says something about casts.

    >>> try: check_finite("x", np.array([[1.0, np.nan]]))
    ... except UserError as error: print(error)
    x[0, 1] is nan, no finite number; fill it, or leave the row out (apiece.data.load fills the gaps of a file)
    """
    if values.dtype.kind not in "biuf":
        raise UserError(
            f"{name} holds {values.dtype}, not numbers; apiece.data.load makes numbers of the words in a file"
        )
    if values.dtype.kind == "f" and not (known := np.isfinite(values)).all():
        where = tuple(map(int, np.argwhere(~known)[0]))
        raise UserError(f"{name}{_first(~known)} is {values[where]}, no finite number; fill it, or leave the row out "
                        "(apiece.data.load fills the gaps of a file)")  # fmt: skip


def is_text(values: np.ndarray) -> bool:
    """Whether an array holds words.

    >>> is_text(np.array(["a"])), is_text(np.array(["a", "b"], object)), is_text(np.array([None]))
    (True, True, False)
    """
    return values.dtype.kind == "U" or (values.dtype.kind == "O" and all(isinstance(each, str) for each in values.flat))


def _first(where: np.ndarray) -> str:
    return "[" + ", ".join(map(str, np.argwhere(where)[0].tolist())) + "]"
