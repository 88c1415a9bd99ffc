"""The pilot: one shared model per fold, a path from it to local, group models, all scored on held-out examples.

Whatever is asked of clients goes through `Engine.ask`; what is found out is here, what follows from it elsewhere.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.cluster import vq

from apiece import tree
from apiece.advise import questions as q
from apiece.advise.folds import Setting, ask_by_size, settings_of, size_buckets
from apiece.advise.keep import Kept
from apiece.advise.shift import measure_shift
from apiece.advise.solve import minimize_pooled
from apiece.advise.stacking import pooled_scores
from apiece.advise.weigh import HeldOut, Score, Told
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.experiment.build import Arena
from apiece.protocol import Data, Message, Params, Tree

SHARED_EVALUATIONS = 60
GROUP_EVALUATIONS = (10, 12)  # before, and after clients have chosen again
# On a shared model, in units of the features' scale: the least, with which what separates classes stays finite; and
# those that are tried, where a model has many parameters for all rows there are.
RIDGE = 1e-4
DECAYS = (0.1, 0.03, 0.01, 0.003, 0.001, RIDGE)
LOST = 1.05  # of the best loss: where weaker ones are no longer tried
MANY_ROWS = 20  # for each parameter: no more than the least is needed
LOOKED_AT = 400  # clients whose models are looked at to find groups; all others choose among the groups themselves
FEWEST_FOR_GROUPS = 8
DIRECTIONS = 6  # principal ones, in which groups are looked for
RESTARTS = 10  # of k-means: the tightest groups count
# Four points a decade apart, for rows of mean square 4 (a fifth beyond an end that is best); ridges of local models.
PATH = {"classes": (1.0, 0.1, 0.01, 0.001), "numbers": (10.0, 1.0, 0.1, 0.01)}
RIDGES = {"classes": (0.3, 0.03, 0.003), "numbers": (1.0, 0.1, 0.01)}
USUAL_SQUARE = 4.0
SPECTRA, SPECTRUM_ROWS = 32, 128  # clients whose eigenvalues are looked at, and rows of each
BEYOND = 1  # how often the grids may be moved on
MORE = 0.01  # of the loss: how much better the end of a grid must be than the point before it


class Work(NamedTuple):
    """What the pilot has cost: passes over everybody's rows (a gradient of all of them is one), exchanges, seconds; and
    the seconds of a pass once its program is compiled."""

    passes: float
    exchanges: int
    seconds: float
    pace: float


class Pilot(NamedTuple):
    """What the pilot has found out. `settings` are those of the scores: without one fold each, then without two."""

    settings: tuple[Setting, ...]
    sizes: np.ndarray
    usual: float  # the geometric mean of the sizes
    scale: float  # mean square of a row, in units of the usual
    shared: Params  # of all rows
    moments: q.Moments
    hessian_square: float  # tr(H^2)
    rows: dict[str, np.ndarray]
    names: list[str]  # of candidates
    pulls: np.ndarray  # c, of the path's points
    ridges: np.ndarray
    first: Told  # of all candidates
    held: HeldOut  # the clients, with what they keep of their held-out examples
    members: np.ndarray | None  # [clients, kinds]
    spectra: tuple[np.ndarray, np.ndarray]  # (of whom, eigenvalues)
    extended: bool
    work: Work
    decay: float = 0.0  # the ridge of shared models, if they need one
    shift: np.ndarray | None = None  # held-out losses: shared, with own frequencies, with own inputs


Tell = Callable[[str, float], None]


def run_pilot(
    place: Arena, engine: Engine, of: q.Linear, init: Params, *, folds: int, seed: int, groups: bool, kept: Kept,
    tell: Tell,
) -> Pilot:  # fmt: skip
    """The whole pilot on an engine's clients; `kept` has what an earlier, interrupted one found."""
    began = time.perf_counter()
    sizes = np.asarray(engine.sizes[: engine.population])
    seen = Asked(engine, sizes)
    usual = float(np.exp(np.log(np.maximum(sizes, 1)).mean()))
    settings = settings_of(folds)
    tell("looking at the rows", 0.02)
    rows = kept.tree("rows", lambda: seen.ask(lambda most: q.rows_question(of.classes, most), (), 1 / 3))
    scale = max(float(rows["x_square"] / max(rows["rows"], 1)), 1e-6) / USUAL_SQUARE
    grouped = groups and len(sizes) >= FEWEST_FOR_GROUPS

    tell("fitting shared models", 0.05)
    every, decay = kept.tree("shared", lambda: choose_decay(seen, of, init, settings, scale, seed))
    decay = float(decay)
    shared, out = tree.take(every, 0), jax.tree.map(lambda leaf: leaf[1:], every)
    tell("measuring how clients differ", 0.3)
    moments = q.Moments(*kept.tree("moments", lambda: seen.ask(lambda most: q.moments_question(of, most), shared, 1)))
    curved = float(kept.tree("curvature", lambda: hessian_square(seen, of, shared, seed)))
    spectra = kept.tree("spectra", lambda: look_at_spectra(seen, of, shared, sizes))
    single = settings[1 : 1 + folds]
    first_ones = jax.tree.map(lambda leaf: leaf[: len(single)], out)
    shift = kept.tree("shift", lambda: measure_shift(seen, of, first_ones, single, rows, seed))

    kind = "classes" if of.classes else "numbers"
    pulls, ridges = (np.array(grid[kind]) * scale for grid in (PATH, RIDGES))
    group_models = members = None
    if grouped:
        tell("looking for groups", 0.35)
        middle = float(pulls[1]) * usual
        make = lambda: fit_groups(seen, of, out, settings[1:], middle, decay, seed, tell)
        group_models = kept.tree("groups", make)
        first = tree.take(group_models, 0)
        members = kept.tree("members", lambda: seen.ask(lambda most: q.members_question(of, most), first, 3))

    tell("scoring candidates", 0.65)
    extended = False
    for turn in range(BEYOND + 1):
        held = keep_candidates(place, seen, of, settings[1:], out, pulls * usual, ridges, group_models, seed)
        first = Told(*kept.tree(f"scores-{turn}", lambda: tell_all(seen, held, settings[1:], pulls, ridges)))  # noqa: B023
        names = q.candidate_names(len(pulls), len(ridges), grouped)
        score = pooled_scores(first, of.classes, outputs_of(init))
        further = _further(names, pulls, ridges, score) if turn < BEYOND else None
        if further is None:
            break
        pulls, ridges, extended = *further, True
        tell("going further along the path", 0.8 + 0.05 * turn)
    work = kept.tree("work", lambda: np.array([seen.passes, seen.exchanges, time.perf_counter() - began, seen.pace]))
    spent = Work(float(work[0]), int(work[1]), *map(float, work[2:]))
    return Pilot(settings[1:], sizes, usual, scale, shared, moments, curved, rows, names, pulls, ridges, first, held,
                 members, spectra, extended, spent, decay if decay > RIDGE * scale else 0.0, shift)  # fmt: skip


