"""A hundred coins whose chances are estimated together: tosses, and how methods are played on a stream of them.

Client i's example is its whole row of tosses; the loss of round t is half the squared distance to the t-th, so that
every round has a fresh sample, as in the paper.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from apiece.engines.contact import Build
from apiece.engines.engine import RunState
from apiece.engines.simulation.vectorized import Vectorized
from apiece.estimate import similarity
from apiece.methods import CATALOG
from apiece.methods.all_for_all import Mixing
from apiece.protocol import Method
from apiece.theory.all_for_all import sharing, steady_step
from apiece.theory.formulas import steps_to_a_quarter

CLIENTS, TOSSES, NOISE = 100, 1000, 0.25
LOOKS = (10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)  # tosses a client


def chances_of(repetition: int) -> np.ndarray:
    """Uniform on [0, 1]."""
    return np.random.default_rng(100 + repetition).random(CLIENTS)


class Tosses(NamedTuple):
    """[tosses, clients]; the true chances; b, half the squared differences of what is believed of the chances."""

    samples: np.ndarray
    chances: np.ndarray
    b: np.ndarray


def tossed(seed: int, chances: np.ndarray, noise: float = 0.0) -> Tosses:
    """What is believed of the chances is up to `noise` off.

    >>> tossed(0, np.array([0.0, 1.0])).samples[:2].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    rng = np.random.default_rng(seed)
    believed = chances + rng.uniform(-noise, noise, len(chances)) if noise else chances
    samples = (rng.random((TOSSES, len(chances))) < chances).astype(float)
    return Tosses(samples, chances, (believed[:, None] - believed[None]) ** 2 / 2)


def toss(t: Any) -> Callable:
    """The loss of round t."""
    return lambda w, batch, key: (batch.weight * (w - batch.y[:, t]) ** 2).sum() / (2 * batch.weight.sum())


def error(models: np.ndarray, chances: np.ndarray) -> Any:
    """(1/N) sum_i (x_i - p_i)^2 / 2.

    >>> float(error(np.array([0.0, 1.0]), np.array([0.5, 0.5])))
    0.125
    """
    return np.mean((models - chances) ** 2, axis=-1) / 2


# Methods as they are, from 1/2 on.


def followed(build: Build, runs: Sequence[Tosses], looks: Sequence[int] = LOOKS, watch: Callable = lambda done: None):
    """[runs, looks, clients]: everybody's models; the number of the run is the hyper-parameter `which`."""
    engine, found = _engine(build, runs[0]), []
    for which, tosses in enumerate(runs):
        watch(which)
        engine.train = _examples(engine, tosses)
        run, models = engine.start(lambda key: jnp.array(0.5), 0, {"which": float(which)}), []
        for look in looks:
            run = engine.advance(run, look - run.round)
            models.append(engine.personal(run, np.arange(CLIENTS), group=CLIENTS))
        found.append(models)
    return np.array(found)


def _engine(build: Build, tosses: Tosses) -> Vectorized:
    x, y = np.zeros(CLIENTS), np.ascontiguousarray(tosses.samples.T)
    return Vectorized(build, x, y, np.arange(CLIENTS + 1), block=100, mode="vmap")


def _examples(engine: Vectorized, tosses: Tosses) -> Any:
    return engine.examples(np.zeros(CLIENTS), np.ascontiguousarray(tosses.samples.T), np.arange(CLIENTS + 1))


def alone(hyper: dict[str, Any], round: Any) -> Method:
    """With the step 1/t, everybody's running mean."""
    return CATALOG["local"](toss(round), steps=1, lr=1 / (round + 1), batch=0)


def as_one(hyper: dict[str, Any], round: Any) -> Method:
    """With the step 1/t, the running mean of all."""
    return CATALOG["fed_avg"](toss(round), steps=1, lr=1 / (round + 1), batch=0)


def in_phases(runs: Sequence[Tosses], length: float = 1.0) -> Build:
    """All-for-all with the theory's steps and phases: L = mu = 1, sigma^2 = 1/4, eps from 1/2 on.

    length: phases so many times as long, with the same steps.
    """
    every = jnp.asarray(np.stack([tosses.b for tosses in runs]))
    # A phase has ln 4 / (mu step) rounds, and the step goes by mu / sigma^2.
    theory = dict(eps=0.5, smoothness=1.0, convexity=1 / length, noise=NOISE / length)
    return lambda hyper, round: CATALOG["all_for_all"](
        toss(round), steps=1, batch=0, bias=every[jnp.int32(hyper["which"])], **theory
    )


