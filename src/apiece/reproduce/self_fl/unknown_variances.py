"""Self-FL when variances have to be estimated: linear regressions whose true models lie a known distance apart."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from apiece.methods import CATALOG
from apiece.reproduce.repeat import repeated
from apiece.reproduce.verdict import Claim, effect, mean_of, ratio_of, within

CLIENTS, FEATURES, MOST = 20, 10, 60


class Regressions(NamedTuple):
    """Padded to 60 examples a client, [repetitions, clients, ...]; `alone`: the least-squares fits' squared error."""

    x: np.ndarray
    y: np.ndarray
    sizes: np.ndarray
    models: np.ndarray
    spread: np.ndarray
    alone: np.ndarray


class Found(NamedTuple):
    """Of each repetition: squared errors of personal and shared models; the estimated over the true spread."""

    own: np.ndarray
    shared: np.ndarray
    spread: np.ndarray


def regressions(spreads: tuple[float, ...], seeds: range) -> Regressions:
    """Noise 1; true models `spread` apart in each of ten coordinates; 20 to 60 examples a client.

    >>> regressions((0.2,), range(2)).x.shape
    (2, 20, 60, 10)
    """
    rows = [_one(spread, seed) for spread in spreads for seed in seeds]
    return Regressions(*(np.stack(column) for column in zip(*rows, strict=True)))


def _one(spread: float, seed: int) -> Regressions:
    rng = np.random.default_rng(seed)
    models = rng.standard_normal(FEATURES) + spread * rng.standard_normal((CLIENTS, FEATURES))
    sizes = rng.integers(20, MOST + 1, CLIENTS)
    x, y = np.zeros((CLIENTS, MOST, FEATURES)), np.zeros((CLIENTS, MOST))
    for m, n in enumerate(sizes):
        x[m, :n] = rng.standard_normal((n, FEATURES))
    for m, n in enumerate(sizes):
        y[m, :n] = x[m, :n] @ models[m] + rng.standard_normal(n)
    fits = [np.linalg.lstsq(x[m, :n], y[m, :n], rcond=None)[0] for m, n in enumerate(sizes)]
    return Regressions(x, y, sizes, models, np.array(spread), np.mean(np.sum((fits - models) ** 2, axis=1)))


def squares(w: Any, batch: Any, key: Any) -> Any:
    """-log N(y; w'x, 1) but for a constant, a mean over the examples."""
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def fitted(data: Regressions, rounds: int, **options: Any) -> Found:
    """Self-FL with these options after so many rounds with everybody."""
    error = lambda found, models: jnp.sum((found - models) ** 2, axis=-1).mean()
    found = repeated(
        lambda hyper, round: CATALOG["self_fl"](squares, population=CLIENTS, **options),
        jnp.zeros(FEATURES),
        data.x,
        data.y,
        lambda server, own, models: (error(own, models), error(server.x, models), server.spread),
        rounds=rounds,
        every=rounds,
        sizes=data.sizes,
        weight=data.sizes,
        given=data.models,
    )
    own, shared, spread = (column[:, 0] for column in found)
    return Found(own, shared, spread / data.spread**2)


def estimates() -> list[Claim]:
    """Regressions with models 0.2 or 1 apart, variances watched over rounds as published, or bootstrapped."""
    data = regressions((0.2, 1.0), range(3))
    watched = dict(variance="welford", rule="paper", batch=10, l_max=40, lr=0.1)
    found = fitted(data, 60, **watched)
    wide = data.spread == 1
    ratio, kept = ratio_of(found.own[wide], data.alone[wide]), mean_of(found.spread[wide])
    claims = [
        effect("watched variances: estimated over true spread, true models 1 apart, to a factor of 2", "1", kept,
               above=0.5, below=2),
        effect("watched variances, 1 apart: own squared error over training alone", "below 1", ratio, below=1),
    ]  # fmt: skip
    for apart, wanted in ((0.2, 0.328), (1.0, 7.257)):
        own = found.own[data.spread == apart].mean()
        name = f"watched variances, {apart:g} apart: own squared error"
        claims.append(within(name, wanted, own, 0.1, source="reference"))
    data = regressions((0.05, 0.2, 1.0), range(4))
    refitted = dict(augmented=True, batch=0, tune_lr=0.2, tune_steps=300, lr=0.02, l_max=400)
    for rule, numbers in (("bayes", (0.0393, 0.258, 0.444)), ("paper", (0.0393, 0.347, 1.80))):
        found = fitted(data, 2, rule=rule, **refitted)
        for apart, wanted in zip((0.05, 0.2, 1.0), numbers, strict=True):
            own = found.own[data.spread == apart].mean()
            name = f"bootstrapped variances, rule {rule}, {apart:g} apart: own squared error"
            claims.append(within(name, wanted, own, 0.1, source="reference"))
    return [*claims, within("the regressions: own squared error alone", 0.420, data.alone.mean(), 0.01, 0, "reference")]
