"""Linear clients with held-out examples, and both ways to choose lam on them: fixed, and climbing a grid.

Runs are laid side by side: every radius, seed and lam of the fixed runs is one compiled program, the climbs another.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece.methods import CATALOG
from apiece.models import objective, quadratic
from apiece.protocol import Batch, Method
from apiece.reproduce.repeat import repeated

GRID = (0.01, 0.05, 0.2, 1.0, 5.0)
CLIENTS, TRAIN, HELD, FEATURES = 20, 40, 20, 6
MU, L = 0.05, 1.0
ALONE_STEPS = 700  # (1 - mu/L)^700 is below 1e-15: the local optima
NO_PULL = 1e-12  # fed_clup with this lam is everybody alone, and then x the mean of the w_i


def federation(seed: int, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x [clients, 60, d], y, true models); the last 20 rows of every client are held out.

    w_i = w_0 + dev_i with sum dev_i = 0 and max |dev_i| = radius; the training rows have an exact spectrum.

    >>> x, y, w = federation(0, 1.0)
    >>> np.linalg.eigvalsh(x[3, :40].T @ x[3, :40] / 40)[[0, -1]].round(12).tolist()
    [0.05, 1.0]
    """
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(FEATURES)
    away = rng.standard_normal((CLIENTS, FEATURES))
    away -= away.mean(0)
    personal = center + away * radius / np.linalg.norm(away, axis=1).max()
    root = np.sqrt(np.geomspace(MU, L, FEATURES))[:, None]
    x, y = np.zeros((CLIENTS, TRAIN + HELD, FEATURES)), np.zeros((CLIENTS, TRAIN + HELD))
    for i, w in enumerate(personal):
        basis = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0]
        z = math.sqrt(TRAIN) * np.linalg.qr(rng.standard_normal((TRAIN, FEATURES)))[0]
        x[i, :TRAIN] = z @ (root * basis.T)
        y[i, :TRAIN] = x[i, :TRAIN] @ w + rng.standard_normal(TRAIN)
        x[i, TRAIN:] = rng.standard_normal((HELD, FEATURES)) @ (root * basis.T)
        y[i, TRAIN:] = x[i, TRAIN:] @ w + rng.standard_normal(HELD)
    return x, y, personal


def _clup(hyper: dict[str, Any], round: Any) -> Method:
    """FedCLUP by theory, after a round of everybody's own training; or, where hyper["alone"] is 0, of nothing."""
    loss = objective(quadratic(FEATURES), "custom").loss
    first = CATALOG["fed_clup"](loss, lam=NO_PULL, steps=ALONE_STEPS, lr=hyper["alone"] / L, batch=0)
    then = CATALOG["fed_clup"](loss, lam=hyper["lam"], smoothness=L, convexity=MU, batch=0)
    in_turn = lambda mine, yours: lambda *given: lax.cond(round == 0, mine, yours, *given)
    return then._replace(local=in_turn(first.local, then.local), merge=in_turn(first.merge, then.merge))


def fixed_runs(x: np.ndarray, y: np.ndarray, truth: np.ndarray, rounds: int) -> tuple[np.ndarray, ...]:
    """Errors and held-out losses from local optima, and errors from zeros, [radii, lam, seeds, rounds] each; all in one
    program."""
    radii, seeds, lams = *x.shape[:2], len(GRID)
    each = lambda part: np.broadcast_to(part[:, None], (radii, lams, *part.shape[1:])).reshape(-1, *part.shape[2:])
    both = lambda part: np.concatenate([each(part), each(part)])
    x, y, truth = both(x), both(y), both(truth)
    lam = np.tile(np.repeat(GRID, seeds), 2 * radii)
    alone = np.repeat([1.0, 0.0], radii * lams * seeds)

    def look(server: Any, models: Any, given: tuple) -> tuple:
        truth, x, y = given
        residual = jnp.einsum("cnd,cd->cn", x, models) - y
        return ((models - truth) ** 2).sum(-1).mean(), 0.5 * (residual**2).mean()

    # w'Hw/2 - b'w is |Xw - y|^2/(2n) up to a constant, at a tenth of the cost.
    h = np.einsum("rcni,rcnj->rcij", x[:, :, :TRAIN], x[:, :, :TRAIN]) / TRAIN
    b = np.einsum("rcni,rcn->rci", x[:, :, :TRAIN], y[:, :, :TRAIN]) / TRAIN
    error, judged = repeated(
        _clup,
        jnp.zeros(FEATURES),
        h[:, :, None],
        b[:, :, None],
        look,
        rounds=rounds + 1,
        given=(truth, x[:, :, TRAIN:], y[:, :, TRAIN:]),
        hyper={"lam": lam, "alone": alone},
    )
    error, judged = (part[:, 1:].reshape(2, radii, lams, seeds, rounds) for part in (error, judged))
    return error[0], judged[0], error[1]


def _loss(w: Any, batch: Batch, key: Any) -> Any:
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def dynamic_runs(
    x: np.ndarray, y: np.ndarray, truth: np.ndarray, rounds: int, alone: int = ALONE_STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Errors and places on the grid, [radii, seeds, rounds]; one round more than is shown: everybody alone.

    `alone`: local steps of that round; 0 is a cold start.
    """
    options = dict(grid=GRID, validation=HELD / (TRAIN + HELD), alone_steps=alone, batch=0)
    build = lambda hyper, round: CATALOG["dynamic_lambda"](_loss, smoothness=L, convexity=MU, **options)
    look = lambda server, models, truth: (((models - truth) ** 2).sum(-1).mean(), server.stage)
    flat = lambda part: part.reshape(-1, *part.shape[2:])
    seen = repeated(build, jnp.zeros(FEATURES), flat(x), flat(y), look, rounds=rounds + 1, given=flat(truth))
    error, stage = (part[:, 1:].reshape(*x.shape[:2], -1) for part in seen)
    return error, stage
