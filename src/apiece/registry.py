"""One way from a name, or a thing of one's own, and options to the thing.

Methods, models, federations, partitions, rules, attacks and schedules are made by functions, and a function's signature
says all there is to know about its options: names, defaults, types, bounds, and where tuning looks.

    def ditto(loss: Loss, *, lam: Pull = 0.1, steps: int = 20, lr: StepSize = 0.1, batch: FromZero = 32) -> Method: ...

A `Registry` holds the functions of one kind by name. What it is asked for may be a name, `"package.module:function"`,
`"folder/file.py:function"`, or the function itself; packages add to it by entry points (`apiece.methods`,
`apiece.models`, ...).

An option is checked by what its annotation says: `Annotated[..., Whole(least)]`, `Annotated[..., Number(...)]`, or a
plain type; where there is none, by its default: a whole number stays one, a fraction is a number of at least 0. `None`
is a value where the annotation or the default says so. A stranger's function needs no annotations at all.
"""

import functools
import importlib.metadata
import inspect
import math
import types
import typing
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import pydantic

from apiece.errors import UserError, suggest
from apiece.own import import_thing

# fmt: off
__all__ = [
    "Registry", "Option", "Whole", "Number", "read_options", "check_options",
    "StepSize", "InnerStepSize", "Pull", "PullOfEach", "Ridge", "Tolerance", "Positive", "NotNegative", "Share",
    "TunedShare", "FromZero", "Passes",
]
# fmt: on


class Whole(NamedTuple):
    """An option that is a whole number of at least so much.

    >>> Whole(least=0).checked("batch", 1.5)
    Traceback (most recent call last):
    apiece.errors.UserError: batch is a whole number of at least 0, not 1.5
    """

    least: int = 1

    def checked(self, where: str, value: Any) -> int:
        """The value as a whole number, or an error that begins with `where`."""
        value = _finite(where, value)
        if value != int(value) or value < self.least:
            raise UserError(f"{where} is a whole number of at least {self.least}, not {value!r}")
        return int(value)


class Number(NamedTuple):
    """An option that is a number: above 0 or at least 0 (or any), and at most `most`, if that is said; `tuned`: where
    tuning looks, on a logarithmic scale; from 0: at 0 itself as well; `each`: a list
    of such numbers will do, one for each client that trains.

    >>> Number(above_zero=True).checked("lr", 0)
    Traceback (most recent call last):
    apiece.errors.UserError: lr must be above 0, not 0
    >>> Number(each=True).checked("lam", [1, 0.5])
    (1.0, 0.5)
    """

    above_zero: bool = False
    tuned: tuple[float, float] | None = None
    signed: bool = False
    most: float | None = None
    each: bool = False

    def checked(self, where: str, value: Any) -> Any:
        """The value as a fraction (as a tuple of them), or an error that begins with `where`."""
        if self.each and isinstance(value, list | tuple | np.ndarray) and len(value):
            one = self._replace(each=False)
            numbers = value.tolist() if isinstance(value, np.ndarray) else value
            return tuple(one.checked(f"{where}, number {at},", number) for at, number in enumerate(numbers, 1))
        value = _finite(where, value)
        if not self.signed and (value < 0 or (value == 0 and self.above_zero)):
            raise UserError(f"{where} must be {'above' if self.above_zero else 'at least'} 0, not {value!r}")
        if self.most is not None and value > self.most:
            raise UserError(f"{where} must be at most {self.most:g}, not {value!r}")
        return float(value)


