"""A row of a comparison: a method with settings, some that stand and some to be searched.

[methods.ditto]                          # the method of that name; its options are tuned
[methods.ditto-weak]                     # a variant: another row of the same method
method = "ditto"
lam = 0.01                               # stands
lr = {grid = [0.01, 0.1, 1]}             # every one of these is tried
[methods.mine]
method = "my_methods.py:mine"            # a method of one's own
lam = {range = [0.1, 10]}                # tried on a logarithmic scale
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.experiment.record import StepSizes
from apiece.experiment.stages import staged_of
from apiece.experiment.tune import candidates, spread
from apiece.methods import CATALOG
from apiece.protocol import Method
from apiece.registry import Number

MOST_POINTS = 1000


class Variant(NamedTuple):
    """A row: its name, the method, the options that stand, and those to be searched (grids of values, ranges)."""

    name: str
    method: str | Callable[..., Method]
    options: dict[str, Any]
    grid: dict[str, list[Any]]
    ranges: dict[str, tuple[float, float]]

    def points(self, trials: int, steps: StepSizes | None = None) -> list[dict[str, Any]]:
        """The settings to try, at most `trials` of them unless a grid is written down: that is tried as it is.

        `steps`: where step sizes are looked for that nobody said anything of.

        >>> variant_of("weak", {"method": "ditto", "lam": {"grid": [0.01, 0.1]}, "steps": 5}).points(8)
        [{'lam': 0.01}, {'lam': 0.1}]
        """
        ranges = {} if steps is None else steps.ranges.get(self.name, {})
        instead = {} if steps is None else steps.defaults.get(self.name, {})
        if self.grid and not self.ranges:
            every = itertools.product(*self.grid.values())
            points = [dict(zip(self.grid, point, strict=True)) for point in every]
        elif self.grid or self.ranges:
            points = spread(self.ranges, self.grid, trials)
        else:
            defaults = CATALOG.complete(self.method, self.options) | instead
            points = candidates(CATALOG.ranges(self.method, fixed=self.options) | ranges, defaults, trials)
        return [{**instead, **point} for point in points]


def variant_of(name: str, table: Mapping[str, Any]) -> Variant:
    """The row that a table of the spec describes; a wrong option, grid or range is an error that names it.

    >>> variant_of("ditto", {"lam": 1.0}).options
    {'lam': 1.0}
    >>> try: variant_of("weak", {"method": "ditto", "lam": {"grid": []}})
    ... except UserError as error: print(error)
    methods.weak.lam: a grid is a list of at least one value, as in {grid = [0.01, 0.1]}
    """
    where, given = f"methods.{name}", dict(table)
    method = given.pop("method", name)
    if "stages" in given:
        if "method" in table:
            raise UserError(f"{where} has 'stages', each with a method of its own; leave its own 'method' out")
        method, options = staged_of(where, given.pop("stages"), given.pop("fine_tune", None))
        if twice := sorted(set(options) & set(given)):
            raise UserError(f"{where}.{twice[0]} stands in the stage, too; give it once")
        given |= options
    if method != name and name in CATALOG and CATALOG.find(method) is not CATALOG[name]:
        raise UserError(f"{where} has the name of a method of the catalog, and is another ({CATALOG.name_of(method)}); "
                        "call it something else")  # fmt: skip
    stands: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    known = CATALOG.options(method)
    for option, value in given.items():
        if not (isinstance(value, Mapping) and option in known):
            stands[option] = value
        elif set(value) == {"file"}:
            stands[option] = _from_file(f"{where}.{option}", value["file"])
        elif set(value) == {"grid"}:
            grid[option] = _grid(f"{where}.{option}", method, option, value["grid"])
        elif set(value) == {"range"}:
            ranges[option] = _range(f"{where}.{option}", method, option, value["range"])
        else:
            raise UserError(f"{where}.{option} is a value, {{grid = [...]}}, {{range = [low, high]}} or {{file = ...}}"
                            f", not {dict(value)}")  # fmt: skip
    CATALOG.check(method, stands)
    if (count := len(list(itertools.islice(itertools.product(*grid.values()), MOST_POINTS + 1)))) > MOST_POINTS:
        raise UserError(f"{where}: its grids have more than {count - 1} combinations; take ranges, or shorter grids")
    return Variant(name, method, stands, grid, ranges)


def _grid(where: str, method: Any, option: str, values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise UserError(f"{where}: a grid is a list of at least one value, as in {{grid = [0.01, 0.1]}}")
    return [CATALOG.check(method, {option: value})[option] for value in values]


def _range(where: str, method: Any, option: str, ends: Any) -> tuple[float, float]:
    if not isinstance(CATALOG.options(method)[option].rule, Number):
        raise UserError(f"{where} is no fraction, which a range is for; write the values down: {{grid = [...]}}")
    numbers = isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends)
    if not numbers or not 0 < ends[0] < ends[1]:
        raise UserError(f"{where}: a range is [low, high] with 0 < low < high (its scale is logarithmic), not {ends}")
    low, high = (CATALOG.check(method, {option: end})[option] for end in ends)
    return float(low), float(high)


def _from_file(where: str, path: Any) -> list[Any]:
    """A list of numbers, or a matrix, from a .npy file or a text of numbers (.csv, .txt: commas or blanks)."""
    file = Path(str(path))
    if not file.is_file():
        raise UserError(f"{where}: there is no file '{path}'")
    try:
        if file.suffix == ".npy":
            found = np.load(file, allow_pickle=False)
        else:
            text = file.read_text(encoding="utf-8").replace(",", " ")
            found = np.loadtxt(text.splitlines(), ndmin=1)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: '{path}' holds no numbers, or rows of different lengths ({error})") from None
    return found.tolist()


def tables_of(methods: Any) -> dict[str, dict[str, Any]]:
    """A table for each row, of what `compare` is given: names, factories, or name -> options or factory.

    >>> tables_of(["ditto", CATALOG["fed_avg"]])["fed_avg"]["method"] is CATALOG["fed_avg"]
    True
    """
    if isinstance(methods, Mapping):
        return {name: {"method": table} if callable(table) else table for name, table in methods.items()}
    found: dict[str, dict[str, Any]] = {}
    for method in methods:
        name = CATALOG.name_of(method)
        if name in found:
            raise UserError(f"'{name}' is listed twice; give variants names: {{'{name}-2': {{'method': ...}}}}")
        found[name] = {} if isinstance(method, str) else {"method": method}
    return found


def name_rows(methods: Mapping[str, Any]) -> dict[str, Any]:
    """Tables by the names of their rows: a method given by its path alone is called as its function is.

    >>> name_rows({"ditto": {}, "my_methods.py:mine": {"lam": 1.0}})
    {'ditto': {}, 'mine': {'method': 'my_methods.py:mine', 'lam': 1.0}}
    """
    named: dict[str, Any] = {}
    for name, table in methods.items():
        path = ":" in name and isinstance(table, Mapping) and "method" not in table
        short = name.rpartition(":")[2] if path else name
        if short in named or (path and short in methods):
            raise UserError(f"two rows of the comparison are called '{short}'; give one a table with another name: "
                            f"[methods.NAME] method = \"{name}\"")  # fmt: skip
        named[short] = {"method": name, **table} if path else table
    return named


def fill_in(methods: Mapping[str, Mapping[str, Any]], every: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tables with what is said of every method, where a method has such an option and does not say otherwise.

    >>> fill_in({"ditto": {"lr": 1.0}, "fed_avg": {}}, {"lr": 0.5})
    {'ditto': {'lr': 1.0}, 'fed_avg': {'lr': 0.5}}
    """
    found: dict[str, dict[str, Any]] = {}
    used: set[str] = set()

    def filled(name: Any, table: Mapping[str, Any]) -> dict[str, Any]:
        takes = {
            option: value for option, value in every.items() if option in CATALOG.options(table.get("method", name))
        }
        used.update(takes)
        return takes | dict(table)

    for name, table in methods.items():
        stages = table.get("stages")
        if stages is None:
            found[name] = filled(name, table)
        elif isinstance(stages, list) and all(isinstance(one, Mapping) and "method" in one for one in stages):
            found[name] = {**table, "stages": [filled(None, one) for one in stages]}
        else:
            found[name] = dict(table)  # what is wrong with it is said where it is read
    for option in every:
        if option not in used:
            raise UserError(f"every.{option}: no method of this comparison has an option '{option}'")
    return found
