"""One way from a name, or a thing of one's own, and options to the thing.

Methods, models, federations, partitions, rules, attacks and schedules are made by functions, and a function's signature
says all there is to know about its options: names, defaults, types, bounds, and where tuning looks.

    def ditto(loss: Loss, *, lam: Pull = 0.1, steps: int = 20, lr: StepSize = 0.1, batch: FromZero = 32) -> Method: ...

A `Registry` holds the functions of one kind by name. What it is asked for may be a name, `"package.module:function"`,
or the function itself; packages add to it by entry points (`apiece.methods`, `apiece.models`, ...).

An option is checked by what its annotation says: `Annotated[..., Whole(least)]`, `Annotated[..., Number(...)]`, or a
plain type; where there is none, by its default: a whole number stays one, a fraction is a number of at least 0.
"""

import functools
import importlib
import importlib.metadata
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import pydantic

from apiece.errors import UserError, suggest


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
    """An option that is a number: above 0 or at least 0 (or any); `tuned`: where tuning looks, on a logarithmic scale.

    >>> Number(above_zero=True).checked("lr", 0)
    Traceback (most recent call last):
    apiece.errors.UserError: lr must be above 0, not 0
    """

    above_zero: bool = False
    tuned: tuple[float, float] | None = None
    signed: bool = False

    def checked(self, where: str, value: Any) -> float:
        """The value as a fraction, or an error that begins with `where`."""
        value = _finite(where, value)
        if not self.signed and (value < 0 or (value == 0 and self.above_zero)):
            raise UserError(f"{where} must be {'above' if self.above_zero else 'at least'} 0, not {value!r}")
        return float(value)


# What the options of methods are, by meaning. `Any`: a number may be traced.
StepSize = Annotated[Any, Number(above_zero=True, tuned=(0.01, 3.0))]
Pull = Annotated[Any, Number(tuned=(0.01, 10.0))]
Positive = Annotated[Any, Number(above_zero=True)]
FromZero = Annotated[Any, Whole(least=0)]
Passes = Annotated[Any, Whole(least=1)]


class Option(NamedTuple):
    """An option of a factory: its default, and what its values must be."""

    name: str
    default: Any
    hint: Any

    @property
    def rule(self) -> Whole | Number | None:
        """The bounds it was declared with, or those that its default suggests."""
        for mark in get_args(self.hint) if get_origin(self.hint) is Annotated else ():
            if isinstance(mark, Whole | Number):
                return mark
        if isinstance(self.default, bool) or self.hint is bool:
            return None
        if isinstance(self.default, int) and self.hint in (int, Any):
            return Whole()
        return (
            Number(signed=self.default < 0) if isinstance(self.default, float) and self.hint in (float, Any) else None
        )

    def checked(self, where: str, value: Any) -> Any:
        """The value, converted where that loses nothing; an error that begins with `where` if it is none."""
        if value is None and self.default is None:
            return None
        rule = self.rule
        if rule is not None:
            return rule.checked(where, value)
        if isinstance(self.default, bool):
            return _is_a(bool, "true or false", where, value)
        if isinstance(self.default, str):
            return _is_a(str, "a word", where, value)
        return value