def balanced(runs: Sequence[Tosses]) -> Build:
    """All-for-all with eps_t = sigma^2 S(eps_t) / (N t) in round t and the step min{1/(2 lambda_max), 1/(t + 2)}."""
    every = jnp.asarray(np.stack([tosses.b for tosses in runs]))
    plans = [balance(tosses.b) for tosses in runs]
    largest = [{e: sharing(tosses.b, e).largest for e in set(plan)} for tosses, plan in zip(runs, plans, strict=True)]
    eps = jnp.asarray(np.stack(plans))
    top = jnp.asarray([[of[e] for e in plan] for of, plan in zip(largest, plans, strict=True)])

    def build(hyper: dict[str, Any], round: Any) -> Method:
        i = jnp.int32(hyper["which"])
        lr = jnp.minimum(0.5, top[i, round] / (round + 2))  # the method divides by lambda_max
        # It looks at eps anew only when it halves it: it may, in every round, and the doubling makes up for that.
        doubled = eps[i, round] * 2.0 ** jnp.asarray(round)
        return CATALOG["all_for_all"](toss(round), steps=1, batch=0, bias=every[i], eps=doubled, halve_every=1, lr=lr)

    return build


def balance(b: np.ndarray) -> np.ndarray:
    """eps of every round: the smallest, of 120, that is at least sigma^2 S(eps) / (N t)."""
    grid = np.geomspace(1e-7, 1.0, 120)
    lonely = np.array([np.sum(1 / (b <= eps / 2).sum(axis=1)) for eps in grid])
    enough = grid >= NOISE * lonely / len(b) / np.arange(1, TOSSES + 1)[:, None]
    return grid[np.where(enough.any(axis=1), enough.argmax(axis=1), len(grid) - 1)]


# With b estimated from the very tosses.


def estimated(
    runs: Sequence[Tosses],
    how: str,
    *,
    restart: bool = True,
    common: bool = True,
    warm: int = 5,
    eps: float = 0.125,
    looks: Sequence[int] = LOOKS,
) -> np.ndarray:
    """[runs, looks]: errors of all-for-all whose b is estimated anew at each phase, from the means so far.

    how: "plain", "unbiased" or "upper" (`similarity.separation`), or "oracle", the true b. restart: each phase starts
    at Lambda (means so far), else where the last one stopped. common: the first starts at the mean of all.
    """
    engine, found = _resting(), []
    for tosses in runs:
        engine.train = _examples(engine, tosses)
        found.append(_phases(engine, tosses, how, restart, common, warm, eps, looks))
    return np.array(found)


@functools.cache
def _resting() -> Vectorized:
    """One compiled program for all estimates."""
    return _engine(_at_rest, tossed(0, clusters()))


def _at_rest(hyper: dict[str, Any], round: Any) -> Method:
    """All-for-all that mixes as its server's state says: nobody's b is looked at after the first round of a phase."""
    return CATALOG["all_for_all"](toss(round), steps=1, batch=0, bias=np.zeros((CLIENTS, CLIENTS)), lr=hyper["lr"])


def _phases(engine: Vectorized, tosses: Tosses, how: str, restart: bool, common: bool, warm: int, eps: float, looks):
    sums = np.cumsum(tosses.samples, axis=0)
    x = sums[warm - 1] / warm
    x = np.full(CLIENTS, x.mean()) if common else x
    run = dataclasses.replace(engine.start(lambda key: jnp.array(0.5), 0, {"lr": 1.0}), round=warm)
    errors = []
    while run.round < looks[-1]:
        mean = sums[run.round - 1] / run.round
        b = tosses.b if how == "oracle" else believed(mean, run.round, how)
        filter, shared = similarity.neighbours(b, eps), sharing(b, eps)
        if restart:
            x = np.asarray(similarity.combine(filter, mean))
        step = steady_step(shared, eps, smoothness=1.0, convexity=1.0, noise=NOISE)
        numbers = jnp.asarray(shared.mixing), jnp.asarray(shared.largest), jnp.ones(())
        run = _mixed(run, x, Mixing(*numbers, run.server.mixing.chosen))
        run = dataclasses.replace(run, hyper={"lr": step * shared.largest})
        end = run.round + int(steps_to_a_quarter(1.0, step))
        while run.round < min(end, looks[-1]):
            stop = min(end, next(look for look in looks if look > run.round))
            run = engine.advance(run, stop - run.round)
            x = np.asarray(run.server.x[:-1])
            if stop in looks:
                errors.append(error(x, tosses.chances))
        eps = eps / 2
    return errors


def believed(mean: np.ndarray, tosses: int, how: str) -> np.ndarray:
    """b from the means of so many tosses each."""
    errors = np.maximum(mean * (1 - mean), 0.5 / tosses) / (tosses - 1)
    return np.asarray(similarity.gradient_bias(mean, errors, how=how))


def _mixed(run: RunState, x: np.ndarray, mixing: Mixing) -> RunState:
    """The run with these models, in the midst of a phase that mixes like this."""
    models = jnp.asarray(np.append(x, x.mean()))
    return dataclasses.replace(run, server=run.server._replace(x=models, mixing=mixing, spent=jnp.int32(1)))


def clusters() -> np.ndarray:
    """Four kinds of coins, 25 of each."""
    return np.repeat([0.1, 0.35, 0.65, 0.9], CLIENTS // 4)
