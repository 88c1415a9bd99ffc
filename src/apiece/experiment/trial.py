"""One run of one method with one seed: train, look at validation now and then, judge once at the end, keep going
after a crash."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from apiece import files
from apiece.engines.costs import Costs, costs
from apiece.engines.simulation.base import Run, Simulation
from apiece.engines.simulation.division import on_devices
from apiece.engines.simulation.score import Examples
from apiece.engines.simulation.states import looked_up, parts, put_back
from apiece.evaluate import per_client
from apiece.experiment.build import Arena
from apiece.experiment.spec import TrainSpec
from apiece.models.failures import raise_failures
from apiece.protocol import Method
from apiece.wrap import guard_of, rejections

JUDGED_AT_MOST = 20_000  # clients; of a larger population a sample is judged at the end
SAVING = 0.1  # of the time, at most, goes into checkpoints
Tick = Callable[[int], None]  # called with the number of rounds just done


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


def train(
    engine: Simulation,
    place: Arena,
    hyper: dict[str, float],
    seed: int,
    plan: TrainSpec,
    splits: dict[str, Examples],
    *,
    keep: Path | None = None,
    tick: Tick = lambda rounds: None,
) -> tuple[Run, list[dict[str, float]], float]:
    """(the run after all rounds, its validation curve, seconds of training); from the checkpoint at `keep`, if any.

    The curve is a mean over clients, each counting once; of a large population a fixed sample is looked at, and
    `sampling_error` is the standard error that this brings.
    """
    run = engine.start(place.model.init, seed, hyper)
    curve: list[dict[str, float]] = []
    seconds, saved, saving = 0.0, time.monotonic(), 0.0
    if keep is not None and keep.exists():
        run, curve, seconds = _restored(keep, run, engine)
        tick(run.round)
    watched = sample(place.population, plan.evaluate_clients)
    while run.round < plan.rounds:
        began, before = time.monotonic(), run.round
        run = engine.advance(run, min(plan.evaluate_every, plan.rounds - run.round))
        jax.block_until_ready(run.server)
        raise_failures()
        seconds += time.monotonic() - began
        curve.append(_look(engine, run, place, watched, splits["validation"], seconds))
        tick(run.round - before)
        due = saved + (max(plan.checkpoint_seconds, saving / SAVING) if plan.checkpoint_seconds else 0)
        if keep is not None and run.round < plan.rounds and (began := time.monotonic()) >= due:
            _save(keep, run, curve, seconds)
            saved = time.monotonic()
            saving = saved - began
    return run, curve, seconds


def judge(engine: Simulation, place: Arena, run: Run, splits: dict[str, Examples]) -> tuple[np.ndarray, dict]:
    """(who was judged, outcomes per example): every client's own model on its own held-out examples, once.

    New clients are always among the judged; of a very large population a sample is.
    """
    old = sample(place.population, JUDGED_AT_MOST)
    judged = np.concatenate([old, place.new[:JUDGED_AT_MOST]])
    arrays: dict[str, np.ndarray] = {}
    ask = place.objective.margins if place.federation.binary else None
    for part, (loss, error, *margin) in engine.outcomes(run, judged, ask or place.objective.outcomes, splits).items():
        sizes = splits[part].sizes[judged]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        arrays |= {f"{part}_loss": loss, f"{part}_error": error, f"{part}_offsets": offsets}
        arrays |= {f"{part}_margin": each for each in margin}
    return judged, arrays


def by_examples(
    engine: Simulation, place: Arena, run: Run, test: Examples, counts: Sequence[int], who: np.ndarray | None = None
) -> dict[int, np.ndarray]:
    """How newcomers fare by how much they bring: their test errors, example by example, from so many examples each.

    Which ones is chance, since files are often sorted; more examples include the fewer. Who has fewer uses all. The
    clients (default: all new ones) are always the same, so that the numbers can be compared.
    """
    who = place.new[:JUDGED_AT_MOST] if who is None else who
    if not len(counts):
        return {}
    order = mixed(place.offsets, who)
    engine = engine.moved(place.x[order], place.y[order], place.offsets)
    judge = lambda most: engine.outcomes(run, who, place.objective.outcomes, {"test": test}, most=most)["test"][1]
    return {most: judge(most) for most in counts}


def mixed(offsets: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Row numbers in their order, but for the rows of these clients, which are mixed, each client's among themselves.

    >>> mixed(np.array([0, 2, 6]), np.array([1])).tolist()
    [0, 1, 3, 4, 2, 5]
    """
    order = np.arange(offsets[-1])
    for i in who:
        np.random.default_rng([0x6E6577, int(i)]).shuffle(order[offsets[i] : offsets[i + 1]])
    return order


def total_costs(
    engine: Simulation, place: Arena, run: Run, method: Method, seconds: float, per: dict[int, Costs] | None = None
) -> dict[str, float]:
    """What the whole run cost, all clients together: bytes, gradient evaluations, visits, seconds of training.

    `per`: the costs of a visit by client size, where they are known already.
    """
    visits = engine.visited(run)
    per = per or visit_costs(method, place, run, engine.train.sizes[: place.population])
    one = next(iter(per.values()))
    sizes = engine.train.sizes[: place.population]
    gradients = sum(int(visits[sizes == size].sum()) * c.gradients for size, c in per.items())
    return {
        "rounds": run.round,
        "clock": run.clock,
        "visits": int(visits.sum()),
        "bytes_down": int(visits.sum()) * one.bytes_down,
        "bytes_up": int(visits.sum()) * one.bytes_up,
        "bytes_final": place.population * one.bytes_down,
        "bytes_kept_per_client": one.bytes_kept,
        "gradients": gradients,
        "gradients_personal": sum(int((sizes == size).sum()) * c.gradients_personal for size, c in per.items()),
        "seconds": seconds,
        **(rejections(run.server) if guard_of(run.server) is not None else {}),
    }


