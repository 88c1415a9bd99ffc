"""The NumPy programs behind the golden numbers of methods with a private part; no JAX, nothing of apiece.

A problem has m clients with f(theta, w) = theta'P theta/2 + theta'C w + w'B w/2 - t'theta - r'w, stacked: P [m, d, d],
C [m, d, k], B [m, k, k], t [m, d], r [m, k].
"""

from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    P: np.ndarray
    C: np.ndarray
    B: np.ndarray
    t: np.ndarray
    r: np.ndarray


def times(matrices, vectors):
    return np.matmul(matrices, vectors[..., None])[..., 0]


def transposed(matrices):
    return np.swapaxes(matrices, 1, 2)


def least_squares(h, c, a, b, y):
    """f = h/2 (theta - c)^2 + |a theta + b w - y|^2 / 2 with numbers theta and w."""
    dot = lambda p, q: (p * q).sum(1)
    column = lambda v: v[:, None]
    matrix = lambda v: v[:, None, None]
    return Problem(
        matrix(h + dot(a, a)), matrix(dot(a, b)), matrix(dot(b, b)), column(h * c + dot(a, y)), column(dot(b, y))
    )


# Two clients, one shared and one private number; F(0) = (-0.5, 1).
TOY = least_squares(
    h=np.array([1.0, 2.0]), c=np.array([1.0, 0.0]), a=np.array([[1.0, 2.0], [2.0, -1.0]]),
    b=np.array([[1.0, 1.0], [1.0, 0.0]]), y=np.array([[1.0, 0.0], [2.0, 1.0]]),
)  # fmt: skip


def example_1(n, consistent=True, shared=100, private=50, clients=32):
    """f = |H theta - b|^2 / 2 + |A theta + B w - y|^2 / 2, entries uniform over the number of columns.

    Consistent: b and y come from one theta for everybody and a w for each; else they are noise. Also that theta.
    """
    rng = np.random.default_rng(0)
    theta = rng.random(shared)
    columns = []
    for _ in range(clients):
        h, a = rng.random((n, shared)) / shared, rng.random((n, shared)) / shared
        b, w = rng.random((n, private)) / private, rng.random(private)
        target, y = (h @ theta, a @ theta + b @ w) if consistent else (rng.random(n), rng.random(n))
        columns.append((h.T @ h + a.T @ a, a.T @ b, b.T @ b, h.T @ target + a.T @ y, b.T @ y, h.T @ h))
    *parts, phi = (np.array(column) for column in zip(*columns, strict=True))
    return Problem(*parts), theta, phi


def best_private(f, theta):
    return np.linalg.solve(f.B, (f.r - transposed(f.C) @ theta)[..., None])[..., 0]


def slope(f, theta, w):
    """The gradients in theta; theta is one for all, or one each."""
    return times(f.P, np.broadcast_to(theta, f.t.shape)) + times(f.C, w) - f.t


def private_slope(f, theta, w):
    return times(transposed(f.C), np.broadcast_to(theta, f.t.shape)) + times(f.B, w) - f.r


def felt(f, theta):
    """F_m(theta), the gradients after an exact tuning."""
    return slope(f, theta, best_private(f, theta))


def envelope(f):
    """(J, c): F(theta) = J theta - c."""
    inverse = np.linalg.inv(f.B)
    return f.P - f.C @ inverse @ transposed(f.C), f.t - times(f.C @ inverse, f.r)


def worth(f, theta):
    """min_w f_m(theta, w), up to a constant."""
    w = best_private(f, theta)
    both = np.broadcast_to(theta, f.t.shape)
    quadratic = (both * times(f.P, both)).sum(1) / 2 + (both * times(f.C, w)).sum(1) + (w * times(f.B, w)).sum(1) / 2
    return quadratic - (f.t * both).sum(1) - (f.r * w).sum(1)


def descended(f, theta, w, steps, lr):
    for _ in range(steps):
        w = w - lr * private_slope(f, theta, w)
    return w


def descended_at_once(f, steps, lr):
    """theta -> the same from w = 0, as a function of the eigenvalues: for many steps."""
    values, vectors = np.linalg.eigh(f.B)
    factor = (1 - (1 - lr * values) ** steps) / values
    return lambda theta: times(vectors, factor * times(transposed(vectors), f.r - transposed(f.C) @ theta))


def conjugated(f, theta, steps):
    """Conjugate gradients from w = 0."""
    residual = f.r - transposed(f.C) @ theta
    w, direction, length = np.zeros_like(residual), residual, (residual**2).sum(1)
    for _ in range(steps):
        curved = times(f.B, direction)
        size = length / (direction * curved).sum(1)
        w, residual = w + size[:, None] * direction, residual - size[:, None] * curved
        new = (residual**2).sum(1)
        direction, length = residual + (new / length)[:, None] * direction, new
    return w


def ffgg(f, rounds, lr, private, theta=None):
    """`private`: theta -> everybody's w."""
    theta = np.zeros(f.t.shape[1]) if theta is None else theta
    trace = []
    for _ in range(rounds):
        theta = theta - lr * slope(f, theta, private(theta)).mean(0)
        trace.append(theta)
    return np.array(trace)


def local_ffgg(f, rounds, steps, lr, inner_lr, private):
    theta, trace = np.zeros(f.t.shape[1]), []
    for _ in range(rounds):
        y, w = np.broadcast_to(theta, f.t.shape), private(theta)
        for _ in range(steps):
            w = w - inner_lr * private_slope(f, y, w)
            y = y - lr * slope(f, y, w)
        theta = y.mean(0)
        trace.append(theta)
    return np.array(trace)


def partial(f, rounds, order, steps, lr, inner_steps=0, inner_lr=0.0):
    """The shared trace and everybody's last v."""
    x, v, trace = np.zeros(f.t.shape[1]), np.zeros_like(f.r), []
    for _ in range(rounds):
        y = np.broadcast_to(x, f.t.shape)
        if order == "private_first":
            v = descended(f, x, v, inner_steps, inner_lr)
        for _ in range(steps):
            if order == "together":
                y, v = y - lr * slope(f, y, v), v - lr * private_slope(f, y, v)
            else:
                v = v - inner_lr * private_slope(f, y, v) if order == "alternate" else v
                y = y - lr * slope(f, y, v)
        x = y.mean(0)
        trace.append(x)
    return np.array(trace), v


def apfl(h, b, rounds, steps, lr, mix, adapt):
    """On clients w'Hw/2 - b'w: the shared trace, the last personal models and the shares of the own model."""
    x, v, a = np.zeros(b.shape[1]), np.zeros_like(b), np.full(len(b), mix)
    trace = []
    for _ in range(rounds):
        y = np.tile(x, (len(b), 1))
        for _ in range(steps):
            mixed = a[:, None] * v + (1 - a[:, None]) * y
            g, g_mixed = times(h, y) - b, times(h, mixed) - b
            pull = ((v - y) * g_mixed).sum(1)
            y, v = y - lr * g, v - lr * a[:, None] * g_mixed
            if adapt:
                a = np.clip(a - lr * pull, 0, 1)
        x = y.mean(0)
        trace.append(x)
    return np.array(trace), a[:, None] * v + (1 - a[:, None]) * x, a
