"""Linear regression in closed form: where each method ends when it is run to convergence.

Clients i have X_i [n_i, d], y_i [n_i], the loss L_i(w) = |X_i w - y_i|^2 / (2 n_i) without intercept, and weights p_i
that sum to one (by default n_i / N). Write S_i = X_i'X_i / n_i and b_i = X_i'y_i / n_i. With fewer examples than
parameters the systems solved for one client are n x n.
"""

from collections.abc import Sequence

import numpy as np

from apiece.errors import UserError
from apiece.theory.domain import above_zero

Clients = Sequence[np.ndarray]


def weights(ys: Clients, p: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """The clients' shares: the given ones, or n_i / N.

    >>> weights([np.zeros(1), np.zeros(3)]).tolist()
    [0.25, 0.75]
    """
    given = np.array([len(y) for y in ys], float) if p is None else np.asarray(p, float)
    if given.shape != (len(ys),) or (given < 0).any() or not given.sum() > 0:
        raise UserError(f"p needs one weight of at least 0 for each of the {len(ys)} clients, and not only zeros")
    return given / given.sum()


def fed_avg(xs: Clients, ys: Clients, p: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """The pooled optimum (sum_i p_i S_i)^-1 sum_i p_i b_i: FedAvg with one local step, or a small step size.

    Of minimal length when the clients' examples do not span all parameters: where descent from zero ends.

    >>> fed_avg([np.eye(2), np.eye(2)], [np.zeros(2), np.ones(2)], [0.25, 0.75])
    array([0.75, 0.75])
    """
    shares = list(zip(xs, ys, weights(ys, p), strict=True))
    return _solve(
        sum(share / len(y) * (x.T @ x) for x, y, share in shares),
        sum(share / len(y) * (x.T @ y) for x, y, share in shares),
    )


def fine_tuned(x: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray:
    """start + X^+ (y - X start): where gradient descent on one client's loss ends when it starts there.

    With n < d the orthogonal projection of the start on {w: X w = y}; with n >= d (and full rank) the client's own
    optimum, whatever the start. From zero, the interpolant of minimal length.

    >>> fine_tuned(np.array([[1.0, 0.0]]), np.array([2.0]), np.array([5.0, 7.0]))
    array([2., 7.])
    """
    return start + np.linalg.lstsq(x, y - x @ start)[0]


def ridge_tuned(x: np.ndarray, y: np.ndarray, start: np.ndarray, lam: float) -> np.ndarray:
    """argmin_w L_i(w) + lam/2 |w - start|^2 = (S + lam I)^-1 (lam start + b).

    = start + X'(X X' + n lam I)^-1 (y - X start), which is what is computed when d > n.

    >>> ridge_tuned(np.eye(2), np.array([3.0, 0.0]), np.zeros(2), 1.0)
    array([1., 0.])
    """
    above_zero(lam=lam)
    n, d = x.shape
    residual = y - x @ start
    if d > n:
        return start + x.T @ np.linalg.solve(x @ x.T + n * lam * np.eye(n), residual)
    return start + np.linalg.solve(x.T @ x + n * lam * np.eye(d), x.T @ residual)


def local(xs: Clients, ys: Clients) -> np.ndarray:
    """[clients, d]: everybody alone; of minimal length where n < d.

    >>> local([np.array([[1.0, 1.0]])], [np.array([2.0])])
    array([[1., 1.]])
    """
    return np.array([fine_tuned(x, y, np.zeros(x.shape[1])) for x, y in zip(xs, ys, strict=True)])


def local_ridge(xs: Clients, ys: Clients, lam: float) -> np.ndarray:
    """[clients, d]: everybody alone with a ridge, X'(X X' + n lam I)^-1 y.

    >>> local_ridge([np.eye(2)], [np.array([3.0, 0.0])], 0.5)
    array([[1.5, 0. ]])
    """
    return np.array([ridge_tuned(x, y, np.zeros(x.shape[1]), lam) for x, y in zip(xs, ys, strict=True)])


def ftfa(xs: Clients, ys: Clients, p: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """[clients, d]: the pooled optimum, fine-tuned to convergence by each client (Cheng, Chadha, Duchi 2021).

    >>> ftfa([np.eye(2), np.array([[1.0, 0.0]])], [np.ones(2), np.array([3.0])])
    array([[1., 1.],
           [3., 1.]])
    """
    start = fed_avg(xs, ys, p)
    return np.array([fine_tuned(x, y, start) for x, y in zip(xs, ys, strict=True)])


def rtfa(xs: Clients, ys: Clients, lam: float, p: Sequence[float] | np.ndarray | None = None) -> np.ndarray:
    """[clients, d]: the pooled optimum, ridge-tuned by each client; also Ditto's personal models.

    lam -> 0 is FTFA, lam -> infinity the pooled optimum.

    >>> rtfa([np.eye(2), np.eye(2)], [np.zeros(2), np.full(2, 2.0)], lam=0.5)
    array([[0.5, 0.5],
           [1.5, 1.5]])
    """
    start = fed_avg(xs, ys, p)
    return np.array([ridge_tuned(x, y, start, lam) for x, y in zip(xs, ys, strict=True)])


def maml(
    xs: Clients,
    ys: Clients,
    alpha: float,
    p: Sequence[float] | np.ndarray | None = None,
    first_order: bool = False,
) -> np.ndarray:
    """The stationary point of sum_i p_i L_i(w - alpha grad L_i(w)), with V_i = I - (alpha/n_i) X_i X_i'.

    (sum_i p_i/n_i X_i'V_i^2 X_i)^-1 sum_i p_i/n_i X_i'V_i^2 y_i. First order: V_i instead of V_i^2, which is another
    point, (sum_i p_i (I - alpha S_i) S_i)^-1 sum_i p_i (I - alpha S_i) b_i. alpha = 0 is the pooled optimum.

    >>> maml([np.eye(2), np.eye(2)], [np.zeros(2), np.full(2, 2.0)], alpha=0.5)
    array([1., 1.])
    """
    d = xs[0].shape[1]
    left, right = np.zeros((d, d)), np.zeros(d)
    for x, y, share in zip(xs, ys, weights(ys, p), strict=True):
        n = len(y)
        after = lambda v, x=x, n=n: v - alpha / n * (x @ (x.T @ v))  # V v without the n x n matrix
        before = x if first_order else after(x)
        left += share / n * (before.T @ after(x))
        right += share / n * (before.T @ after(y))
    return _solve(left, right)


def centre(
    xs: Clients, ys: Clients, lam: float, p: Sequence[float] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(x, the w_i) of min sum_i p_i [L_i(w_i) + lam/2 |w_i - x|^2]: FedCLUP, L2GD (p_i = 1/M), pFedMe, exact FedProx.

    With K_i = (X_i X_i' + n_i lam I)^-1: x = (sum_i p_i X_i'K_i X_i)^-1 sum_i p_i X_i'K_i y_i, w_i is ridge-tuned from
    x, and x = sum_i p_i w_i. lam -> 0: local optima; lam -> infinity: |x - pooled optimum| falls like 1/lam.

    >>> centre([np.eye(2), np.eye(2)], [np.zeros(2), np.full(2, 2.0)], lam=0.5)
    (array([1., 1.]), array([[0.5, 0.5],
           [1.5, 1.5]]))
    """
    d = xs[0].shape[1]
    left, right = np.zeros((d, d)), np.zeros(d)
    for x, y, share in zip(xs, ys, weights(ys, p), strict=True):
        # The ridge solution is linear in y; of the columns of X it makes X'K X.
        left += share * np.array([ridge_tuned(x, column, np.zeros(d), lam) for column in x.T]).T
        right += share * ridge_tuned(x, y, np.zeros(d), lam)
    shared = _solve(left, right)
    return shared, np.array([ridge_tuned(x, y, shared, lam) for x, y in zip(xs, ys, strict=True)])


def _solve(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution; of minimal length when there are many."""
    return np.linalg.lstsq(left, right)[0]