class Asked:
    """An engine's clients, asked bucket by bucket; counts what that costs."""

    def __init__(self, engine: Engine, sizes: np.ndarray) -> None:
        self.engine, self.sizes, self.passes, self.exchanges, self.pace = engine, sizes, 0.0, 0, np.inf

    def ask(self, make: Callable[[int], Any], message: Any, passes: float, ids: np.ndarray | None = None) -> Tree:
        """The clients' answers, as the question wants them; `passes`: how much work that is if all are asked."""
        share = 1.0 if ids is None else self.sizes[ids].sum() / max(self.sizes.sum(), 1)
        self.passes, self.exchanges = self.passes + passes * float(share), self.exchanges + 1
        began = time.perf_counter()
        said = ask_by_size(self.engine.ask, make, self.sizes, message, ids)
        self.pace = min(self.pace, (time.perf_counter() - began) / max(passes * float(share), 1e-9))
        return said


def share_kept(settings: tuple[Setting, ...]) -> float:
    """The rows that are not held out, of all settings together."""
    return sum(1 - len(setting) / 4 for setting in settings)


def choose_decay(
    seen: Asked, of: q.Linear, init: Params, settings: tuple[Setting, ...], scale: float, seed: int
) -> tuple[Params, np.ndarray]:
    """(shared models, the ridge that they have): of several, from strong to weak, the best on what is held out.

    With about as many parameters as rows a shared model learns its rows by heart, and whatever trains less looks like
    personalization.
    """
    start = jax.tree.map(lambda leaf: np.stack([np.zeros_like(leaf)] * len(settings)), init)
    parameters = sum(np.size(leaf) for leaf in jax.tree.leaves(init))
    few = int(seen.sizes.sum()) < MANY_ROWS * parameters
    once = tuple(each for each in settings if len(each) == 1)
    best, least, found = RIDGE, np.inf, start
    for decay in DECAYS if few else (RIDGE,):
        start = fit_shared(seen, of, start, settings, decay * scale, seed)
        if not few:
            return start, np.array(decay * scale)
        models = jax.tree.map(lambda leaf: leaf[1 : 1 + len(once)], start)
        total, count = seen.ask(lambda most: q.unseen_question(of, once, most), (models, np.int32(seed)), 1 / 3)
        score = float(np.mean((total / np.maximum(count, 1))[count > 0]))
        if score < least:
            best, least, found = decay, score, start
        elif score > LOST * least:
            break
    return found, np.array(best * scale)


