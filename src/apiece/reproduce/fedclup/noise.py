"""How near FedCLUP comes with mini-batches: a ball around the solution, whose size theory bounds."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from apiece.methods import CATALOG
from apiece.models import objective, quadratic
from apiece.report.figure import Panel
from apiece.reproduce.fedclup.problem import Problem, Swept, problem, solution, together
from apiece.reproduce.repeat import repeated
from apiece.reproduce.verdict import Claim, effect, mean_of
from apiece.theory import clup

LAMS, MU, BATCH, EXAMPLES, SPREAD = (0.1, 1.0, 10.0), 0.5, 2, 64, 1.0
ROUNDS, LATE = 60, 30


def mini_batches(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """|x - x*|^2 in the last rounds over the bound, for gradients whose noise has the same variance everywhere."""
    p = equal_curvatures(together([problem(s, clients=10, features=5, mu=MU) for s in range(seeds)]))
    noise = np.random.default_rng(0).normal(0, SPREAD, (*p.b.shape[:2], EXAMPLES, p.b.shape[-1]))
    noise -= noise.mean(2, keepdims=True)  # so that the solution is that of p
    variance = float(np.sum(noise**2, -1).mean(-1).max())  # of one example's gradient, at the noisiest client
    lams = np.repeat(LAMS, seeds)
    lr, ball = clup.noise_ball(lams, 1.0, MU, variance, BATCH, p.b.shape[1])
    every = Problem(*(np.concatenate([part] * len(LAMS)) for part in p))
    away = distances(every, np.concatenate([noise] * len(LAMS)), lams, lr)
    rows = []
    for lam, shares in zip(LAMS, (away[:, LATE:].mean(1) / ball).reshape(len(LAMS), -1), strict=True):
        share = mean_of(shares)
        name = f"batches of {BATCH}, lam = {lam:g}: squared distance to the solution, over the proved ball's"
        rows.append(effect(name, "below 1", share, below=1, source="theory"))
    return rows, []


def equal_curvatures(p: Problem) -> Problem:
    """Everybody has the first client's: only for such clients is it proved that noise averages out over clients."""
    h = np.broadcast_to(p.h[:, :1], p.h.shape)
    return p._replace(h=h, b=np.einsum("fcij,fcj->fci", h, p.truth))


def distances(p: Problem, noise: np.ndarray, lam: np.ndarray, lr: np.ndarray) -> np.ndarray:
    """[runs, rounds]: |x - x*|^2, with gamma = 1/(2 L_g) and as many more steps as lr is smaller than without noise."""
    constants = clup.constants(lam, 1.0, MU)
    steps = np.ceil(constants.steps * constants.lr / lr).astype(int)
    loss = objective(quadratic(p.b.shape[-1]), "custom").loss
    x = repeated(
        lambda hyper, round: CATALOG["fed_clup"](loss, batch=BATCH, **hyper),
        jnp.zeros(p.b.shape[-1]),
        np.repeat(p.h[:, :, None], EXAMPLES, axis=2),
        p.b[:, :, None] + noise,
        lambda x, models, given: x,
        rounds=ROUNDS,
        hyper=dict(lam=lam, gamma=constants.gamma, lr=lr, steps=steps),
    )
    return np.sum((x - solution(p, lam)[0][:, None]) ** 2, -1)
