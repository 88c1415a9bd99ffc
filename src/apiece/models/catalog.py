"""The models by name, and how each is made to the measure of a federation's examples."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from apiece.errors import UserError
from apiece.models.cnn import cnn2, cnn2_valid, cnn3, cnn5, sensor_cnn
from apiece.models.model import Model, linear, mlp, quadratic, softmax
from apiece.models.resnet import resnet18
from apiece.models.sequence import char_lstm, text_lstm, transformer
from apiece.registry import Registry
from apiece.shelf import Shelf

MODELS = Registry("model", group="apiece.models", positional=2, given=("every", "length"), values="typed").add(
    linear=linear,
    softmax=softmax,
    mlp=mlp,
    quadratic=quadratic,
    cnn2=cnn2,
    cnn2_valid=cnn2_valid,
    cnn3=cnn3,
    cnn5=cnn5,
    resnet18=resnet18,
    sensor_cnn=sensor_cnn,
    char_lstm=char_lstm,
    text_lstm=text_lstm,
    transformer=transformer,
)


_MADE = Shelf(most=64)  # programs are compiled for a model: the same one again compiles nothing


class Use(NamedTuple):
    """What a model is for: what its examples are, and which tasks it fits."""

    examples: str = "numbers"  # or pictures, signals, tokens
    tasks: tuple[str, ...] = ("classification", "regression")


USES = {
    "linear": Use(tasks=("regression",)),
    "softmax": Use(tasks=("classification",)),
    "quadratic": Use(tasks=("custom",)),
    "cnn2": Use("pictures"),
    "cnn2_valid": Use("pictures"),
    "cnn3": Use("pictures"),
    "cnn5": Use("pictures"),
    "resnet18": Use("pictures", ("classification",)),
    "sensor_cnn": Use("signals"),
    "text_lstm": Use("tokens", ("classification",)),
}


def use_of(model: str | Callable[..., Model]) -> Use:
    """What a model is for; of one that is not in the table, its first parameter says it, `tokens` or another.

    >>> use_of("cnn2").examples, use_of("transformer").tasks
    ('pictures', ('classification', 'next_character'))
    """
    if isinstance(model, str) and model in USES:
        return USES[model]
    return Use("tokens", ("classification", "next_character")) if MODELS.takes(model, "tokens") else Use()


def named_model(
    name: str | Callable[..., Model],
    task: str,
    shape: Sequence[int],
    outputs: int,
    tokens: int = 0,
    every: bool = False,
    options: dict[str, Any] | None = None,
) -> Any:
    """The model of a name for examples of a shape; `tokens` different ones, and targets at `every` place or one.

    A function of one's own may give what is none yet: a Flax or torch module, say.

    Asked for again with the same measures and options, it is the same model.

    >>> named_model("cnn2", "classification", (28, 28), 10, options={"width": 16}).name
    'cnn 16-32, 1568-512-10'
    """
    use, called = use_of(name), MODELS.name_of(name)
    if task not in use.tasks:
        fits = [other for other in MODELS if task in use_of(other).tasks]
        raise UserError(f"model '{called}' does not fit a {task} federation; take {' or '.join(fits)}")
    if use.examples == "tokens" and (len(shape) != 1 or not tokens):
        raise UserError(
            f"model '{called}' takes sequences of tokens, whole numbers (length,); these are {tuple(shape)}"
        )
    measures = {"every": every, "length": shape[0]} if use.examples == "tokens" else {}
    given = {key: value for key, value in measures.items() if MODELS.takes(name, key)}
    # A custom task has no outputs: its examples are the losses themselves.
    every_size: tuple[Any, ...] = (
        (shape[0],)
        if task == "custom"
        else (
            tokens if use.examples == "tokens" else shape,
            outputs,
        )
    )
    first = every_size[: _asked_for(name)]
    key = (MODELS.find(name), options or {}, first, given)
    return _MADE.take(key, lambda: MODELS.make(name, options or {}, *first, **given))


def _asked_for(model: str | Callable[..., Any]) -> int:
    """How many of (shape, outputs) a function of one's own wants: one that knows its sizes may want none."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wants = [p for p in inspect.signature(MODELS.find(model)).parameters.values() if p.kind in kinds]
    return len(wants)
