"""Clients with quadratic losses whose model has a shared part theta and a private part w, as FFGG's examples have.

f(theta, w) = theta'P theta/2 + theta'C w + w'diag(b)w/2 - t'theta - r'w. The private curvature is diagonal: each
client's w is measured along the eigenvectors of its own curvature. Gradient descent and conjugate gradients from zero
do the same in any such rotation, and a step then costs k numbers and not k^2. Nobody else sees a client's w.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apiece.protocol import Batch, Params


class Quadratics(NamedTuple):
    """Stacked over clients, or over more: P [..., d, d], C [..., d, k], b [..., k], t [..., d], r [..., k]."""

    P: Any
    C: Any
    b: Any
    t: Any
    r: Any

    def examples(self) -> tuple[tuple, tuple]:
        """(x, y): a client's loss as its only example, [..., 1, ...] with the client last."""
        alone = lambda part, places: np.expand_dims(part, np.ndim(part) - places)
        return (alone(self.P, 2), alone(self.C, 2), alone(self.b, 1)), (alone(self.t, 1), alone(self.r, 1))

    def start(self) -> Params:
        """The model at zero."""
        return {"theta": jnp.zeros(self.t.shape[-1]), "w": jnp.zeros(self.r.shape[-1])}

    def tuned(self) -> tuple[NDArray, NDArray]:
        """(J, c): F(theta) = J theta - c is the gradient of min_w f(theta, w), which is df/dtheta at the best w.

        >>> f = Quadratics(np.array([[3.0]]), np.array([[1.0]]), np.array([2.0]), np.array([1.0]), np.array([4.0]))
        >>> [part.tolist() for part in f.tuned()]
        [[[2.5]], [-1.0]]
        """
        scaled = self.C / self.b[..., None, :]
        return self.P - scaled @ np.swapaxes(self.C, -1, -2), self.t - times(scaled, self.r)

    def worth(self, theta: NDArray) -> NDArray:
        """min_w f(theta, w)."""
        force = self.r - times(np.swapaxes(self.C, -1, -2), theta)
        whole = (times(self.P, theta) * theta).sum(-1) / 2 - (self.t * theta).sum(-1)
        return whole - (force**2 / self.b).sum(-1) / 2

    def whitened(self) -> "Quadratics":
        """The same clients in private coordinates of curvature 1, where one gradient step of size 1 is exact.

        >>> f = Quadratics(np.array([[3.0]]), np.array([[2.0]]), np.array([4.0]), np.array([1.0]), np.array([4.0]))
        >>> f.whitened().C.tolist(), f.whitened().r.tolist()
        ([[1.0]], [2.0])
        """
        scale = np.sqrt(self.b)
        return self._replace(C=self.C / scale[..., None, :], b=np.ones_like(self.b), r=self.r / scale)

    def moved(self, theta: NDArray) -> "Quadratics":
        """The same clients with theta measured from that place: a run that starts at zero starts there.

        >>> f = Quadratics(np.array([[3.0]]), np.array([[1.0]]), np.array([2.0]), np.array([1.0]), np.array([4.0]))
        >>> [part.tolist() for part in f.moved(np.array([2.0]))[3:]]
        [[-5.0], [2.0]]
        """
        return self._replace(t=self.t - times(self.P, theta), r=self.r - times(np.swapaxes(self.C, -1, -2), theta))


def loss(params: Params, batch: Batch, key: Any) -> Any:
    """f, the mean over the examples."""
    (p, c, b), (t, r) = batch.x, batch.y
    theta, w = params["theta"], params["w"]
    value = (jnp.einsum("nij,j->ni", p, theta) / 2 - t) @ theta
    value += (b * w / 2 + jnp.einsum("nij,i->nj", c, theta) - r) @ w
    return (batch.weight * value).sum() / batch.weight.sum()


def from_grams(shared: NDArray, cross: NDArray, private: NDArray, t: NDArray, r: NDArray) -> Quadratics:
    """With full private curvatures [..., k, k], which are rotated to their eigenvectors.

    >>> f = from_grams(np.eye(1), np.array([[1.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 2.0]]), np.zeros(1), np.zeros(2))
    >>> f.b.round(6).tolist(), np.abs(f.C).round(6).tolist()
    ([1.0, 3.0], [[0.0, 1.414214]])
    """
    curvature, turn = np.linalg.eigh(private)
    return Quadratics(shared, cross @ turn, curvature, t, times(np.swapaxes(turn, -1, -2), r))


def around(optimum: NDArray, curvature: NDArray, cross: NDArray) -> Quadratics:
    """Clients with F(theta) = curvature (theta - optimum), whose private part has curvature 1 and that cross term.

    >>> f = around(np.array([1.0, 2.0]), 3 * np.eye(2), np.ones((2, 1)))
    >>> [part.tolist() for part in f.tuned()]
    [[[3.0, 0.0], [0.0, 3.0]], [3.0, 6.0]]
    """
    across = np.swapaxes(cross, -1, -2)
    shared = curvature + cross @ across
    ones = np.ones(cross.shape[:-2] + cross.shape[-1:])
    return Quadratics(shared, cross, ones, times(shared, optimum), times(across, optimum))


class Problems(NamedTuple):
    """F_m(theta) = j_m (theta - optimum_m): all repetitions with the optima shared, then all with the optima apart.

    [problems, clients, ...]
    """

    f: Quadratics
    j: NDArray
    optima: NDArray


def shared_and_apart(repetitions: int, sizes: tuple[int, int, int], spectrum: Callable[..., NDArray]) -> Problems:
    """Repetition k has the same curvatures, and the same common optimum, whether shared or apart.

    sizes: clients, shared and private parameters. spectrum: (rng, shape) -> the eigenvalues of the j_m, whose
    eigenvectors are random. Optima that are apart are so by a normal of standard deviation 0.5 in each coordinate.

    >>> made = shared_and_apart(2, (5, 3, 2), lambda rng, shape: rng.uniform(0.5, 1.5, shape))
    >>> made.j.shape, bool(np.ptp(made.optima[1], axis=0).max() == 0), bool(np.ptp(made.optima[3], axis=0).max() > 0)
    ((4, 5, 3, 3), True, True)
    """
    clients, shared, private = sizes
    js, common, apart, cross = [], [], [], []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.standard_normal((clients, shared, shared)))[0]
        js.append((turn * spectrum(rng, (clients, 1, shared))) @ np.swapaxes(turn, 1, 2))
        common.append(np.tile(rng.standard_normal(shared), (clients, 1)))
        apart.append(common[-1] + 0.5 * rng.standard_normal((clients, shared)))
        cross.append(rng.standard_normal((clients, shared, private)) / 2)
    j, optima = np.array(js + js), np.array(common + apart)
    return Problems(around(optima, j, np.array(cross + cross)), j, optima)


def times(matrices: NDArray, vectors: NDArray) -> NDArray:
    """Matrix by vector, for every client.

    >>> times(np.eye(2)[None], np.array([[1.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """
    return np.matmul(matrices, vectors[..., None])[..., 0]
