"""The pilot under differential privacy: few sums, each clipped at the clients and noised, one epsilon for all of them.

What the plain pilot does and this one cannot: nobody's own row is looked at, so that there are no groups, no word on
single clients and no moments; and a shared model is fitted in as few exchanges as the noise allows.
"""

import math
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from apiece.advise import private_answers as a
from apiece.advise import questions as q
from apiece.advise.pilot import PATH, RIDGES, SPECTRUM_ROWS, Asked, Tell, Work, score_by_size
from apiece.advise.release import Purse
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.experiment.build import Arena
from apiece.experiment.steps import TOP_OF_LOG_LOSS
from apiece.protocol import Params

# What of the promise goes where; together 1.
SHARES = {"sizes": 0.05, "clip of steps": 0.05, "steps": 0.36, "levels": 0.05, "clip of scores": 0.04, "scores": 0.15,
          "weights": 0.08, "clip of outcomes": 0.04, "outcomes": 0.1, "squares": 0.05, "own share": 0.03}  # fmt: skip
MOST_STEPS, STEP_NOISE = 16, 1 / 3  # of the shared model: how many, and the longest noise of one, in clips
MOST_WEIGHINGS, WEIGHT_NOISE = 30, 0.1  # of the mixture's weights
GAPS = tuple(2.0**power for power in range(-6, 2))  # lengths of differences between mean losses, in nats
SHORTER = 3.0  # steps are a third of the longest that the rows' squares allow


class Level(NamedTuple):
    """Of the shared model: mean loss, mean error, the variance of clients' errors; and how many clients could tell."""

    loss: float
    error: float
    error_variance: float
    told: float


class PrivatePilot(NamedTuple):
    """What the private pilot has released; `scores` are mean losses of all candidates, less that of the shared model,
    and `score_noise` the deviation of each that is noise."""

    usual: float
    scale: float
    shared: Params
    names: list[str]
    pulls: np.ndarray
    ridges: np.ndarray
    level: Level
    scores: np.ndarray
    score_noise: float
    steps: int
    held: a.KeptScores
    seen: Asked
    began: float


def run_private_pilot(
    place: Arena, engine: Engine, of: q.Linear, init: Params, purse: Purse, *, seed: int, tell: Tell
) -> PrivatePilot:
    """Sizes, a shared model, and the scores of all candidates."""
    began, clients = time.perf_counter(), place.population
    seen = Asked(engine, np.asarray(engine.sizes[:clients]))
    tell("looking at the rows", 0.02)
    sizes = lambda: seen.ask(a.sizes_question, (), 1 / 3)
    means = purse.release("sizes", sizes, a.SIZES_CLIP, SHARES["sizes"]) / clients
    means = means * shrink(means, purse.releases[-1].noise * a.SIZES_CLIP / clients)
    log_size, scale = float(np.clip(means[0], -4, 4)), float(np.exp(np.clip(means[1], -4, 4)))
    usual = max(a.USUAL * float(np.exp(log_size)), 4.0)
    pulls, ridges = (np.array(grid["classes"]) * scale for grid in (PATH, RIDGES))

    tell("fitting a shared model", 0.1)
    shared, steps = fit_shared(seen, of, init, float(pulls[-1]) * usual, purse, seed)
    tell("scoring candidates", 0.5)
    given = (jax.tree.map(lambda leaf: leaf[None], shared), np.float32(pulls * usual), np.float32(ridges),
             jax.tree.map(lambda leaf: leaf[None], shared), np.int32(seed))  # fmt: skip
    score = score_by_size(lambda most: q.score_question(of, a.SETTING, most, False).answer, seen.sizes)
    names = q.candidate_names(len(pulls), len(ridges), False)
    held = a.KeptScores((place.x, place.y, place.offsets), clients, isinstance(engine, Remote), score, given,
                        len(names), of.classes)  # fmt: skip
    seen.passes += (q.STEPS * len(pulls) + q.LOCAL_STEPS * len(ridges)) * 0.75

    told = purse.release("levels", lambda: held.sum("levels", 0)[:4], a.LEVELS_CLIP, SHARES["levels"])
    count = float(np.clip(told[0], 1, clients))
    loss, error, square = (float(np.clip(each, 0, 1)) for each in told[1:] / count)
    level = Level(loss * held.cap, error, max(square - error**2, 0.0), count)
    within = lambda clip: held.sum("bits of scores", clip)[0]
    clip = purse.find_clip("clip of scores", within, SHARES["clip of scores"], GAPS)
    total = purse.release("scores", lambda: held.sum("scores", clip)[: len(names)], clip, SHARES["scores"])
    scores = total / count
    scores[0] = 0.0  # the shared model less itself
    noise = purse.releases[-1].noise * clip / count
    seen.exchanges += 6
    return PrivatePilot(usual, scale, shared, names, pulls, ridges, level, scores, noise, steps, held, seen, began)


