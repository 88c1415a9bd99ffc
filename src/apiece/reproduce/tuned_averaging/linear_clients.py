"""Many linear clients with fewer examples than parameters: what every estimator comes to, and its risk at each client.

The closed forms of `apiece.theory.linear`, by one eigendecomposition a client: with X X' = U diag(e) U' and Z = U'X,
X'f(X X')X is Z'diag(f(e))Z for every f. Two hundred clients with four hundred features take seconds.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from apiece.data.sources import synthetic
from apiece.theory.asymptotics import Spectrum, best_lam

Shrink = Callable[[np.ndarray], np.ndarray]  # eigenvalues of X X' -> what they are multiplied with


class Setting(NamedTuple):
    """What a risk depends on: d / n, the ridge, the three lengths, and the covariance by eigenvalues and weights."""

    name: str
    gamma: float
    lam: float
    radius: float
    noise: float
    norm: float = 1.0
    values: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = (1.0,)

    @property
    def rho(self) -> float:
        """|theta_i|, the deviation being orthogonal to the centre."""
        return float(np.hypot(self.radius, self.norm))

    def eigenvalues(self, features: int) -> np.ndarray:
        """Of the covariance of so many features.

        >>> Setting("", 2.0, 1.0, 1.0, 1.0, values=(0.5, 2.0), weights=(0.25, 0.75)).eigenvalues(4).tolist()
        [0.5, 2.0, 2.0, 2.0]
        """
        ends = np.rint(np.cumsum(self.weights) * features).astype(int)
        return np.repeat(self.values, np.diff(ends, prepend=0))

    def spectrum(self) -> Spectrum:
        """As theory takes it."""
        return Spectrum.of(self.values, self.weights)


def risks(setting: Setting, features: int, clients: int, seed: int, alpha: float = 0.05) -> dict[str, np.ndarray]:
    """The squared error of each estimator at each client, weighted by the covariance: name -> [clients].

    Besides the seven: `true_...` knows the true centre, `best_...` has lam* instead of lam, `true_best_...` both.
    `alpha` is MAML-FL's inner step.

    >>> found = risks(Setting("", 2.0, 0.5, 1.0, 0.3), features=20, clients=30, seed=0)
    >>> len(found), found["rtfa"].shape
    (12, (30,))
    """
    n, values = round(features / setting.gamma), setting.eigenvalues(features)
    made = synthetic.linear(
        clients,
        n,
        features,
        setting.radius,
        setting.noise,
        setting.norm,
        values,
        held_out=0,
        dtype="float64",
        seed=seed,
    )
    xs, ys = made.train.x.reshape(clients, n, features), made.train.y.reshape(clients, n)
    with threadpool_limits(1):  # on matrices this small, several threads of BLAS wait for one another most of the time
        return _risks(setting, made.truth, [_turned(x, y) for x, y in zip(xs, ys, strict=True)], alpha)


def _risks(
    setting: Setting, truth: dict[str, np.ndarray], turned: list["Turned"], alpha: float
) -> dict[str, np.ndarray]:
    n, features = turned[0].z.shape
    lam, values = setting.lam, setting.eigenvalues(features)
    ridge = lambda lam: lambda e: 1 / (e + n * lam)
    pooled = _stationary(turned, lambda e: np.ones_like(e))
    around = best_lam(setting.gamma, setting.radius, setting.noise)
    alone = best_lam(setting.gamma, setting.rho, setting.noise)
    zero, ridgeless, nothing = np.zeros(features), ridge(0.0), lambda e: 0 * e
    ends: dict[str, tuple[np.ndarray, Shrink]] = {
        "fed_avg": (pooled, nothing),
        "ftfa": (pooled, ridgeless),
        "rtfa": (pooled, ridge(lam)),
        "maml_fl": (_stationary(turned, lambda e: (1 - alpha / n * e) ** 2), ridgeless),
        "pfedme": (_stationary(turned, ridge(lam)), ridge(lam)),
        "local": (zero, ridgeless),
        "local_ridge": (zero, ridge(lam)),
        "true_ftfa": (truth["center"], ridgeless),
        "true_rtfa": (truth["center"], ridge(lam)),
        "true_best_rtfa": (truth["center"], ridge(around)),
        "best_rtfa": (pooled, ridge(around)),
        "best_local_ridge": (zero, ridge(alone)),
    }
    error = lambda end, client, theta: values @ (_tuned(client, *end) - theta) ** 2
    pairs = list(zip(turned, truth["personal"], strict=True))
    return {name: np.array([error(end, *pair) for pair in pairs]) for name, end in ends.items()}


class Turned(NamedTuple):
    """A client in the eigenvectors of its X X': the eigenvalues e, Z = U'X, and U'y."""

    e: np.ndarray
    z: np.ndarray
    y: np.ndarray


def _turned(x: np.ndarray, y: np.ndarray) -> Turned:
    e, u = np.linalg.eigh(x @ x.T)
    return Turned(e, u.T @ x, u.T @ y)


def _stationary(clients: list[Turned], f: Shrink) -> np.ndarray:
    """(sum_i X_i'f(X_i X_i')X_i)^-1 sum_i X_i'f(X_i X_i') y_i: every centre there is, by its f."""
    left = sum((c.z.T * f(c.e)) @ c.z for c in clients)
    right = sum(c.z.T @ (f(c.e) * c.y) for c in clients)
    return np.linalg.solve(left, right)


def _tuned(client: Turned, start: np.ndarray, f: Shrink) -> np.ndarray:
    """start + X'f(X X') (y - X start): fine-tuned (f = 1/e) or ridge-tuned (f = 1/(e + n lam))."""
    return start + client.z.T @ (f(client.e) * (client.y - client.z @ start))
