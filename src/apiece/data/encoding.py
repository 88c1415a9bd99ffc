"""How the columns of a file became features: what loading it fitted, kept for rows that come later.

- A missing number becomes the `fill` of its column, and a column of its own says so where training had gaps.
- A word becomes one column of 0 and 1 for each level of training; one that training never saw is all zeros.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from apiece.errors import UserError

MISSING = "missing"


class _Rule(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Numbers(_Rule):
    """A column of numbers, or of arrays of them.

    >>> age = Numbers(name="age", fill=(40.0,), marked=(True,))
    >>> age.features, age.encode(np.array([30, np.nan], np.float32)).tolist()
    (['age', 'age missing'], [[30.0, 0.0], [40.0, 1.0]])
    """

    kind: Literal["numbers"] = "numbers"
    name: str
    """The column."""
    shape: tuple[int, ...] = ()
    """Of a cell; () is a single number."""
    fill: tuple[float | None, ...] = ()
    """What stands in for a missing number, place by place; null, or an empty list: never missing when it was fitted."""
    marked: tuple[bool, ...] = ()
    """Place by place: whether a further feature is 1 where the number is missing."""

    @property
    def features(self) -> list[str]:
        """The names of the features that it becomes."""
        found = []
        for place, name in enumerate(self._places()):
            found += [name, f"{name} {MISSING}"] if self.marked and self.marked[place] else [name]
        return found

    def _places(self) -> list[str]:
        width = int(np.prod(self.shape, dtype=np.int64))
        return [self.name] if width == 1 else [f"{self.name}[{j}]" for j in range(width)]

    def encode(self, values: np.ndarray) -> np.ndarray:
        """[rows, features] of the column's values, in which NaN is missing."""
        flat = values.reshape(len(values), -1)
        gaps = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros((1, flat.shape[1]), bool)
        fill = self.fill or (None,) * flat.shape[1]
        for place in np.flatnonzero(gaps.any(0)):
            if fill[place] is None:
                raise UserError(
                    f"column '{self._places()[place]}' is missing in {int(gaps[:, place].sum())} of {len(flat)} rows, "
                    "and was never missing when the data were loaded, so that no value stands in for it; fill the cell"
                )
        if not self.fill:
            return flat
        done = []
        for value, gap, middle, marked in zip(
            flat.T, np.broadcast_to(gaps, flat.shape).T, fill, self.marked, strict=True
        ):
            done.append(value if middle is None else np.where(gap, np.float32(middle), value))
            done += [gap.astype(np.float32)] if marked else []
        return np.stack(done, axis=1)


class Levels(_Rule):
    """A column of words, of which training knew these; a missing one is the level "missing", if that is among them.

    >>> town = Levels(name="town", levels=("oslo", "rome"))
    >>> town.features, town.encode(np.array(["rome", "lima"], object)).tolist()
    (['town=oslo', 'town=rome'], [[0.0, 1.0], [0.0, 0.0]])
    """

    kind: Literal["levels"] = "levels"
    name: str
    """The column."""
    levels: tuple[str, ...]
    """A feature each, in this order."""

    @property
    def features(self) -> list[str]:
        """The names of the features that it becomes."""
        return [f"{self.name}={level}" for level in self.levels]

    @property
    def text(self) -> bool:
        """Whether its cells are words also where a reader takes them for numbers: '007' is not 7."""
        return not all(level in (MISSING, "True", "False") or _plain_number(level) for level in self.levels)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """[rows, features] of the column's cells, in which None is missing."""
        words, which = np.unique(_cells(values), return_inverse=True)
        return (words[:, None] == np.array(self.levels, np.str_)).astype(np.float32)[which]

    def unknown(self, values: np.ndarray) -> list[str]:
        """The words that it does not know, each once."""
        return sorted(set(_cells(values).tolist()).difference(self.levels))


class Encoding(_Rule):
    """What became of every column of a file: `columns` are the features' in their order; the others carry none.

    >>> rules = (Numbers(name="age"), Levels(name="town", levels=("oslo", "rome")))
    >>> encoding = Encoding(columns=rules, label="sick", others=("sick", "hospital"))
    >>> encoding.features
    ('age', 'town=oslo', 'town=rome')
    >>> encoding.encode({"town": np.array(["rome"], object), "age": np.array([31], np.float32)}).tolist()
    [[31.0, 0.0, 1.0]]
    """

    columns: tuple[Annotated[Numbers | Levels, pydantic.Field(discriminator="kind")], ...]
    """The columns that are features, in their order."""
    dtype: str = "float32"
    """Of the features: float32, or uint8 of pictures and other bytes."""
    label: str | None = None
    """The column of the target."""
    others: tuple[str, ...] = ()
    """The columns that are no features: the target, the client, the split."""
    delimiter: str = ","
    """What stands between the cells of a CSV file."""
    decimal: str = "."
    """What stands between a number's whole part and its decimals."""
    na: tuple[str, ...] = ()
    """Words that mean that a cell is empty."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features; of pictures none."""
        return () if self.whole else tuple(name for column in self.columns for name in column.features)

    @property
    def whole(self) -> bool:
        """Whether an example is one array of several dimensions, which keeps its shape."""
        return len(self.columns) == 1 and isinstance(self.columns[0], Numbers) and len(self.columns[0].shape) > 1

    def encode(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The features of rows whose cells are given column by column."""
        if self.whole:
            return values[self.columns[0].name].astype(self.dtype, copy=False)
        blocks = [column.encode(values[column.name]) for column in self.columns]
        return np.concatenate(blocks, axis=1).astype(self.dtype, copy=False)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, values: Any) -> "Encoding":
        """What `as_dict` gave; a `UserError` if it is damaged.

        >>> Encoding.from_dict(Encoding(columns=(Numbers(name="age"),)).as_dict()).features
        ('age',)
        """
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise UserError(f"no valid encoding: '{where}': {error.errors()[0]['msg'].lower()}") from None


def _cells(values: np.ndarray) -> np.ndarray:
    return np.array([MISSING if cell is None else cell for cell in values], np.str_)


def _plain_number(text: str) -> bool:
    """Whether a reader that takes it for a number writes it in the same way again."""
    try:
        number = float(text)
    except ValueError:
        return False
    return text == (str(int(number)) if number.is_integer() else str(number))