def fit_shared(seen: Asked, of: q.Linear, init: Params, pull: float, purse: Purse, seed: int) -> tuple[Params, int]:
    """(a shared model, in how many steps): each is the noised mean of clients' own steps towards their own models.

    What is noise in a mean is known, and is shrunken away (James and Stein): where it drowns everything, the model
    stays what it was.
    """
    flat, rebuild = ravel_pytree(jax.tree.map(np.zeros_like, init))
    model, clients = np.asarray(flat, np.float64), purse.clients
    as_params = lambda: jax.tree.map(np.asarray, rebuild(jnp.asarray(model, jnp.float32)))
    message = lambda clip: (as_params(), np.float32(pull), np.int32(seed), np.float32(clip))
    bits = lambda clip: seen.ask(lambda most: a.step_question(of, most, True), message(clip), q.STEPS * 0.75)
    clip = purse.find_clip("clip of steps", bits, SHARES["clip of steps"])
    share = SHARES["steps"]
    steps = purse.times(share, model.size, STEP_NOISE, MOST_STEPS)
    for turn in range(steps):
        step = lambda: seen.ask(lambda most: a.step_question(of, most, False), message(clip), q.STEPS * 0.75)
        mean = purse.release(f"steps {turn + 1}", step, clip, share / steps) / clients
        noise = purse.releases[-1].noise * clip / clients
        model = model + mean * shrink(mean, noise)
    return as_params(), steps


def shrink(mean: np.ndarray, noise: float) -> float:
    """What of a noised mean to keep, if each of its numbers has noise of this deviation.

    >>> shrink(np.array([3.0, 4.0]), 0.0), shrink(np.array([3.0, 4.0]), 5.0)
    (1.0, 0.0)
    """
    return float(max(0.0, 1 - mean.size * noise**2 / max(float(mean @ mean), 1e-300)))


class Weighed(NamedTuple):
    """Pooled weights of the chosen candidates; then of all predictors (`Told`) mean losses and errors, less those of
    the shared model, their covariances between clients, and the deviation of a mean that is noise."""

    weights: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    spread: np.ndarray  # [losses and errors, losses and errors]
    noise: float
    clip: float


def weigh_privately(pilot: PrivatePilot, chosen: list[int], purse: Purse) -> Weighed:
    """The mixture's weights by a few steps of EM, and what the chosen candidates and their mixtures are worth."""
    share, count = SHARES["weights"], pilot.level.told
    times = purse.times(share, len(chosen), WEIGHT_NOISE, MOST_WEIGHINGS)
    weights = np.full(len(chosen), 1 / len(chosen))
    for turn in range(times):
        ask = lambda w=weights: pilot.held.sum("weights", 1.0, chosen, w)[: len(chosen)]
        shares = np.maximum(purse.release(f"weights {turn + 1}", ask, 1.0, share / times), 1e-3)
        weights = shares / shares.sum()
    ask_of = lambda what, clip: pilot.held.sum(what, clip, chosen, weights)
    bits = lambda clip: ask_of("bits of outcomes", clip)[0]
    clip = purse.find_clip("clip of outcomes", bits, SHARES["clip of outcomes"], GAPS)
    outcomes = lambda: ask_of("outcomes", clip)[: a.OUTCOMES]
    total = purse.release("outcomes", outcomes, clip, SHARES["outcomes"]) / count
    noise = purse.releases[-1].noise * clip / count
    squares = lambda: ask_of("squares", clip)[: a.OUTCOMES**2]
    found = purse.release("squares", squares, clip**2, SHARES["squares"]) / count
    unsure = purse.releases[-1].noise * clip**2 / count
    spread = found.reshape(a.OUTCOMES, a.OUTCOMES)
    spread = (spread + spread.T) / 2 - np.outer(total, total)
    # By its own noise larger: rather too wide an interval than too narrow a one.
    spread = spread + unsure * np.eye(a.OUTCOMES)
    pilot.seen.exchanges += times + 6
    return Weighed(weights, total[: a.PREDICTORS], total[a.PREDICTORS :], spread, noise, clip)


def ask_own_share(pilot: PrivatePilot, of: q.Linear, pull: float, purse: Purse) -> float:
    """How much of a client's model its own data decide at this pull, on average."""
    rows = min(int(pilot.seen.sizes.max()), SPECTRUM_ROWS)
    ask = lambda: pilot.seen.engine.ask(a.share_question(of, rows), (pilot.shared, np.float32(pull)))
    found = purse.release("own share", ask, 1.0, SHARES["own share"])
    return float(np.clip(found / purse.clients, 0, 1))


def private_step(pilot: PrivatePilot, classes: int) -> float:
    """How long a training step may be, by the noised mean square of the rows."""
    longest = TOP_OF_LOG_LOSS * max(classes, 1) / (pilot.scale * a.USUAL_SQUARE + 1)
    return float(f"{min(longest / SHORTER, 1.0):.3g}")


def work_of(pilot: PrivatePilot) -> Work:
    """What the pilot has cost."""
    seconds = time.perf_counter() - pilot.began
    pace = pilot.seen.pace if math.isfinite(pilot.seen.pace) else 0.0
    return Work(pilot.seen.passes, pilot.seen.exchanges, seconds, pace)