# What the options of methods are, by meaning: one range per idea, wherever it occurs. `Any`: a number may be traced.
StepSize = Annotated[Any, Number(above_zero=True, tuned=(0.01, 3.0))]
InnerStepSize = Annotated[Any, Number(tuned=(0.01, 3.0))]  # 0: that part of the model stands still
Pull = Annotated[Any, Number(tuned=(0.01, 10.0))]
Ridge = Annotated[Any, Number(tuned=(0.0, 10.0))]
PullOfEach = Annotated[Any, Number(tuned=(0.01, 10.0), each=True)]  # one for all, or one for each client
Tolerance = Annotated[Any, Number(above_zero=True, tuned=(0.1, 10.0))]
Share = Annotated[Any, Number(most=1)]
TunedShare = Annotated[Any, Number(most=1, tuned=(0.1, 0.9))]
Positive = Annotated[Any, Number(above_zero=True)]
NotNegative = Annotated[Any, Number()]
FromZero = Annotated[int, Whole(least=0)]
Passes = Annotated[int, Whole(least=1)]


class Option(NamedTuple):
    """An option of a factory: its default (`inspect.Parameter.empty` if it has none), and its annotation.

    >>> Option("epochs", None, Passes | None).checked("epochs", 3.0)
    3
    """

    name: str
    default: Any
    hint: Any = Any

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The kinds of value that the annotation allows: of `int | None`, both."""
        union = typing.get_origin(self.hint) in (typing.Union, types.UnionType)
        return typing.get_args(self.hint) if union else (self.hint,)

    @property
    def rule(self) -> Whole | Number | None:
        """The bounds it was declared with, or those that its plain type or its default suggests."""
        for kind in self.kinds:
            for mark in getattr(kind, "__metadata__", ()):
                if isinstance(mark, Whole | Number):
                    return mark
        if self._is(bool):
            return None
        if self._is(float):
            return Number(signed=isinstance(self.default, int | float) and self.default < 0)
        # A default must pass its own check.
        return Whole(min(1, self.default if isinstance(self.default, int) else 1)) if self._is(int) else None

    @property
    def optional(self) -> bool:
        """Whether None is one of its values."""
        return self.default is None or type(None) in self.kinds

    def checked(self, where: str, value: Any) -> Any:
        """The value, converted where that loses nothing; an error that begins with `where` if it is none."""
        if value is None and self.optional:
            return None
        if isinstance(self.default, tuple):
            return _numbers(where, value)
        if self.rule is not None:
            return self.rule.checked(where, value)
        for kind, words in ((bool, "true or false"), (str, "a word")):
            if self._is(kind) and not isinstance(value, kind):
                raise UserError(f"{where} is {words}, not {value!r}")
        return value

    def _is(self, kind: type) -> bool:
        return isinstance(self.default, kind) or kind in self.kinds


def read_options(make: Callable[..., Any], *, positional: int = 0, given: Container[str] = ()) -> dict[str, Option]:
    """The options of a function in the order of its signature; the first `positional` and the `given` ones are none.

    >>> list(read_options(lambda loss, *, lr=0.1, steps=20: None, positional=1))
    ['lr', 'steps']
    """
    parameters = list(_signature(make).parameters.values())
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    hint = lambda p: Any if p.annotation is p.empty or isinstance(p.annotation, str) else p.annotation
    return {
        p.name: Option(p.name, p.default, hint(p))
        for i, p in enumerate(parameters)
        if p.name not in given
        and p.kind not in open_ended
        and (i >= positional or p.kind is inspect.Parameter.KEYWORD_ONLY)
    }


def check_options(what: str, known: Mapping[str, Option], options: Mapping[str, Any], by: str) -> dict[str, Any]:
    """The given options, each of which exists and has a possible value; a wrong one is an error that names it.

    Args:
        what: whose options they are, as errors say it ("method 'ditto'"). by: who checks the values, as in `Registry`.

    >>> known = read_options(lambda *, clients=30: None)
    >>> try: check_options("data 'digits'", known, {"client": 3}, "typed")
    ... except UserError as error: print(error)
    data 'digits' has no option 'client': did you mean 'clients'?
    """
    for name in options:
        if name not in known:
            raise UserError(f"{what} has no option '{name}': {suggest(name, known) if known else 'it has none'}")
    check = {"declared": Option.checked, "typed": _typed, "factory": lambda option, where, value: value}[by]
    plain = lambda value: value.item() if isinstance(value, np.generic) else value  # NumPy's numbers are numbers
    return {name: check(known[name], f"option '{name}' of {what}", plain(value)) for name, value in options.items()}


if typing.TYPE_CHECKING:
    Factories = Mapping[str, Callable[..., Any]]
else:  # whoever checks types as a program runs would look at the items, and so load the plug-ins
    Factories = Mapping


class Registry(Factories):
    """The factories of one kind, by name.

    Args:
        kind: what they make, as errors call it ("method"). group: entry points that add to it ("apiece.methods").
        positional: how many of a function's first parameters the house fills in (a method's loss, a model's shape and
            outputs). given: others that it fills in, by name. All the rest are options, the user's to choose.
        values: who checks the values of options: "declared", the annotations above; "typed", plain annotations of any
            kind (pydantic, strict); "factory", the function itself.

    >>> def median(): return "the median"
    >>> def krum(*, byzantine: int = 1): return f"Krum for {byzantine}"
    >>> rules = Registry("rule").add(median=median, krum=krum)
    >>> rules.make("krum", {"byzantine": 2})
    'Krum for 2'
    >>> try: rules.make("krum", {"byzantin": 2})
    ... except UserError as error: print(error)
    rule 'krum' has no option 'byzantin': did you mean 'byzantine'?
    >>> try: rules.make("crum", {})
    ... except UserError as error: print(error)
    unknown rule 'crum': did you mean 'krum'?
    """

    def __init__(
        self, kind: str, *, group: str = "", positional: int = 0, given: tuple[str, ...] = (), values: str = "declared"
    ) -> None:
        self.kind, self.group, self.positional, self.given, self.values_by = kind, group, positional, given, values
        self._own: dict[str, Callable[..., Any]] = {}

    def add(self, **factories: Callable[..., Any]) -> "Registry":
        """The same registry with these as well."""
        self._own |= factories
        return self

    @property
    def own(self) -> tuple[str, ...]:
        """The names of what the house itself has; asking for these loads no plug-in."""
        return tuple(self._own)

    @functools.cached_property
    def _plugged(self) -> dict[str, Callable[..., Any]]:
        """What installed packages add, loaded when first needed; one that cannot be had is told of, and left out."""
        found: dict[str, Callable[..., Any]] = {}
        for point in importlib.metadata.entry_points(group=self.group) if self.group else ():
            try:
                made = point.load()
                wrong = "" if callable(made) else f"it is no function, but {made!r}"
            except Exception as error:  # a stranger's package: whatever it raises must not take the others along
                wrong = f"{type(error).__name__}: {error}"
            if not wrong and point.name in self._own | found:
                wrong = f"there is another {self.kind} of that name"
            if wrong:
                text = f"the {self.kind} '{point.name}', which is {point.value}, is left out: {wrong}"
                warnings.warn(text, UserWarning, stacklevel=2)
            else:
                found[point.name] = made
        return found

    @property
    def _all(self) -> dict[str, Callable[..., Any]]:
        return self._own | self._plugged

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """The factory of this name."""
        return self._own[name] if name in self._own else self._plugged[name]

    def __iter__(self) -> Iterator[str]:
        """The names, our own first."""
        return iter(self._all)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)

    def find(self, thing: Any) -> Callable[..., Any]:
        """The factory: of a name, at "package.module:function", or the one given."""
        if callable(thing):
            return thing
        if not isinstance(thing, str):
            raise UserError(f"a {self.kind} is given by its name or by the function that makes it, not by {thing!r}")
        if thing in self:
            return self[thing]
        if ":" in thing:
            return self._imported(thing)
        raise UserError(f"unknown {self.kind} '{thing}': {suggest(thing, self)}")

    def _imported(self, path: str) -> Callable[..., Any]:
        found = import_thing(path, self.kind)
        if not callable(found):
            raise UserError(f"{self.kind} '{path}' is no function that makes one, but {found!r}")
        return found

    def name_of(self, thing: str | Callable[..., Any]) -> str:
        """What it is called in messages."""
        return thing if isinstance(thing, str) else getattr(thing, "__name__", "given")

    def options(self, thing: str | Callable[..., Any]) -> dict[str, Option]:
        """The options that are the user's to choose, in the order of the signature."""
        return read_options(self.find(thing), positional=self.positional, given=self.given)

    def takes(self, thing: str | Callable[..., Any], parameter: str) -> bool:
        """Whether the factory has a parameter of that name, an option or one that the house fills in."""
        return parameter in _signature(self.find(thing)).parameters

    def defaults(self, thing: str | Callable[..., Any]) -> dict[str, Any]:
        """The options with their defaults."""
        return {name: option.default for name, option in self.options(thing).items()}

    def ranges(self, thing: str | Callable[..., Any], fixed: Container[str] = ()) -> dict[str, tuple[float, float]]:
        """The options that tuning may choose, and between what; those in `fixed` are settled."""
        rules = {name: option.rule for name, option in self.options(thing).items() if name not in fixed}
        return {name: rule.tuned for name, rule in rules.items() if isinstance(rule, Number) and rule.tuned}

    def check(self, thing: str | Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The given options, each of which exists and has a possible value; a wrong one is an error that names it."""
        known = self.options(thing)
        return check_options(f"{self.kind} '{self.name_of(thing)}'", known, options, self.values_by)

    def complete(self, thing: str | Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """All options: the given ones in place of the defaults, which pass the same check."""
        self._enough(thing, options)
        return self.check(thing, self.defaults(thing) | dict(options))

    def make(self, thing: str | Callable[..., Any], options: Mapping[str, Any], *args: Any, **given: Any) -> Any:
        """The thing itself, of checked options and of what the house gives."""
        return self.find(thing)(*args, **given, **self._enough(thing, options))

    def _enough(self, thing: str | Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The given options, checked; one without a default must be among them."""
        chosen = self.check(thing, options)
        for name, default in self.defaults(thing).items():
            if default is inspect.Parameter.empty and name not in chosen:
                raise UserError(f"{self.kind} '{self.name_of(thing)}' needs the option '{name}'")
        return chosen

    def rows(self) -> list[dict[str, Any]]:
        """One of each, for a list: name, the first line of its text, options with defaults."""
        text = lambda make: (inspect.getdoc(make) or "").partition("\n")[0]
        return [{"name": name, "summary": text(make), "options": self.defaults(name)} for name, make in self.items()]


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(make, eval_str=True)
    except Exception:  # a stranger's annotations, written as text, may name what only a type checker imports
        return inspect.signature(make)


def _typed(option: Option, where: str, value: Any) -> Any:
    try:
        strangers = pydantic.ConfigDict(arbitrary_types_allowed=True)  # arrays, say: checked by their class
        pydantic.TypeAdapter(option.hint, config=strangers).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        raise UserError(f"{where} = {value!r} is wrong: {error.errors()[0]['msg'].lower()}") from None
    except pydantic.errors.PydanticUserError:  # a type that pydantic can make nothing of: the function's to check
        return value
    if option.name == "seed" and value < 0:
        raise UserError(f"{where} = {value} is wrong: a seed is not negative")
    return value


def _finite(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{where} is a finite number, not {value!r}")
    return value


def _numbers(where: str, value: Any) -> Any:
    """A list of numbers, or a list of such lists: as an array, or () for none."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        array = np.zeros(())
    if array.ndim not in (1, 2) or np.isnan(array).any():
        raise UserError(f"{where} is a list of numbers, or of equally long lists of numbers, not {value!r}")
    return array if array.size else ()