class Registry(Mapping[str, Callable[..., Any]]):
    """The factories of one kind, by name.

    Args:
        kind: what they make, as errors call it ("method"). group: entry points that add to it ("apiece.methods").
        given: parameters that are not the user's to choose: the house fills them in.
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

    def __init__(self, kind: str, *, group: str = "", given: tuple[str, ...] = (), values: str = "declared") -> None:
        self.kind, self.group, self.given, self.values_by = kind, group, given, values
        self._own: dict[str, Callable[..., Any]] = {}

    def add(self, **factories: Callable[..., Any]) -> "Registry":
        """The same registry with these as well."""
        self._own |= factories
        return self

    @functools.cached_property
    def _plugged(self) -> dict[str, Callable[..., Any]]:
        """What installed packages add; one that cannot be loaded is told of, and left out."""
        found: dict[str, Callable[..., Any]] = {}
        for point in importlib.metadata.entry_points(group=self.group) if self.group else ():
            try:
                found[point.name] = point.load()
            except Exception as error:  # a stranger's package: whatever it raises must not take the others along
                warnings.warn(
                    f"the {self.kind} '{point.name}' of {point.value} cannot be loaded: {error}",
                    UserWarning,
                    stacklevel=2,
                )
        return {name: make for name, make in found.items() if name not in self._own}

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

    def find(self, thing: str | Callable[..., Any]) -> Callable[..., Any]:
        """The factory: of a name, at "package.module:function", or the one given."""
        if not isinstance(thing, str):
            return thing
        if thing in self:
            return self[thing]
        if ":" in thing:
            return self._imported(thing)
        raise UserError(f"unknown {self.kind} '{thing}': {suggest(thing, self)}")

    def _imported(self, path: str) -> Callable[..., Any]:
        module, _, name = path.partition(":")
        try:
            found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        except (ImportError, ValueError) as error:
            raise UserError(f"{self.kind} '{path}': there is no module '{module}' to import ({error})") from None
        except AttributeError:
            raise UserError(f"{self.kind} '{path}': the module '{module}' has no '{name}'") from None
        if not callable(found):
            raise UserError(f"{self.kind} '{path}' is no function that makes one, but {found!r}")
        return found

    def name_of(self, thing: str | Callable[..., Any]) -> str:
        """What it is called in messages."""
        return thing if isinstance(thing, str) else getattr(thing, "__name__", "given")

    def options(self, thing: str | Callable[..., Any]) -> dict[str, Option]:
        """The options that are the user's to choose, in the order of the signature."""
        make = self.find(thing)
        hints = _hints(make)
        return {
            p.name: Option(p.name, p.default, hints.get(p.name, Any))
            for p in inspect.signature(make).parameters.values()
            if p.name not in self.given and p.kind is not inspect.Parameter.VAR_KEYWORD
        }

    def defaults(self, thing: str | Callable[..., Any]) -> dict[str, Any]:
        """The options with their defaults."""
        return {name: option.default for name, option in self.options(thing).items()}

    def ranges(self, thing: str | Callable[..., Any]) -> dict[str, tuple[float, float]]:
        """The options that tuning may choose, and between what."""
        rules = {name: option.rule for name, option in self.options(thing).items()}
        return {name: rule.tuned for name, rule in rules.items() if isinstance(rule, Number) and rule.tuned}

    def check(self, thing: str | Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The given options, each of which exists and has a possible value; a wrong one is an error that names it."""
        known, name = self.options(thing), f"{self.kind} '{self.name_of(thing)}'"
        for option in options:
            if option not in known:
                tail = suggest(option, known) if known else "it has none"
                raise UserError(f"{name} has no option '{option}': {tail}")
        return {key: self._value(f"option '{key}' of {name}", known[key], value) for key, value in options.items()}

    def _value(self, where: str, option: Option, value: Any) -> Any:
        if self.values_by == "factory":
            return value
        if self.values_by == "declared":
            return _numbers(where, value) if isinstance(option.default, tuple) else option.checked(where, value)
        try:
            pydantic.TypeAdapter(option.hint).validate_python(value, strict=True)
        except pydantic.ValidationError as error:
            raise UserError(f"{where} = {value!r} is wrong: {error.errors()[0]['msg'].lower()}") from None
        if option.name == "seed" and value < 0:
            raise UserError(f"{where} = {value} is wrong: a seed is not negative")
        return value

    def make(self, thing: str | Callable[..., Any], options: Mapping[str, Any], *args: Any, **given: Any) -> Any:
        """The thing itself, of checked options and of what the house gives."""
        make, chosen = self.find(thing), self.check(thing, options)
        empty = inspect.Parameter.empty
        needed = [o.name for o in self.options(make).values() if o.default is empty and o.name not in chosen]
        if needed:
            raise UserError(f"{self.kind} '{self.name_of(thing)}' needs the option '{needed[0]}'")
        return make(*args, **given, **chosen)

    def made(self, thing: Any) -> Any:
        """The thing of a name, or of a table of its name and options, as a spec writes it."""
        if isinstance(thing, str):
            return self.make(thing, {})
        if isinstance(thing, Mapping) and isinstance(thing.get("name"), str):
            return self.make(thing["name"], {key: value for key, value in thing.items() if key != "name"})
        raise UserError(f"{self.kind}: a name, or a table of a name and its options, is needed, not {thing!r}")

    def rows(self) -> list[dict[str, Any]]:
        """One of each, for a list: name, the first line of its text, options with defaults."""
        text = lambda make: (inspect.getdoc(make) or "").partition("\n")[0]
        return [{"name": name, "summary": text(make), "options": self.defaults(name)} for name, make in self.items()]


@functools.lru_cache(maxsize=512)
def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(make, include_extras=True)
    except (NameError, TypeError):  # a stranger's annotations may name what only a type checker imports
        return {}


def _finite(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{where} is a finite number, not {value!r}")
    return value


def _is_a(kind: type, words: str, where: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise UserError(f"{where} is {words}, not {value!r}")
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
