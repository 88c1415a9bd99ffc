"""The models by name, and how each is made to the measure of a federation's examples."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from apiece.errors import UserError, suggest
from apiece.models.cnn import cnn2, cnn2_valid, cnn3, cnn5, sensor_cnn
from apiece.models.model import Model, linear, mlp, quadratic, softmax
from apiece.models.resnet import resnet18
from apiece.models.sequence import char_lstm, text_lstm, transformer


class Entry(NamedTuple):
    """A model's factory, what its examples are, and which tasks it is for."""

    make: Callable[..., Model]
    examples: str = "numbers"  # or pictures, signals, tokens
    tasks: tuple[str, ...] = ("classification", "regression")


MODELS: dict[str, Entry] = {
    "linear": Entry(linear, tasks=("regression",)),
    "softmax": Entry(softmax, tasks=("classification",)),
    "mlp": Entry(mlp),
    "quadratic": Entry(quadratic, tasks=("custom",)),
    "cnn2": Entry(cnn2, "pictures"),
    "cnn2_valid": Entry(cnn2_valid, "pictures"),
    "cnn3": Entry(cnn3, "pictures"),
    "cnn5": Entry(cnn5, "pictures"),
    "resnet18": Entry(resnet18, "pictures", ("classification",)),
    "sensor_cnn": Entry(sensor_cnn, "signals"),
    "char_lstm": Entry(char_lstm, "tokens", ("classification", "next_character")),
    "text_lstm": Entry(text_lstm, "tokens", ("classification",)),
    "transformer": Entry(transformer, "tokens", ("classification", "next_character")),
}


def named_model(
    name: str,
    task: str,
    shape: Sequence[int],
    outputs: int,
    tokens: int = 0,
    every: bool = False,
    options: dict[str, Any] | None = None,
) -> Model:
    """The model of a name for examples of a shape; `tokens` different ones, and targets at `every` place or one.

    >>> named_model("cnn2", "classification", (28, 28), 10, options={"width": 16}).name
    'cnn 16-32, 1568-512-10'
    """
    options = dict(options or {})
    if name not in MODELS:
        raise UserError(f"there is no model '{name}': {suggest(name, ['auto', *MODELS])}")
    make, examples, tasks = MODELS[name]
    fits = [other for other, entry in MODELS.items() if task in entry.tasks]
    if task not in tasks:
        raise UserError(f"model '{name}' does not fit a {task} federation; take {' or '.join(fits)}")
    refuse_unknown(name, options)
    if name == "quadratic":
        return make(shape[0])
    if examples != "tokens":
        return make(shape, outputs, **options)
    if len(shape) != 1 or not tokens:
        raise UserError(f"model '{name}' takes sequences of tokens, whole numbers (length,); these are {tuple(shape)}")
    measured = {"every": every} | ({"length": shape[0]} if name == "transformer" else {})
    return make(tokens, outputs, **options, **({} if name == "text_lstm" else measured))


def refuse_unknown(name: str, options: Iterable[str]) -> None:
    """An error for an option that a model does not have."""
    known = list(options_of(MODELS[name].make))
    for option in options:
        if option not in known:
            tail = suggest(option, known) if known else "it has none"
            raise UserError(f"model '{name}' has no option '{option}': {tail}")


def options_of(make: Callable[..., Model]) -> dict[str, Any]:
    """The options of a factory that are the user's to choose, with their defaults.

    >>> options_of(mlp)
    {'hidden': (128,)}
    """
    every = inspect.signature(make).parameters.items()
    return {name: option.default for name, option in every if name not in _MEASURED}


_MEASURED = ("shape", "outputs", "classes", "features", "tokens", "every", "length")  # the federation says
