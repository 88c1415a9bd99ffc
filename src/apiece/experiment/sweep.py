"""One method, many settings and seeds: what each of them comes to, in a plain table."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from apiece.data import Federation
from apiece.errors import UserError
from apiece.evaluate import per_client
from apiece.experiment.fit import open_bench, spec_of
from apiece.experiment.judge import finite, judge
from apiece.methods import CATALOG
from apiece.protocol import Method

MEASURED = ("validation_loss", "validation_error", "test_loss", "test_error", "seconds")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A row for each setting and seed: the options of the grid, `seed`, and what came out, clients counting alike.

    The error is the share of mistakes (the squared error in regression). A setting is chosen by validation, as
    `best` does: whoever picks the least test error reports a number that nobody will see again.

    >>> rows = [dict(lr=lr, seed=0, validation_loss=loss) for lr, loss in ((0.1, 0.5), (1.0, float("nan")), (0.3, 0.4))]
    >>> Sweep(rows, ("lr",)).best
    {'lr': 0.3}
    """

    rows: list[dict[str, Any]]
    options: tuple[str, ...]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The settings, in the order of the grid."""
        every = [{name: row[name] for name in self.options} for row in self.rows]
        return [setting for at, setting in enumerate(every) if setting not in every[:at]]

    @property
    def best(self) -> dict[str, Any]:
        """The setting with the least mean validation loss over seeds; one that diverged never wins."""
        means = [self.mean(setting, "validation_loss") for setting in self.settings]
        return self.settings[int(np.argmin(np.nan_to_num(means, nan=np.inf)))]

    def mean(self, setting: Mapping[str, Any], column: str) -> float:
        """The mean of a column over the seeds of a setting."""
        mine = [row[column] for row in self.rows if all(row[name] == value for name, value in setting.items())]
        return float(np.mean(mine))

    def __str__(self) -> str:
        """The table as text."""
        columns = list(self.rows[0])
        cells = [columns, *([_text(row[column]) for column in columns] for row in self.rows)]
        widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
        return "\n".join("  ".join(map(str.rjust, line, widths)) for line in cells)


def sweep(
    method: str | Callable[..., Method],
    grid: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 3,
    model: Any = None,
    federation: Federation | None = None,
    *,
    rounds: int = 100,
    objective: Any = None,
    watch: Callable[[int], None] = lambda rounds: None,
    options: dict[str, Any] | None = None,
    standardize: bool | None = None,
    **how: Any,
) -> Sweep:
    """Train a method with every combination of a grid of options, from every seed.

    Nothing is compiled twice, and settings of a small linear model that differ in fractions (`lr`, `lam`) are trained
    several at a time; the numbers are then those of `fit` to six digits.

    Args:
        method: a name of the catalog, or a factory. grid: option -> values to try. options: those that stand.
        seeds: how many, or which. model, federation, rounds, objective, watch, standardize, how: as for
            `fit`.

    >>> from apiece.data import digits
    >>> found = sweep("ditto", {"lam": [0.1, 1.0]}, seeds=2, federation=digits(clients=4), rounds=2)
    >>> [(row["lam"], row["seed"]) for row in found.rows]
    [(0.1, 0), (0.1, 1), (1.0, 0), (1.0, 1)]
    >>> found.best["lam"] in (0.1, 1.0), 0 <= found.mean({"lam": 0.1}, "test_error") <= 1
    (True, True)
    """
    if not isinstance(grid, Mapping) or not grid or any(isinstance(v, str) or not len(v) for v in grid.values()):
        raise UserError(f"grid is a table from options to lists of values, such as {{'lr': [0.1, 1.0]}}, not {grid!r}")
    if twice := sorted(set(grid) & set(options or {})):
        raise UserError(f"option '{twice[0]}' is in the grid and among the options that stand; give it once")
    which = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not which:
        raise UserError("a sweep needs at least one seed")
    points = [CATALOG.check(method, dict(zip(grid, point, strict=True))) for point in itertools.product(*grid.values())]
    spec = spec_of(model, rounds, which, objective, None, how)
    bench = open_bench(method, federation, spec, options or {}, standardize, grid)
    trials = [(point, seed) for point in points for seed in which]
    rows: list[dict[str, Any]] = [{} for _ in trials]
    plan = bench.plan.model_copy(update={"evaluate_every": rounds})  # only the end counts: nobody looks on the way
    for at, engine, run, _, seconds in bench.runs(trials, plan, tick=watch):
        point, seed = trials[at]
        _, arrays = judge(engine, bench.place, run)
        found = {
            f"{part}_{kind}": _mean(arrays[f"{part}_{kind}"], arrays[f"{part}_offsets"], bench.place.population)
            for part in ("validation", "test")
            for kind in ("loss", "error")
        }
        rows[at] = {**point, "seed": seed, **found, "seconds": seconds}
    return Sweep(rows, tuple(grid))


def _mean(values: np.ndarray, offsets: np.ndarray, population: int) -> float:
    """Over the clients that trained and have examples, each counting once; not a number if one diverged."""
    per = finite(per_client(values, offsets)[:population])[np.diff(offsets)[:population] > 0]
    return float(per.mean()) if len(per) else float("nan")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
