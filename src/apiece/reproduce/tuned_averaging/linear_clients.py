"""Many linear clients with fewer examples than parameters: what every estimator comes to, and its risk at each client.

The closed forms of `apiece.theory.linear`, by one eigendecomposition a client: with X X' = U diag(e) U' and Z = U'X,
X'f(X X')X is Z'diag(f(e))Z for every f. Two hundred clients with four hundred features take seconds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from apiece.data.sources import synthetic
from apiece.theory.asymptotics import Spectrum, best_lam


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


class Turned(NamedTuple):
    """A client in the eigenvectors of its X X': its setting, the eigenvalues e, Z = U'X, and U'y."""

    setting: Setting
    e: np.ndarray
    z: np.ndarray
    y: np.ndarray


Shrink = Callable[[Turned], np.ndarray]  # a client -> what the eigenvalues are multiplied with


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
    truth = made.truth["center"], made.truth["personal"]
    return risks_of([setting] * clients, np.tile(values, (clients, 1)), *truth, list(zip(xs, ys, strict=True)), alpha)


def unlike_risks(
    kinds: Sequence[Setting], features: int, clients: int, seed: int, alpha: float = 0.05
) -> dict[str, np.ndarray]:
    """The same where so many clients of each kind learn together: name -> [kinds, clients].

    Kinds differ in size, covariance (its eigenvalues and, by a permutation, its eigenvectors), radius and noise: the
    covariate and label shifts of the paper. All share one centre, of the first one's norm.

    >>> kinds = [Setting("a", 2.0, 0.5, 1.0, 0.3), Setting("b", 4.0, 0.5, 2.0, 1.0)]
    >>> unlike_risks(kinds, features=16, clients=5, seed=0)["ftfa"].shape
    (2, 5)
    """
    rng = np.random.default_rng(seed)
    unit = lambda rows: rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    norm = kinds[0].norm
    center = norm * unit(rng.standard_normal(features))
    settings, values, personal, data = [], [], [], []
    for kind in kinds:
        spread, n = rng.permutation(kind.eigenvalues(features)), round(features / kind.gamma)
        for _ in range(clients):
            away = rng.standard_normal(features)
            theta = center + kind.radius * unit(away - away @ center / norm**2 * center)
            x = rng.standard_normal((n, features)) * np.sqrt(spread)
            settings.append(kind)
            values.append(spread)
            personal.append(theta)
            data.append((x, x @ theta + kind.noise * rng.standard_normal(n)))
    found = risks_of(settings, np.array(values), center, np.array(personal), data, alpha)
    return {name: samples.reshape(len(kinds), clients) for name, samples in found.items()}


def risks_of(
    settings: Sequence[Setting],
    values: np.ndarray,
    center: np.ndarray,
    personal: np.ndarray,
    data: Sequence[tuple[np.ndarray, np.ndarray]],
    alpha: float,
) -> dict[str, np.ndarray]:
    """Of clients with a setting, eigenvalues of the covariance [clients, d], a true model and (x, y) each."""
    ridge: Callable[[Callable[[Setting], float]], Shrink] = lambda lam: (
        lambda client: 1 / (client.e + len(client.e) * lam(client.setting))
    )
    lam = lambda setting: setting.lam
    around = lambda setting: best_lam(setting.gamma, setting.radius, setting.noise)
    alone = lambda setting: best_lam(setting.gamma, setting.rho, setting.noise)
    ridgeless, nothing = ridge(lambda setting: 0.0), lambda client: 0 * client.e
    with threadpool_limits(1):  # on matrices this small, several threads of BLAS wait for one another most of the time
        turned = [_turned(setting, x, y) for setting, (x, y) in zip(settings, data, strict=True)]
        pooled = _stationary(turned, lambda client: np.ones_like(client.e))
        inner = _stationary(turned, lambda client: (1 - alpha / len(client.e) * client.e) ** 2)
        moreau = _stationary(turned, ridge(lam))
        zero = np.zeros_like(center)
        ends: dict[str, tuple[np.ndarray, Shrink]] = {
            "fed_avg": (pooled, nothing),
            "ftfa": (pooled, ridgeless),
            "rtfa": (pooled, ridge(lam)),
            "maml_fl": (inner, ridgeless),
            "pfedme": (moreau, ridge(lam)),
            "local": (zero, ridgeless),
            "local_ridge": (zero, ridge(lam)),
            "true_ftfa": (center, ridgeless),
            "true_rtfa": (center, ridge(lam)),
            "true_best_rtfa": (center, ridge(around)),
            "best_rtfa": (pooled, ridge(around)),
            "best_local_ridge": (zero, ridge(alone)),
        }
        error = lambda end, client, spread, theta: spread @ (_tuned(client, *end) - theta) ** 2
        every = list(zip(turned, values, personal, strict=True))
        return {name: np.array([error(end, *client) for client in every]) for name, end in ends.items()}


def _turned(setting: Setting, x: np.ndarray, y: np.ndarray) -> Turned:
    e, u = np.linalg.eigh(x @ x.T)
    return Turned(setting, e, u.T @ x, u.T @ y)


def _stationary(clients: list[Turned], f: Shrink) -> np.ndarray:
    """(sum_i X_i'f(X_i X_i')X_i)^-1 sum_i X_i'f(X_i X_i') y_i: every centre there is, by its f."""
    left = sum((c.z.T * f(c)) @ c.z for c in clients)
    right = sum(c.z.T @ (f(c) * c.y) for c in clients)
    return np.linalg.solve(left, right)


def _tuned(client: Turned, start: np.ndarray, f: Shrink) -> np.ndarray:
    """start + X'f(X X') (y - X start): fine-tuned (f = 1/e) or ridge-tuned (f = 1/(e + n lam))."""
    return start + client.z.T @ (f(client) * (client.y - client.z @ start))
