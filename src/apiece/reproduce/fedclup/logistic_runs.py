"""Logistic federations of one shape, and methods run on them: one compiled program for every radius, seed and lam."""

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.data.sources.synthetic import logistic
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import CATALOG
from apiece.protocol import Batch, Method
from apiece.theory.clup import constants

LEG = 500  # local steps between two looks at Local
CURVATURE = 0.25  # it gives a few hundred local steps; the least curvature of a typical client is a tenth of it


class Clients(NamedTuple):
    """x [clients, n, d], y [clients, n] in {0, 1}, the true models, and L = max_i lambda_max(X_i'X_i / n) / 4."""

    x: np.ndarray
    y: np.ndarray
    truth: np.ndarray
    smoothness: float


def draw(clients: int, examples: int, features: int, radius: float, seed: int) -> Clients:
    """Labels drawn, w_k = w_0 + radius u_k with |w_0| = |u_k| = 1 and sum_k u_k = 0.

    >>> draw(4, 10, 3, 0.5, 0).x.shape
    (4, 10, 3)
    """
    made = logistic(clients, examples, features, radius, held_out=1, seed=seed)
    x = made.train.x.reshape(clients, examples, features).astype(float)
    gram = np.einsum("cni,cnj->cij", x, x) / examples
    y = made.train.y.reshape(clients, examples).astype(float)
    return Clients(x, y, made.truth["personal"], float(np.linalg.eigvalsh(gram).max() / 4))


def thresholded(clients: Clients) -> Clients:
    """With the more probable label instead of a drawn one: every client's own true model separates its classes.

    >>> made = thresholded(draw(4, 10, 3, 0.5, 0))
    >>> bool((np.einsum("cni,ci->cn", made.x, made.truth)[made.y == 1] > 0).all())
    True
    """
    return clients._replace(y=(np.einsum("cni,ci->cn", clients.x, clients.truth) > 0).astype(float))


def log_loss(w: Any, batch: Batch, key: Any) -> Any:
    """Mean of ln(1 + exp(z)) - y z, z = w'x."""
    z = batch.x @ w
    return (batch.weight * (jax.nn.softplus(z) - batch.y * z)).sum() / batch.weight.sum()


class Bench:
    """The engines for federations of one shape, whose losses are all `smoothness`-smooth.

    `cohort` clients take part in a round of fed_clup, 0 for all. Its steps are the theory's; they need the mu of strong
    convexity, which logistic losses do not have, and get `CURVATURE` for it. With `steps`, so many local ones of size
    1/(lam + L), and gamma = 1/lam: the server takes the mean of the models, as the author's program does.
    """

    def __init__(self, like: Clients, cohort: int, smoothness: float, steps: int = 0) -> None:
        self.smoothness, self.steps = smoothness, steps
        options: dict[str, dict[str, Any]] = {
            "local": dict(lr=1 / smoothness, steps=LEG),
            "fed_avg": dict(steps=1),
            "fed_clup": dict(steps=steps) if steps else dict(smoothness=smoothness, convexity=CURVATURE),
        }
        self.engines = {
            name: Vectorized(
                _builder(name, fixed),
                *_flat(like),
                participation=Participation(size=cohort) if cohort and name == "fed_clup" else None,
                weights="uniform",
            )
            for name, fixed in options.items()
        }

    def fed_clup(self, clients: Clients, lam: float, looks: tuple[int, ...], seed: int = 0) -> np.ndarray:
        """Models [looks, clients, d] after these rounds, from zeros."""
        return self._follow("fed_clup", clients, {"lam": lam} | self._step_size(lam), looks, seed)

    def local_updates(self, lam: float) -> int:
        """How many local steps a client makes in a round of fed_clup."""
        return self.steps or int(constants(lam, self.smoothness, CURVATURE).steps)

    def _step_size(self, lam: float) -> dict[str, float]:
        return {"lr": 1 / (lam + self.smoothness)} if self.steps else {}

    def local(self, clients: Clients, looks: tuple[int, ...]) -> np.ndarray:
        """Models [looks, clients, d] of everybody alone after so many times `LEG` full gradients, from zeros."""
        return self._follow("local", clients, {}, looks, 0)

    def fed_avg(self, clients: Clients, rounds: int) -> np.ndarray:
        """The minimum of the mean loss [d]: with everybody and one local step, fed_avg is gradient descent on it."""
        rows = clients.x.reshape(-1, clients.x.shape[-1])
        pooled = np.linalg.eigvalsh(rows.T @ rows / len(rows)).max() / 4
        return self._follow("fed_avg", clients, {"lr": 1 / pooled}, (rounds,), 0)[0, 0]

    def _follow(
        self, name: str, clients: Clients, hyper: dict[str, float], looks: tuple[int, ...], seed: int
    ) -> np.ndarray:
        engine = copy.copy(self.engines[name])  # shares the compiled programs
        engine.train = engine.examples(*_flat(clients))
        count, _, features = clients.x.shape
        run, models = engine.start(lambda key: jnp.zeros(features), seed, hyper), []
        for leg in np.diff([0, *looks]).tolist():
            run = engine.advance(run, leg)
            models.append(engine.personal(run, np.arange(count)))
        return np.array(models)


def _builder(name: str, fixed: dict[str, Any]) -> Any:
    def build(hyper: dict[str, Any], round: Any) -> Method:
        return CATALOG[name](log_loss, batch=0, **fixed, **hyper)

    return build


def _flat(clients: Clients) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count, examples, features = clients.x.shape
    return clients.x.reshape(-1, features), clients.y.reshape(-1), np.arange(count + 1) * examples
