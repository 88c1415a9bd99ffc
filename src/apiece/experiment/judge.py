"""Judge a trained run once: every client's own model on its own held-out examples, and newcomers by what they bring."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.experiment.build import Arena
from apiece.wrap import attackers_of

AT_ONCE = 512  # clients whose outputs are held together, for metrics
JUDGED_AT_MOST = 20_000  # clients; of a larger population a sample is judged at the end


@dataclasses.dataclass
class Outcome:
    """What a finished trial leaves: outcomes example by example, the validation curve, costs."""

    judged: np.ndarray
    arrays: dict[str, np.ndarray]
    curve: list[dict[str, float]]
    costs: dict[str, float]
    note: str | None = None

    def scores(self, part: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """(values per example, offsets) of "validation" or "test", "loss" or "error"."""
        return self.arrays[f"{part}_{kind}"], self.arrays[f"{part}_offsets"]

    @property
    def attacks(self) -> np.ndarray:
        """Of the judged, who attacked (in a simulation, `train.attack`)."""
        return np.isin(self.judged, self.arrays.get("attackers", ()))

    def counts(self, population: int) -> np.ndarray:
        """Of the judged, whose numbers count in means of those who train: not new ones, and not attackers.

        How an attacker fares is nobody's concern: with it in a mean, an attack could raise the score.
        """
        return (self.judged < population) & ~self.attacks


def judge(engine: Engine, place: Arena, run: RunState) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(who was judged, outcomes per example): every client's own model on its own held-out examples, once.

    New clients are always among the judged; of a very large population a sample is.
    """
    run.fallen.clear()
    old = sample(place.population, JUDGED_AT_MOST)
    judged = np.concatenate([old, place.new[:JUDGED_AT_MOST]])
    who = attackers_of(run.server)
    arrays: dict[str, np.ndarray] = {"attackers": np.array(who)} if who else {}
    ask = place.objective.margins if place.federation.binary else None
    found = outcomes_of(engine, place, run, judged, tuple(place.splits), ask=ask)
    for part, (loss, error, *margin) in found.items():
        offsets = np.concatenate([[0], np.cumsum(place.sizes(part)[judged])]).astype(np.int64)
        arrays |= {f"{part}_loss": loss, f"{part}_error": error, f"{part}_offsets": offsets}
        arrays |= {f"{part}_margin": each for each in margin}
        values = metric_values(engine, place, run, judged, part)
        arrays |= {f"{part}_metric_{name}": of_client for name, of_client in values.items()}
    arrays["fallen"] = np.array(sorted(run.fallen), np.int64)
    return judged, arrays


def outcomes_of(
    engine: Engine,
    place: Arena,
    run: RunState,
    who: np.ndarray,
    parts: tuple[str, ...],
    most: int | None = None,
    ask: Callable[..., tuple] | None = None,
) -> dict[str, tuple[np.ndarray, ...]]:
    """Per part: loss and error of every example by its client's own model, in the targets' own units.

    Not a number if no client that trains has a model that is one: then the method has diverged, and not a few of them.

    `ask`: what to ask instead of the objective's outcomes. `most`: as for `Engine.outcomes`.
    """
    found = engine.outcomes(run, who, ask or place.objective.outcomes, parts, most)
    scaling = place.target_scaling
    factor = 1.0 if scaling is None else scaling.target_spread**2  # both are squares of differences
    factor = float("nan") if has_diverged(place, run, who) else factor
    return found if factor == 1.0 else {part: tuple(factor * each for each in both) for part, both in found.items()}


def has_diverged(place: Arena, run: RunState, who: np.ndarray) -> bool:
    """Whether all of these clients that train (of new ones: all that train) have no model that is a number."""
    asked = who[who < place.population]
    return run.fallen.issuperset(asked.tolist() if len(asked) else range(place.population))


def metric_values(engine: Engine, place: Arena, run: RunState, who: np.ndarray, part: str) -> dict[str, np.ndarray]:
    """Every metric of each of these clients on its own held-out examples; NaN without examples."""
    found = {metric.name: np.full(len(who), np.nan) for metric in place.metrics}
    if not place.metrics:
        return found
    labels, offsets, scaling = place.targets(part), place.splits[part][2], place.target_scaling
    assert place.outputs is not None
    for first in range(0, len(who), AT_ONCE):
        some = who[first : first + AT_ONCE]
        outputs = engine.outcomes(run, some, place.outputs, (part,))[part][0]
        outputs = outputs if scaling is None else scaling.in_own_units(outputs)
        ends = np.cumsum(place.sizes(part)[some])
        for at, (i, mine) in enumerate(zip(some, np.split(outputs, ends[:-1]), strict=True)):
            if len(mine):
                truth = labels[offsets[i] : offsets[i + 1]]
                for metric in place.metrics:
                    value = metric.value(str(place.ids[i]), mine, truth)
                    found[metric.name][first + at] = value
    lost = has_diverged(place, run, who)
    return {name: np.full_like(values, np.nan) if lost else finite(values) for name, values in found.items()}


def by_examples(
    engine: Engine, place: Arena, run: RunState, counts: Sequence[int], who: np.ndarray | None = None
) -> dict[int, np.ndarray]:
    """How newcomers fare by how much they bring: their test errors, example by example, from so many examples each.

    Who has fewer uses all. The clients (default: all new ones) are always the same, so that numbers can be compared.
    """
    who = place.new[:JUDGED_AT_MOST] if who is None else who
    return {most: outcomes_of(engine, place, run, who, ("test",), most)["test"][1] for most in counts}


def sample(population: int, most: int) -> np.ndarray:
    """Everybody, or a sample that is the same for all seeds and methods, so that clients can be compared.

    >>> sample(3, 10).tolist(), len(sample(100, 10))
    ([0, 1, 2], 10)
    """
    if population <= most:
        return np.arange(population)
    return np.sort(np.random.default_rng([most, population]).choice(population, most, replace=False))


def finite(values: np.ndarray) -> np.ndarray:
    """Infinity as NaN: a client's model has diverged either way, and differences of infinities mean nothing.

    >>> finite(np.array([1.0, np.inf])).tolist()
    [1.0, nan]
    """
    return np.where(np.isfinite(values), values, np.nan)
