"""Rivals on one federation: each tuned on validation over a grid, then trained from every seed and tested once."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.evaluate import interval, per_client
from apiece.experiment import measure
from apiece.experiment.bench import Bench
from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome, by_examples
from apiece.experiment.measure import Trials
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Curve, Look, Watch
from apiece.protocol import Method

Step = Callable[[str], None]  # told what is done now
TuneOn = Callable[[Any, RunState], tuple[float, float]]
After = Callable[[Any, RunState], Any]  # asked of every trained run, for what a trial does not tell


class Rival(NamedTuple):
    """A method of the catalog (or a factory), options that stand, and options to try: every combination of `grid`.

    `like`: an earlier rival, whose choice is taken over instead of trying. `late`: traced options of the grid, on which
    only the models depend that clients use in the end: settings that differ in these share one training.
    """

    method: str | Callable[..., Method]
    options: Mapping[str, Any] = MappingProxyType({})
    grid: Mapping[str, Sequence[Any]] = MappingProxyType({})
    like: str | None = None
    late: tuple[str, ...] = ()

    @property
    def early_points(self) -> list[dict[str, Any]]:
        """The settings to train with.

        >>> len(Rival("ftfa", grid={"lr": (0.1, 1.0), "tune_lr": (0.1, 1.0)}, late=("tune_lr",)).early_points)
        2
        """
        return self._replace(grid={key: of for key, of in self.grid.items() if key not in self.late}).points

    @property
    def late_points(self) -> list[dict[str, Any]]:
        """What is tried of each of these, when it is trained."""
        return self._replace(grid={key: of for key, of in self.grid.items() if key in self.late}).points

    @property
    def points(self) -> list[dict[str, Any]]:
        """The settings to try.

        >>> Rival("ftfa", grid={"lr": (0.1, 1.0), "tune_lr": (0.1,)}).points
        [{'lr': 0.1, 'tune_lr': 0.1}, {'lr': 1.0, 'tune_lr': 0.1}]
        """
        return [dict(zip(self.grid, point, strict=True)) for point in itertools.product(*self.grid.values())]


class Result(NamedTuple):
    """What became of a rival: chosen options, (options, validation loss, validation error) tried, an outcome a seed.

    `newcomers`: by number of examples, each seed's accuracy (or error) of the new clients, examples pooled.
    `after`: what was asked of every trained run. `seconds`: of training, of each seed. `dealt`: an outcome for every
    other deal of the rows.
    """

    options: dict[str, Any]
    tried: list[tuple[dict[str, Any], float, float]]
    outcomes: dict[int, Outcome]
    newcomers: dict[int, list[float]]
    after: list[Any]
    seconds: list[float]
    dealt: tuple[Outcome, ...] = ()


def contest(
    place: Arena,
    rivals: dict[str, Rival],
    plan: TrainSpec,
    seeds: Sequence[int],
    *,
    tune_rounds: int | None = None,
    newcomers: Sequence[int] = (),
    after: After | None = None,
    deals: Sequence[Arena] = (),
    step: Step = lambda what: None,
    tune_on: TuneOn | None = None,
    halve: bool = False,
    look: Look = lambda engine, run, seen: None,
    costs: bool = True,
) -> dict[str, Result]:
    """All rivals on one federation, with the same rounds and seeds.

    Each is tuned with the first seed for `tune_rounds` rounds (default: all of the plan's), by validation error and,
    where that ties, validation loss; the test split is looked at once, by the trained models of every seed.

    Args:
        newcomers: numbers of examples from which new clients' models are made and tested.
        after: (engine, run) -> anything, asked of every trained run.
        deals: the same clients with other training and validation rows, as many of each (see `redeal`); what was
            chosen is trained on each from the first seed.
        step: told what goes on (see `steps`).
        tune_on: (engine, run) -> (loss, error) to choose by, instead of the clients' own validation.
        halve: tune by successive halving (see `stages`); else all settings are tried for all of `tune_rounds`.
        look: called with every trained run on its way and the last point of its curve, to which it may add.
        costs: count bytes and gradients; with many client sizes and a method that depends on them this takes long.
    """
    found: dict[str, Result] = {}
    chosen: dict[str, dict[str, Any]] = {}
    for name, rival in rivals.items():
        bench = Bench(place, rival.method, rival.options, plan)
        tell = lambda name=name: step(f"{name}: tuning")
        tried = _tried(bench, rival, seeds[0], tune_rounds, tune_on, halve, tell) if len(rival.points) > 1 else []
        options = min(tried, key=_merit)[0] if tried else rival.points[0]
        options = chosen[name] = options if rival.like is None else chosen[rival.like]
        fresh: dict[int, list[float]] = {most: [] for most in newcomers}
        outcomes, asked, seconds = {}, [], []
        for seed in seeds:
            step(f"{name}: seed {seed}")
            began = time.perf_counter()
            engine, run, outcomes[seed] = bench.trial(options, seed, look=look, costs=costs)
            for most, errors in by_examples(engine, place, run, newcomers).items():
                fresh[most].append(float(errors.mean()))
            asked.append(None if after is None else after(engine, run))
            seconds.append(time.perf_counter() - began)
        dealt = []
        for at, other in enumerate(deals):
            step(f"{name}: deal {at}")
            dealt.append(bench.trial(options, seeds[0], other=other, costs=costs)[2])
        found[name] = Result({**rival.options, **options}, tried, outcomes, fresh, asked, seconds, tuple(dealt))
    return found


def _tried(
    bench: Bench,
    rival: Rival,
    seed: int,
    rounds: int | None,
    tune_on: TuneOn | None,
    halve: bool,
    tell: Callable[[], None],
) -> list[tuple[dict[str, Any], float, float]]:
    """Every setting of the last stage with its validation loss and error."""
    points, most = rival.early_points, rounds or bench.plan.tuning_rounds
    tried: list[tuple[dict[str, Any], float, float]] = []
    for last, keep in stages(len(points), most, halve):
        tried = []
        for point, (engine, run, curve) in zip(points, bench.looks(points, seed, last), strict=True):
            tell()
            for late in rival.late_points:
                other = dataclasses.replace(run, hyper={**run.hyper, **late}) if late else run
                assert tune_on is not None or not late, "a curve tells of the training's own options alone"
                tried.append(({**point, **late}, *_validation(engine, other, curve, tune_on)))
        ranked = sorted(tried, key=_merit)
        early = [{key: value for key, value in one.items() if key not in rival.late} for one, _, _ in ranked]
        points = [point for at, point in enumerate(early) if point not in early[:at]][:keep]
    return tried


def stages(count: int, rounds: int, halve: bool) -> list[tuple[int, int]]:
    """(rounds, how many go on) of each stage: a third of the settings goes on for three times as many rounds.

    >>> stages(25, 400, halve=True), stages(3, 400, halve=True), stages(25, 400, halve=False)
    ([(44, 9), (133, 3), (400, 1)], [(400, 1)], [(400, 1)])
    """
    counts = [count]
    while halve and counts[-1] > 3:
        counts.append(-(-counts[-1] // 3))
    return [(max(1, rounds // 3 ** (len(counts) - at)), keep) for at, keep in enumerate([*counts[1:], 1], 1)]


def steps(
    rivals: dict[str, Rival], seeds: Sequence[int], deals: int = 0, *, halve: bool = False, rounds: int = 1
) -> int:
    """How often `contest` calls `step`.

    >>> steps({"ftfa": Rival("ftfa", grid={"lr": (0.1, 1.0)}), "local": Rival("local")}, seeds=range(3))
    8
    """

    def tuned(rival: Rival) -> int:
        count = len(rival.early_points)
        return 0 if len(rival.points) < 2 else count + sum(keep for _, keep in stages(count, rounds, halve)[:-1])

    return sum(tuned(rival) + len(seeds) + deals for rival in rivals.values())


def counter(watch: Watch, total: int) -> Step:
    """A `step` that counts for a `watch`.

    >>> step = counter(lambda what, done, total: print(what, done, total), 2)
    >>> step("local: seed 0")
    local: seed 0 0 2
    """
    count = itertools.count()
    return lambda what: watch(what, next(count), total)


def _validation(engine: Engine, run: RunState, curve: Curve, tune_on: TuneOn | None) -> tuple[float, float]:
    """(loss, error) to choose by."""
    if tune_on is not None:
        return tune_on(engine, run)
    return curve[-1]["validation_loss"], curve[-1]["validation_error"]


def _merit(tried: tuple[dict[str, Any], float, float]) -> tuple[float, float]:
    """Least validation error first, then least loss; what diverged comes last."""
    _, loss, error = tried
    return (error, loss) if math.isfinite(loss) else (math.inf, math.inf)


def trials_of(results: dict[str, Result]) -> Trials:
    """As `apiece.experiment.measure` reads them."""
    return {name: result.outcomes for name, result in results.items()}


def errors(place: Arena, result: Result, part: str = "test") -> np.ndarray:
    """[seeds]: the mean error of the clients that trained, all their examples pooled (1 - this is accuracy)."""

    def pooled(outcome: Outcome) -> float:
        values, offsets = outcome.scores(part, "error")
        return float(values[np.repeat(outcome.counts(place.population), np.diff(offsets))].mean(dtype=np.float64))

    return np.array([pooled(outcome) for outcome in result.outcomes.values()])


def client_errors(place: Arena, result: Result) -> np.ndarray:
    """[seeds, clients]: the test error of every client that trained; NaN for those without test examples."""
    rows = [per_client(*outcome.scores("test", "error")) for outcome in result.outcomes.values()]
    old = next(iter(result.outcomes.values())).judged < place.population
    return np.stack(rows)[:, old]


def per_method(place: Arena, results: dict[str, Result]) -> dict[str, dict[str, float]]:
    """A row for each method: test error, its half interval over seeds, the gain over `local` in points, who is hurt.

    Errors are shares of mistakes (squared errors in regression); `hurt` as `apiece.evaluate.hurt` defines it.
    """
    harm = measure.gains(place, trials_of(results))
    table = {}
    for name, result in results.items():
        error = interval(errors(place, result))
        mine = harm.get(name, {})
        gain = mine["gain"].mean if "gain" in mine else math.nan
        row = {"test error": error.mean, "+-": error.half_width, "gain over local": gain}
        for key in ("hurt_proved", "hurt_expected", "worst_client"):
            row[key.replace("_", " ")] = round(mine.get(key, math.nan), 6)  # a chance of 1e-50 is none
        if result.newcomers:
            row["new clients' error"] = float(np.mean(result.newcomers[max(result.newcomers)]))
        table[name] = row
    return table
