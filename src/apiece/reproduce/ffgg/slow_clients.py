"""FFGG's problems for slow clients, with many of them behind one engine, which waits or does not."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.engines.world.cohort import Participation
from apiece.engines.world.faults import Faults
from apiece.engines.world.pace import Pace
from apiece.methods import CATALOG
from apiece.protocol import Batch, Method, Params
from apiece.reproduce.ffgg.private_quadratics import Problems, Quadratics, loss, shared_and_apart, times

CLIENTS, ACTIVE, SHARED, PRIVATE, SMOOTHNESS = 16, 8, 10, 4, 1.0
PACE = Pace("given", times=(1.0,) * 8 + (10.0,) * 8, jitter="exponential")


def problems(repetitions: int) -> Problems:
    """About half of the curvatures are zero.

    >>> problems(2).j.shape
    (4, 16, 10, 10)
    """

    def half(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
        return np.where(rng.random(shape) < 0.5, rng.uniform(0.05, SMOOTHNESS, shape), 0)

    return shared_and_apart(repetitions, (CLIENTS, SHARED, PRIVATE), half)


def pull(made: Problems, k: int, theta: NDArray) -> float:
    """|F| of problem k."""
    return float(np.linalg.norm(times(made.j[k], theta - made.optima[k]).mean(0)))


def mean_square(made: Problems, k: int, theta: NDArray) -> float:
    """The mean over clients of |F_m|^2, of problem k."""
    return float((times(made.j[k], theta - made.optima[k]) ** 2).sum(-1).mean())


def best(made: Problems, k: int, weight: NDArray) -> NDArray:
    """Where the clients' weighted mean is zero."""
    return np.linalg.solve(np.tensordot(weight, made.j[k], 1), weight @ times(made.j[k], made.optima[k]))


class Trace(NamedTuple):
    """A run as it was looked at: when, and theta. Of one that did not wait: how late replies were, and whose."""

    clock: NDArray
    theta: NDArray
    delay: int = 0
    heard: Any = None  # replies merged, [clients]


class Federation:
    """All problems behind one engine: a client's only example holds its part of each, `problem` says which counts."""

    def __init__(self, f: Quadratics) -> None:
        self.f = f
        one_client_first = lambda part: np.swapaxes(part, 0, 1)
        self.x = tuple(map(one_client_first, (f.P, f.C, f.b)))
        self.y = tuple(map(one_client_first, (f.t, f.r)))

    def build(self, hyper: dict[str, Any], round: Any) -> Method:
        """FFGG on one of the problems, with exact inner solves."""
        pick = lambda leaf: leaf[:, jnp.asarray(hyper["problem"], int)]
        chosen = lambda batch: Batch(jax.tree.map(pick, batch.x), jax.tree.map(pick, batch.y), batch.weight)

        def judged(params: Params, batch: Batch, key: Any) -> Any:
            return loss(params, chosen(batch), key)

        how = dict(private="w", start="zero", inner_steps=1, inner_lr=1.0, batch=0)
        return CATALOG["ffgg"](judged, lr=hyper["lr"], **how)

    def late(self, policy: str, block: int) -> Asynchronous:
        """Nobody waits."""
        arrivals = Speeds(active=ACTIVE, policy=policy, pace=PACE)
        return Asynchronous(self.build, self.x, self.y, np.arange(CLIENTS + 1), arrivals=arrivals, block=block)

    def waiting(self, block: int) -> Vectorized:
        """Everybody of a cohort is waited for."""
        how: dict[str, Any] = dict(participation=Participation(size=ACTIVE), faults=Faults(pace=PACE), block=block)
        return Vectorized(self.build, self.x, self.y, np.arange(CLIENTS + 1), **how)

    def trace(self, engine: Asynchronous | Vectorized, problem: int, seed: int, rounds: int, lr: float) -> Trace:
        """A look after every block."""
        run = engine.start(lambda key: self.f.start(), seed, {"problem": float(problem), "lr": lr})
        clock, theta = [0.0], [np.zeros(SHARED)]
        for _ in range(rounds // engine.block):
            run = engine.advance(run, engine.block)
            clock.append(run.clock)
            theta.append(np.asarray(run.server["theta"]))
        if not isinstance(engine, Asynchronous):
            return Trace(np.array(clock), np.array(theta))
        journal = engine.arrivals.journal(seed, CLIENTS, rounds)
        heard = np.bincount(journal.client[journal.merge < rounds], minlength=CLIENTS)
        return Trace(np.array(clock), np.array(theta), delay_of(engine, seed, rounds), heard)


def delay_of(engine: Asynchronous, seed: int, rounds: int) -> int:
    """By how many versions the latest reply of a run will be late: a plan knows it before anybody has worked."""
    journal = engine.arrivals.journal(seed, CLIENTS, rounds)
    return int((journal.merge - journal.start)[journal.merge < rounds].max())
