"""The pilot for networks: a shared one with early stopping, last layers on its features, fine-tuning by part.

Networks know by heart what they have seen: one fold is held out of everything, and all is judged on that. Candidates
begin with the one shared network: its last layer pulled to the client's own on the features that it gives, and passes
of fine-tuning of all layers, or of one part. Local networks are trained by a sample of clients, to compare with.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.advise import pilot as linear_pilot
from apiece.advise import questions as q
from apiece.advise.folds import held_out, rows_dealt
from apiece.advise.keep import Kept
from apiece.advise.pilot import Asked, Pilot, Tell, Work, score_by_size
from apiece.advise.shift import measure_shift
from apiece.advise.weigh import HeldOut, Told
from apiece.client.linear import deal_folds, smoothness_of
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.errors import UserError
from apiece.experiment.build import Arena, engine_of
from apiece.experiment.spec_tables import TrainSpec
from apiece.methods.head import see
from apiece.methods.stack_tuned import has_head, head_in, head_loss, kept_rows, tune
from apiece.models import Model
from apiece.protocol import Batch, Data, Loss, Message, Params, Question, Tree
from apiece.split import split

SETTINGS = ((0,), (0, 1))  # without a quarter of the rows, and without half of them; judged on the first fold alone
RATES = (0.03, 0.1, 0.3)  # step sizes that are tried for some rounds each
TRIED, LOOK, PATIENCE, ROUNDS = 2, 2, 3, 60
BETTER = 0.002  # of the loss: what counts as progress of the shared network
PASSES = (1, 3, 8)  # of fine-tuning, after which a network is scored
PULLS = (1.0, 0.1, 0.01, 0.001)  # of last layers, for features of mean square 4
LOCAL_PASSES = (5, 20)
SAMPLED = 25  # clients that train a network alone
PARTS = ("norm", "input", "adapter")  # what else may be fine-tuned, where there is such; "" is all
BATCH = 32
COST = 220  # passes, at most


class Network(NamedTuple):
    """A network as the pilot sees it."""

    loss: Loss
    model: Model
    classes: int
    parts: tuple[str, ...]


class Trained(NamedTuple):
    """The shared network: its parameters, step size and rounds; what it cost, in passes."""

    params: Params
    lr: Any
    rounds: Any
    passes: Any


def network_of(place: Arena, init: Params) -> Network:
    """The network, or an error that says why there is no advice about it."""
    rows = Batch(place.x, place.y, np.ones(1))
    if not has_head(place.model, init, rows):
        raise UserError(f"advice looks at what the last layer of a network sees, and {place.model.name} does not tell: "
                        "give it model._replace(features=lambda params, x: ...) and a last layer params['out'] of 'w' "
                        "and 'b'; or compare local, fed_avg, ftfa and rtfa with this model")  # fmt: skip
    if place.own_outcomes:
        raise UserError("advice for networks trains last layers by the task's own loss, and this objective is another: "
                        "compare local, fed_avg, ftfa and rtfa by it")  # fmt: skip
    classes = len(place.federation.classes) if place.federation.task == "classification" else 0
    return Network(place.objective.loss, place.model, classes, ("", *(word for word in PARTS if _has(init, word))))


def _has(params: Params, word: str) -> bool:
    try:
        rest, part = split(params, word)
    except UserError:
        return False
    return bool(jax.tree.leaves(rest)) and bool(jax.tree.leaves(part))


def candidate_names(of: Network) -> list[str]:
    """What stands where among the candidates of a score."""
    tuned = [f"tuned {part or 'all'} {passes}" for part in of.parts for passes in PASSES]
    path = [f"path {k}" for k in range(len(PULLS))]
    return ["shared", "frequencies", *path, *tuned, *(f"local {passes}" for passes in LOCAL_PASSES)]


def without_fold(place: Arena, seed: int) -> Arena:
    """The clients without the rows of their first fold: what the pilot is trained on."""
    sizes = np.diff(place.offsets)
    most = int(sizes.max())

    def dealt(i: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), i), 0x666F6C64)
        return deal_folds(jax.random.fold_in(key, seed), most)

    folds = np.asarray(jax.jit(lambda ids: lax.map(dealt, ids))(jnp.arange(len(sizes))))
    keep = np.concatenate([folds[i, :n] != SETTINGS[0][0] for i, n in enumerate(sizes)])
    offsets = np.concatenate([[0], np.cumsum([(folds[i, :n] != SETTINGS[0][0]).sum() for i, n in enumerate(sizes)])])
    x, y = (np.asarray(part)[keep] for part in (place.x, place.y))
    return place._replace(x=jnp.asarray(x), y=jnp.asarray(y), offsets=offsets, splits={})


def held_question(loss: Loss, most: int) -> Question:
    """(mean loss on the first fold, 1), summed over clients that have such rows."""

    def answer(message: Message, data: Data, key: Tree) -> tuple:
        params, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        weight = jnp.where(held_out(fold, SETTINGS[:1])[0], batch.weight, 0)
        some = (weight.sum() > 0).astype(jnp.float32)
        return jnp.where(some > 0, loss(params, batch._replace(weight=weight), None), 0), some

    return Question(answer)


def train_shared(place: Arena, seen: Asked, of: Network, seed: int, until: float, tell: Tell) -> Trained:
    """The shared network by FedAvg, a pass a round, stopped where the pooled loss on the held-out fold rests.

    `until`: when it stops in any case, by the clock.
    """
    engine, hyper = engine_of(without_fold(place, seed), "fed_avg", {"epochs": 1, "batch": BATCH}, TrainSpec(
        engine="remote" if isinstance(seen.engine, Remote) else "vectorized", evaluate_every=LOOK))  # fmt: skip
    passes = 0.0

    def look(params: Params) -> float:
        total, some = seen.ask(lambda most: held_question(of.loss, most), (params, np.int32(seed)), 1 / 12)
        found = float(total) / max(float(some), 1)
        return found if np.isfinite(found) else np.inf

    runs = []
    for lr in RATES:
        run = engine.advance(engine.start(place.model.init, seed, {**hyper, "lr": lr}), TRIED)
        passes += 0.75 * TRIED
        runs.append((look(_host(run.server)), lr, run))
    best, lr, run = min(runs, key=lambda each: each[0])
    if not np.isfinite(best):
        raise UserError(f"{place.model.name} gives no finite loss after {TRIED} rounds by any of the steps {RATES}: "
                        "scale the features (--standardize), or take another model")  # fmt: skip
    found, rested = (_host(run.server), run.round), 0
    while run.round < ROUNDS and rested < PATIENCE and time.monotonic() < until:
        began = time.perf_counter()
        run = engine.advance(run, LOOK)
        jax.block_until_ready(run.server)
        seen.pace = min(seen.pace, (time.perf_counter() - began) / (0.75 * LOOK))
        passes += 0.75 * LOOK
        now = look(_host(run.server))
        rested = 0 if now < best * (1 - BETTER) else rested + 1
        if now < best:
            best, found = now, (_host(run.server), run.round)
        tell("training a shared network", 0.05 + 0.4 * run.round / ROUNDS)
    return Trained(found[0], np.float32(lr), np.int32(found[1]), np.float32(passes))


def _host(params: Params) -> Params:
    return jax.tree.map(lambda leaf: np.array(leaf), params)


def make_score(of: Network, most: int) -> Callable[[Message, Data, Tree], q.Scores]:
    """A client's held-out scores of all candidates: shared, own frequencies, last layers, fine-tuned, and local."""
    held = min(q.HELD, -(-most // 4))
    head = head_of(of)

    def score(message: Message, data: Data, key: Tree) -> q.Scores:
        params, start, pulls, lr, share, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        judged = held_out(fold, SETTINGS[:1])[0] & (batch.weight > 0)
        luck = jax.random.uniform(jax.random.fold_in(key, seed), fold.shape)
        which = jnp.argsort(jnp.where(judged, luck, 2.0))[:held]
        x, y = jax.tree.map(lambda leaf: leaf[which], (batch.x, batch.y))
        says = lambda params: of.model.apply(params, x)
        seen, now = see(of.model, params, batch.x), see(of.model, params, x)

        def walk(params: Params, rows: Data, part: str, passes: tuple[int, ...]) -> list[jax.Array]:
            said, before = [], 0
            for until in passes:
                more = dict(epochs=until - before, lr=lr, batch=BATCH)
                params, before = tune(of.loss, params, rows, jax.random.fold_in(key, until), part, **more), until
                said.append(says(params))
            return said

        def one(out: jax.Array) -> jax.Array:
            weight = jnp.where(out, 0, batch.weight)
            mine, rows = Batch(seen, batch.y, weight), kept_rows(batch._replace(weight=weight))
            last = head_in(params)
            heads = q.walk_path(head, last, mine, smoothness_of(mine, bool(of.classes)), pulls)
            said = [says(params), head.apply(q.own_frequencies(head, last, mine), now)]
            said += [head.apply(tree.take(heads, k), now) for k in range(len(PULLS))]
            for part in of.parts:
                said += walk(params, rows, part, PASSES)
            alone = lambda: jnp.stack(walk(start, rows, "", LOCAL_PASSES))
            none = lambda: jnp.stack([said[0]] * len(LOCAL_PASSES))
            return jnp.concatenate([jnp.stack(said), lax.cond(is_sampled(key, share), alone, none)])

        said = lax.map(one, held_out(fold, SETTINGS))
        told = jax.vmap(lambda said: q.tell_outputs(head, said, y))(said)
        bad = -30.0 if of.classes else 1e4  # of a network that diverged
        told = jnp.where(jnp.isfinite(told), told, bad)
        return q.Scores(told, jnp.broadcast_to(judged[which].astype(jnp.float32), told.shape[:2]))

    return score


def is_sampled(key: Tree, share: Any) -> jax.Array:
    """Whether the client of this key trains a network alone, to compare with."""
    return jax.random.uniform(jax.random.fold_in(key, 0x6C6F63)) < share


def sampled_clients(population: int, share: float) -> np.ndarray:
    """[clients]: whether each of them trains alone."""
    one = lambda i: is_sampled(jax.random.fold_in(jax.random.key(0), i), share)
    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(population)))


