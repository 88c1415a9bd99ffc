"""Clients that estimate a mean each, around a common centre: their draws, and the catalog's methods on them.

theta_m ~ N(1.6, spread), z_m ~ N(theta_m, variance_m), variance_m = 0.1 / n_m. A Gaussian client's n_m observations
enter its likelihood only through their mean z_m and its precision 1 / variance_m, so a client is one example here.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import Build
from apiece.methods import CATALOG
from apiece.protocol import Method
from apiece.reproduce.repeat import repeated
from apiece.reproduce.verdict import Claim, mean_of, within
from apiece.theory.formulas import precision

CENTRE, NOISE, CLIENTS, DRAWN = 1.6, 0.1, 20, 200
LR, STEPS = 1e-4, 50
CASES = {1: (0.001, 10, 20), 2: (1.0, 10, 200)}  # the variance between clients; the fewest and the most observations


class Clients(NamedTuple):
    """[repetitions, clients] each: true and estimated means, the estimates' variances, numbers of observations;
    [repetitions]: the variance between clients; [repetitions, rounds, clients]: who takes part.
    """

    theta: np.ndarray
    z: np.ndarray
    variance: np.ndarray
    sizes: np.ndarray
    spread: np.ndarray
    present: np.ndarray


def drawn(case: int, share: float, repetitions: int, rounds: int) -> Clients:
    """The first of the 200 repetitions of a setting: every share has the same clients, and other ones take part.

    >>> drawn(1, 0.1, 3, 5).present.sum(axis=2).tolist()[0]
    [2, 2, 2, 2, 2]
    """
    rng = np.random.default_rng(0)
    spread, fewest, most = CASES[case]
    shape, active = (DRAWN, CLIENTS), max(int(share * CLIENTS), 1)
    sizes = rng.integers(fewest, most + 1, shape)
    theta = CENTRE + np.sqrt(spread) * rng.standard_normal(shape)
    z = theta + np.sqrt(NOISE / sizes) * rng.standard_normal(shape)
    present = np.zeros((DRAWN, rounds, CLIENTS), bool)
    for t in range(rounds):
        np.put_along_axis(present[:, t], np.argsort(rng.random(shape), axis=1)[:, :active], True, axis=1)
    everything = Clients(theta, z, NOISE / sizes, sizes, np.full(DRAWN, spread), present)
    return Clients(*(column[:repetitions] for column in everything))


def joined(parts: Sequence[Clients]) -> Clients:
    """The repetitions of several settings as one list."""
    return Clients(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def matched(name: str, wanted: float, samples: np.ndarray) -> Claim:
    """A mean over the first n of 200 repetitions is off theirs by chance, se sqrt(1 - n/200); the table by rounding."""
    found = mean_of(samples)
    by = 1e-4 + 3 * found.error * np.sqrt(1 - len(samples) / DRAWN)
    return within(name, wanted, found.value, by=by, source="reference")


def likelihood(w: Any, batch: Any, key: Any) -> Any:
    """-log N(y; w, 1/x) but for a constant: y the client's own estimate, x its precision."""
    return (batch.weight * batch.x * (w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def played(build: Build, clients: Clients, look: Callable, rounds: int) -> Any:
    """What `look(server's model, everybody's models, true means)` sees after the last round, from 0 on."""
    curvature = 1 / clients.variance
    found = repeated(
        build,
        jnp.zeros(()),
        curvature[:, :, None],
        clients.z[:, :, None],
        lambda server, models, theta: look(getattr(server, "x", server), models, theta),
        rounds=rounds,
        every=rounds,
        present=clients.present,
        weight=clients.sizes,
        given=clients.theta,
        # The best step for curvatures between these two, by which clients find optima and proximal points.
        hyper={
            "which": np.arange(len(clients.z)),
            "spread": clients.spread,
            "flattest": curvature.min(axis=1),
            "steepest": curvature.max(axis=1),
        },
    )
    return tree.take(found, np.s_[:, 0])


def self_fl(clients: Clients, rule: str, lr: float = LR, l_max: int = 600, tune_steps: int = 80, **how: Any) -> Build:
    """With known variances; they differ from one repetition to the next, so the server's table is filled in here."""
    table = jnp.asarray(clients.variance)
    blank = np.ones(clients.z.shape[1])

    def build(hyper: dict[str, Any], round: Any) -> Method:
        spread, own = hyper["spread"], table[hyper["which"]]
        options = dict(rule=rule, lr=lr, l_max=l_max, tune_steps=tune_steps, tune_lr=_pace(hyper, 0.0), batch=0, **how)
        base = CATALOG["self_fl"](likelihood, variances=blank, spread=spread, **options)

        def init(params: Any, key: Any) -> Any:
            return base.init(params, key)._replace(variances=own, total=precision(spread, own).sum())

        def enroll(params: Any, view: Any, data: Any, key: Any) -> Any:
            return base.enroll(params, view._replace(x=params), data, key)  # everybody starts at 0, whenever it comes

        return base._replace(init=init, enroll=enroll)

    return build


def fed_avg(hyper: dict[str, Any], round: Any) -> Method:
    """A client's own model is what it last made of the shared one."""
    base = CATALOG["fed_avg"](likelihood, steps=STEPS, lr=LR, batch=0)

    def local(model: Any, x: Any, data: Any, key: Any) -> tuple:
        reply = base.local((), x, data, key)[1]
        return tree.add(x, reply), reply

    return base._replace(
        local=local, enroll=lambda params, x, data, key: params, personal=lambda model, x, data, key: model
    )


def ditto(hyper: dict[str, Any], round: Any) -> Method:
    """The paper writes the pull without the step size: 0.01 there is lr lam here."""
    base = CATALOG["ditto"](likelihood, lam=0.01 / LR, steps=STEPS, lr=LR, batch=0)
    return base._replace(enroll=lambda params, x, data, key: params)


def pfedme(hyper: dict[str, Any], round: Any) -> Method:
    """With an inner solve that is all but exact."""
    inner = dict(prox_steps=20, prox_lr=_pace(hyper, 15.0))
    return CATALOG["pfedme"](likelihood, lam=15.0, steps=STEPS, lr=LR, batch=0, **inner)


def maml_fl(hyper: dict[str, Any], round: Any) -> Method:
    """Per-FedAvg with the exact gradient and one step of personalization."""
    tune = dict(tune_lr=LR, tune_epochs=None, tune_steps=1)
    return CATALOG["maml_fl"](likelihood, order="exact", steps=STEPS, lr=LR, batch=0, **tune)


def _pace(hyper: dict[str, Any], lam: float) -> Any:
    return 2 / (hyper["flattest"] + hyper["steepest"] + 2 * lam)