def visit_costs(method: Method, place: Arena, run: Run, sizes: np.ndarray) -> dict[int, Costs]:
    """The costs of a visit by client size; sizes between two that cost the same cost that, too."""
    every = np.unique(sizes)
    of = functools.cache(lambda at: costs(method, run.params, (place.x, place.y), int(every[at])))
    found: dict[int, Costs] = {}

    def fill(first: int, last: int) -> None:
        if of(first) == of(last) or last - first < 2:
            for at in range(first, last + 1):
                found[int(every[at])] = of(at if at == last else first)
        else:
            fill(first, (first + last) // 2)
            fill((first + last) // 2, last)

    fill(0, len(every) - 1)
    return found


def save_outcome(path: Path, outcome: Outcome) -> None:
    """A finished trial, in one file."""
    about = {"curve": outcome.curve, "costs": outcome.costs, "note": outcome.note}
    files.write_arrays(path, {"judged": outcome.judged, **outcome.arrays}, about)


def load_outcome(path: Path) -> Outcome:
    """A trial finished earlier."""
    arrays, about = files.read_arrays(path)
    return Outcome(arrays.pop("judged"), arrays, about["curve"], about["costs"], about["note"])


def save_models(path: Path, engine: Simulation, place: Arena, run: Run, most: float) -> str | None:
    """The personal models, stacked in the order of `clients`, and the server's state; what was left out, or None.

    At most `most` GB of them.
    """
    arrays = files.arrays_by_path("server", run.server)
    count = len(place.ids)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(run.params)) * count / 1e9
    if size > most:
        files.write_arrays(path, arrays, {"clients": [], "round": run.round})
        return (f"personal models not written: {size:.1f} GB are more than train.models_gb = {most:g}; "
                f"to keep them: models_gb = {math.ceil(size)} under [train] in a spec")  # fmt: skip
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), run.params)
    stacked = files.leaves_by_path("personal", like)
    with files.write_rows(path, arrays | stacked, {"clients": place.ids.tolist(), "round": run.round}) as put:
        for name, array in arrays.items():
            put(name, 0, array)
        for models, who in engine.personal_groups(run, np.arange(count)):
            for name, rows in files.arrays_by_path("personal", models).items():
                put(name, int(who[0]), rows)
    return None


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


def _look(engine: Simulation, run: Run, place: Arena, who: np.ndarray, split: Examples, seconds: float) -> dict:
    loss, error = engine.outcomes(run, who, place.objective.outcomes, {"validation": split})["validation"]
    offsets = np.concatenate([[0], np.cumsum(split.sizes[who])])
    present = split.sizes[who] > 0  # a diverged client must show as NaN, one without examples must not
    losses, errors = (finite(per_client(values, offsets)[present]) for values in (loss, error))
    seen = int(present.sum())
    # A finite population, partly seen: nothing is uncertain when all were looked at.
    unseen = 1 - len(who) / place.population
    spread = float(np.std(losses, ddof=1)) if seen > 1 else 0.0
    return {
        "round": run.round,
        "clock": run.clock,
        "validation_loss": float(losses.mean()) if seen else float("nan"),
        "validation_error": float(errors.mean()) if seen else float("nan"),
        "sampling_error": spread * (unseen / max(seen, 1)) ** 0.5,
        "seconds": seconds,
    }


def _save(path: Path, run: Run, curve: list[dict[str, float]], seconds: float) -> None:
    known = np.flatnonzero(run.known)
    arrays = {"known": known} | files.arrays_by_path("server", run.server)
    arrays |= files.arrays_by_path("flight", run.flight)
    kept = files.leaves_by_path("rows", run.rows)
    rows = {name: leaf for name, leaf in kept.items() if len(leaf)}  # none are kept: no rows
    like = {name: jax.ShapeDtypeStruct((len(known), *leaf.shape[1:]), leaf.dtype) for name, leaf in rows.items()}
    about = {"round": run.round, "clock": run.clock, "curve": curve, "seconds": seconds}
    with files.write_rows(path, arrays | like, about) as put:
        for name, array in arrays.items():
            put(name, 0, array)
        for name, leaf in rows.items():
            for some in parts(leaf, len(known)):
                put(name, some.start, looked_up(leaf, known[some]))


def _restored(path: Path, fresh: Run, engine: Simulation) -> tuple[Run, list[dict[str, float]], float]:
    with files.read_rows(path) as (get, names, about):
        known = get("known")
        for name, leaf in files.leaves_by_path("rows", fresh.rows).items():
            for some in parts(leaf, len(known)) if len(leaf) else ():
                put_back(leaf, known[some], get(name, some.start, some.stop))
        fresh.known[known] = True
        arrays = {name: get(name) for name in names if not name.startswith("rows")}
    server = on_devices(files.rebuild_tree("server", fresh.server, arrays), engine.mesh)
    flight = on_devices(files.rebuild_tree("flight", fresh.flight, arrays), engine.mesh)
    run = dataclasses.replace(fresh, round=about["round"], clock=about["clock"], server=server, flight=flight)
    return run, about["curve"], about["seconds"]