def head_of(of: Network) -> q.Linear:
    """The last layer as a linear model of what it sees."""

    def apply(head: Params, seen: Any) -> Any:
        out = seen @ head["w"].T + head["b"]
        return out if out.shape[-1] > 1 else out[..., 0]

    return q.Linear(head_loss, apply, of.classes)


def see_rows(place: Arena, params: Params, chunk: int = 4096) -> jax.Array:
    """What the last layer sees of all rows."""
    look = jax.jit(lambda params, x: see(place.model, params, x))
    return jnp.concatenate([look(params, place.x[first : first + chunk]) for first in range(0, len(place.x), chunk)])


def run_network_pilot(
    place: Arena, engine: Engine, of: Network, init: Params, *, seed: int, seconds: float, kept: Kept, tell: Tell
) -> tuple[Pilot, Trained]:
    """(what the pilot has found out, of last layers as of linear models; the shared network)."""
    began = time.perf_counter()
    sizes = np.asarray(engine.sizes[: engine.population])
    seen, usual = Asked(engine, sizes), float(np.exp(np.log(np.maximum(sizes, 1)).mean()))
    tell("training a shared network", 0.05)
    until = time.monotonic() + seconds / 3
    trained = Trained(*kept.tree("shared", lambda: train_shared(place, seen, of, seed, until, tell)))
    tell("measuring how clients differ", 0.5)
    head, below = head_of(of), place._replace(x=see_rows(place, trained.params), splits={})
    features = Asked(engine_of(below, "fed_avg", {}, TrainSpec(engine="remote" if isinstance(engine, Remote)
                                                               else "vectorized"))[0], sizes)  # fmt: skip
    out = head_in(trained.params)
    rows = kept.tree("rows", lambda: features.ask(lambda most: q.rows_question(of.classes, most), (), 1 / 3))
    moments = q.Moments(
        *kept.tree("moments", lambda: features.ask(lambda most: q.moments_question(head, most), out, 1))
    )
    hessian_square = float(kept.tree("curvature", lambda: linear_pilot.hessian_square(features, head, out, seed)))
    spectra = kept.tree("spectra", lambda: linear_pilot.look_at_spectra(features, head, out, sizes))
    one = jax.tree.map(lambda leaf: leaf[None], out)
    shift = kept.tree("shift", lambda: measure_shift(features, head, one, SETTINGS[:1], rows, seed))
    scale = max(float(rows["x_square"] / max(rows["rows"], 1)), 1e-6) / linear_pilot.USUAL_SQUARE
    pulls = np.array(PULLS) * scale
    tell("fine-tuning, and scoring candidates", 0.6)
    share = min(1.0, SAMPLED / len(sizes))
    given = (trained.params, init, np.float32(pulls * usual), np.float32(trained.lr), np.float32(share), np.int32(seed))
    score = score_by_size(lambda most: make_score(of, most), sizes)
    held = HeldOut((place.x, place.y, place.offsets), place.population, isinstance(engine, Remote), score, given,
                   of.classes, 1)  # fmt: skip
    first = Told(*kept.tree("scores-0", lambda: held.tell([0], np.ones(1), np.ones(2))))
    both = sum(1 - len(setting) / 4 for setting in SETTINGS)
    passes = float(trained.passes) + seen.passes + 2 + both * (PASSES[-1] * len(of.parts) + LOCAL_PASSES[-1] * share)
    work = kept.tree("work", lambda: np.array([passes, seen.exchanges + 8, time.perf_counter() - began, seen.pace]))
    return Pilot(SETTINGS, sizes, usual, scale, out, moments, hessian_square, rows, candidate_names(of), pulls,
                 np.zeros(0), first, held, None, spectra, False,
                 Work(float(work[0]), int(work[1]), *map(float, work[2:])), shift), trained  # fmt: skip