def fit_shared(
    seen: Asked, of: q.Linear, start: Params, settings: tuple[Setting, ...], ridge: float, seed: int
) -> Params:
    """One shared model for each setting, stacked, on all rows that it does not hold out; all by the same exchanges."""
    cost = share_kept(settings)

    def ask(models: Params) -> tuple[float, Params]:
        total, slopes, count = seen.ask(
            lambda most: q.slope_question(of, settings, most), (models, np.int32(seed)), cost
        )
        count = np.maximum(count, 1)
        each = lambda leaf: leaf / count.reshape(-1, *[1] * (leaf.ndim - 1))
        return float((total / count).sum()), jax.tree.map(each, slopes)

    return minimize_pooled(ask, start, ridge, SHARED_EVALUATIONS)[0]


def fit_groups(
    seen: Asked, of: q.Linear, shared: Params, settings: tuple[Setting, ...], pull: float, ridge: float, seed: int,
    tell: Tell,
) -> Params:  # fmt: skip
    """[settings, 2 + 3 + 4 models]: models of two, three and four groups, for each setting.

    They begin as the means of the models of clients that lie close together; clients then choose by their training
    loss, the models are fitted, clients choose again, and they are fitted again.
    """
    rng = np.random.default_rng([seed, 0x67726F])
    who = np.sort(rng.permutation(len(seen.sizes))[:LOOKED_AT])
    message = (shared, np.float32(pull), np.int32(seed))
    cost = share_kept(settings)
    moved = seen.ask(lambda most: q.moved_question(of, settings, most), message, q.STEPS * cost, who)
    flat = np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(moved)], axis=2)
    means = np.stack(
        [np.concatenate([cluster_means(flat[:, at], k, rng) for k in q.KINDS]) for at in range(len(settings))]
    )
    models = jax.tree.map(lambda leaf, away: leaf[:, None] + away, shared, _as_models(means, moved))
    cost = cost * (sum(q.KINDS) / 3 + len(q.KINDS))
    for turn, evaluations in enumerate(GROUP_EVALUATIONS):
        models = _fit_from(seen, of, settings, models, cost, ridge, evaluations, seed)
        tell("looking for groups", 0.45 + 0.1 * turn)
    return models


def _fit_from(
    seen: Asked, of: q.Linear, settings: tuple[Setting, ...], anchors: Params, cost: float, ridge: float,
    evaluations: int, seed: int,
) -> Params:  # fmt: skip
    """Group models of the clients that choose among these anchors, from these anchors."""

    def ask(models: Params) -> tuple[float, Params]:
        given = (anchors, models, np.int32(seed))
        losses, slopes, count = seen.ask(lambda most: q.groups_question(of, settings, most), given, cost)
        count = np.maximum(count, 1)  # stays what it is: the anchors decide who counts where
        mean = lambda leaf: leaf / count.reshape(*count.shape, *[1] * (leaf.ndim - 2))
        return float((losses / count).sum()), jax.tree.map(mean, slopes)

    return minimize_pooled(ask, anchors, ridge, evaluations)[0]


def cluster_means(moved: np.ndarray, groups: int, rng: np.random.Generator) -> np.ndarray:
    """[groups, parameters]: the means of groups that lie close together in a few principal directions.

    >>> points = np.array([[0.0, 1.0], [0.1, 1.0], [5.0, 1.0], [5.1, 1.0]])
    >>> np.sort(cluster_means(points, 2, np.random.default_rng(0))[:, 0]).round(2).tolist()
    [0.05, 5.05]
    """
    centred = moved - moved.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * size)[:, :DIRECTIONS].astype(np.float64)
    best, least = np.zeros(len(points), int), np.inf
    for _ in range(RESTARTS):
        found, label = vq.kmeans2(points, groups, minit="++", seed=rng, missing="warn", iter=20)
        spread = float(((points - found[label]) ** 2).sum())
        if spread < least:
            best, least = label, spread
    means = [moved[best == k].mean(axis=0) if (best == k).any() else moved.mean(axis=0) for k in range(groups)]
    return np.stack(means)


def _as_models(flat: np.ndarray, like: Params) -> Params:
    """[settings, models, parameters] as a tree of models; `like` has them as [clients, settings, ...]."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([int(np.prod(leaf.shape[2:])) for leaf in leaves])[:-1]
    parts = zip(np.split(flat, ends, axis=2), leaves, strict=True)
    return jax.tree.unflatten(structure, [part.reshape(*flat.shape[:2], *leaf.shape[2:]).astype(leaf.dtype)
                                          for part, leaf in parts])  # fmt: skip


def keep_candidates(
    place: Arena, seen: Asked, of: q.Linear, settings: tuple[Setting, ...], shared: Params, pulls: np.ndarray,
    ridges: np.ndarray, groups: Params | None, seed: int,
) -> HeldOut:  # fmt: skip
    """The clients, who are going to keep the held-out scores of all candidates."""
    grouped = groups is not None
    given = (shared, np.float32(pulls), np.float32(ridges), groups if grouped else shared, np.int32(seed))
    score = score_by_size(lambda most: q.score_question(of, settings, most, grouped).answer, seen.sizes)
    rows, remote = (place.x, place.y, place.offsets), isinstance(seen.engine, Remote)
    return HeldOut(rows, place.population, remote, score, given, of.classes, sum(len(each) == 1 for each in settings))


def tell_all(seen: Asked, held: HeldOut, settings: tuple[Setting, ...], pulls: np.ndarray, ridges: np.ndarray) -> Told:
    """What clients tell of all candidates, none of them chosen yet; counts what their scores cost."""
    seen.passes += (q.STEPS * len(pulls) + q.LOCAL_STEPS * len(ridges)) * share_kept(settings)
    seen.exchanges += 2
    return held.tell([0], np.ones(1), np.ones(2))


def score_by_size(make: Callable[[int], Score], sizes: np.ndarray) -> Score:
    """One score for clients of all sizes: each works on as many rows as its bucket needs, and answers in one shape."""
    edges = [rows for rows, _ in size_buckets(tuple(int(size) for size in sizes))]

    def score(message: Message, data: Data, key: Tree) -> q.Scores:
        most = sorted({min(edge, data.capacity or edge) for edge in edges})
        shapes = jax.eval_shape(make(edges[0]), message, data, key)

        def of(rows: int) -> Callable[[], q.Scores]:
            def found() -> q.Scores:
                fill = lambda leaf, like: jnp.pad(
                    leaf, [(0, have - n) for n, have in zip(leaf.shape, like.shape, strict=True)]
                )
                return jax.tree.map(fill, make(rows)(message, data, key), shapes)

            return found

        if len(most) == 1:
            return of(most[0])()
        return lax.switch(jnp.searchsorted(jnp.array(most[:-1]), data.size, side="left"), [of(rows) for rows in most])

    return score


def outputs_of(params: Params) -> int:
    """How many numbers a linear model predicts."""
    return int(np.shape(params["b"])[0]) if np.ndim(params["b"]) else 1


def hessian_square(seen: Asked, of: q.Linear, shared: Params, seed: int) -> np.ndarray:
    """tr(H^2) of the pooled Hessian at the shared model, by random signs."""
    rng = np.random.default_rng([seed, 0x686573])
    signs = jax.tree.map(lambda leaf: rng.choice([-1.0, 1.0], (q.PROBES, *leaf.shape)).astype(leaf.dtype), shared)
    found = seen.ask(lambda most: q.curvature_question(of, most), (shared, signs), 2 * q.PROBES)
    total = sum(float((np.asarray(leaf, np.float64) ** 2).sum()) for leaf in jax.tree.leaves(found))
    return np.array(total / q.PROBES / max(int(seen.sizes.sum()), 1) ** 2)


def look_at_spectra(seen: Asked, of: q.Linear, shared: Params, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(who, the eigenvalues of their Hessians), of a few clients of all sizes."""
    order = np.argsort(sizes, kind="stable")
    who = np.unique(order[np.linspace(0, len(sizes) - 1, min(SPECTRA, len(sizes))).astype(int)])
    rows = min(int(sizes.max()), SPECTRUM_ROWS)
    return who, np.asarray(seen.engine.ask(q.spectrum_question(of, rows), shared, who.tolist()))


def _further(
    names: list[str], pulls: np.ndarray, ridges: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Grids moved on where the best lies at an end, so that it lies inside; None: nowhere."""
    moved = []
    for word, grid in (("path", pulls), ("local", ridges)):
        mine = [score[at] for at, name in enumerate(names) if name.startswith(word)]
        best = int(np.argmin(mine))
        # Beyond the strongest pull stands the shared model itself, which is a candidate.
        up = best == 0 and mine[0] < mine[1] - MORE * abs(mine[0]) and (word == "local" or mine[0] < score[0])
        down = best == len(grid) - 1 and mine[best] < mine[best - 1] - MORE * abs(mine[best])
        step = (grid[0] / grid[1]) ** (2 if len(grid) > 3 else 1)
        moved.append(grid * step if up else grid / step if down else grid)
    return None if all(new is old for new, old in zip(moved, (pulls, ridges), strict=True)) else (moved[0], moved[1])
