"""Linear regressions with an exact condition number, and FedCLUP, L2GD and AL2SGD+ on them, many at once.

X_i = sqrt(n) Q diag(sqrt(geomspace(mu, L, d))) V', Q and V random orthogonal; w*_i = w_0 + dev_i, sum dev_i = 0, max
|dev_i| = radius; y = X w*_i + N(0, 1). The law is that of `data.synthetic.linear_spectrum`; the order of the draws is
that of the reference computation, so that a seed here is the federation its numbers were found on. Clients are given
X'X/n and X'y/n, which determine all gradients. L = 1 everywhere.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from apiece.methods import CATALOG
from apiece.models import objective, quadratic
from apiece.reproduce.repeat import repeated
from apiece.theory import clup


class Problem(NamedTuple):
    """h = X'X/n [..., clients, d, d], b = X'y/n [..., clients, d], and the true w*_i [..., clients, d]."""

    h: np.ndarray
    b: np.ndarray
    truth: np.ndarray


def problem(
    seed: int, clients: int = 10, examples: int = 60, features: int = 8, mu: float = 0.1, radius: float = 0.5
) -> Problem:
    """One federation.

    >>> np.linalg.eigvalsh(problem(0).h)[3, [0, -1]].round(12).tolist()
    [0.1, 1.0]
    """
    rng = np.random.default_rng(seed)
    center, away = rng.standard_normal(features), rng.standard_normal((clients, features))
    away -= away.mean(0)
    truth = center + away * radius / np.linalg.norm(away, axis=1).max()
    root = np.sqrt(np.geomspace(mu, 1.0, features))
    h, b = np.zeros((clients, features, features)), np.zeros((clients, features))
    for i, w in enumerate(truth):
        q = np.linalg.qr(rng.standard_normal((examples, features)))[0]
        v = np.linalg.qr(rng.standard_normal((features, features)))[0]
        x = np.sqrt(examples) * (q * root) @ v.T
        h[i], b[i] = x.T @ x / examples, x.T @ (x @ w + rng.standard_normal(examples)) / examples
    return Problem(h, b, truth)


def together(problems: list[Problem]) -> Problem:
    """Stacked along a first axis."""
    return Problem(*(np.stack(parts) for parts in zip(*problems, strict=True)))


def prox(p: Problem, lam: Any, x: np.ndarray) -> np.ndarray:
    """argmin_w L_i(w) + lam/2 |w - x|^2 of every client; `lam` and `x` [..., d] per problem.

    >>> prox(Problem(np.eye(2)[None], np.ones((1, 2)), np.ones((1, 2))), 1.0, np.zeros(2)).tolist()
    [[0.5, 0.5]]
    """
    lam = np.asarray(lam)[..., None, None]
    pulled = p.b + lam * x[..., None, :]
    return np.linalg.solve(p.h + lam[..., None] * np.eye(p.b.shape[-1]), pulled[..., None])[..., 0]


def solution(p: Problem, lam: Any) -> tuple[np.ndarray, np.ndarray]:
    """(x, the w_i) of min mean_i [L_i(w_i) + lam/2 |w_i - x|^2]: sum_i (H_i + lam I)^-1 (H_i x - b_i) = 0.

    >>> x, w = solution(problem(0), 0.5)
    >>> bool(np.allclose(x, w.mean(0)))
    True
    """
    pull = np.asarray(lam)[..., None, None, None] * np.eye(p.b.shape[-1])
    each = np.linalg.solve(p.h + pull, np.concatenate([p.h, p.b[..., None]], axis=-1)).mean(-3)
    x = np.linalg.solve(each[..., :-1], each[..., -1:])[..., 0]
    return x, prox(p, lam, x)


def pooled(p: Problem) -> np.ndarray:
    """The optimum of the mean loss: lam = infinity."""
    return np.linalg.solve(p.h.mean(-3), p.b.mean(-2)[..., None])[..., 0]


def by_theory(lam: Any, mu: Any, server: float = 0.5) -> dict[str, Any]:
    """FedCLUP's options with a proved rate; `server` is gamma L_g, beyond the proof from 1 on.

    >>> {name: float(value) for name, value in by_theory(1.0, 0.1).items()}
    {'lam': 1.0, 'gamma': 1.0, 'lr': 0.5, 'steps': 24.0}
    """
    c = clup.constants(lam, 1.0, mu)
    return dict(lam=np.asarray(lam), gamma=server / c.l_g, lr=c.lr, steps=np.asarray(c.steps))


class Trace(NamedTuple):
    """After each round: the server's model [runs, rounds, d] and everybody's [runs, rounds, clients, d]."""

    x: np.ndarray
    w: np.ndarray


def fed_clup(p: Problem, options: dict[str, Any], rounds: int, start: float = 0.0) -> Trace:
    """FedCLUP on every problem with options of its own, all at once, from models that are `start` everywhere."""
    return Trace(*_run("fed_clup", p, options, rounds, lambda x, models, _: (x, models), start, batch=0))


class Swept(NamedTuple):
    """One setting on several federations: the problems, lam, the exact solution, and the run."""

    p: Problem
    lam: float
    x: np.ndarray
    w: np.ndarray
    trace: Trace

    def error(self) -> np.ndarray:
        """[federations, rounds]: the squared distance of the server's model to the solution, share of the start's."""
        return np.sum((self.trace.x - self.x[:, None]) ** 2, -1) / np.sum(self.x**2, -1)[:, None]


def swept(jobs: dict[Any, tuple[float, dict[str, Any]]], seeds: int, rounds: int) -> dict[Any, Swept]:
    """FedCLUP from zero with the options of every job, (mu, options), on federations 0, 1, ...: one compiled program.

    >>> import jax
    >>> with jax.enable_x64(True):
    ...     found = swept({"one": (0.1, by_theory(1.0, 0.1))}, seeds=2, rounds=60)
    >>> rounds_until(found["one"].error(), 1e-10).tolist()
    [49.0, 59.0]
    """
    drawn = {mu: together([problem(s, mu=mu) for s in range(seeds)]) for mu in {mu for mu, _ in jobs.values()}}
    ps = [drawn[mu] for mu, _ in jobs.values()]
    names = ("lam", "gamma", "lr", "steps")
    options = {name: np.repeat([options[name] for _, options in jobs.values()], seeds) for name in names}
    trace = fed_clup(Problem(*(np.concatenate(parts) for parts in zip(*ps, strict=True))), options, rounds)
    found = {}
    for k, (label, (mu, one)) in enumerate(jobs.items()):
        lam, part = float(one["lam"]), slice(k * seeds, (k + 1) * seeds)
        found[label] = Swept(drawn[mu], lam, *solution(drawn[mu], lam), Trace(trace.x[part], trace.w[part]))
    return found


def rounds_until(error: np.ndarray, share: float) -> np.ndarray:
    """After how many rounds each row, an error relative to the start's, is below that share; infinite if never.

    >>> rounds_until(np.array([[0.5, 1e-11, 1e-12], [0.5, 0.5, 0.5]]), 1e-10).tolist()
    [2.0, inf]
    """
    below = error < share
    return np.where(below.any(-1), below.argmax(-1) + 1.0, np.inf)


class Rival(NamedTuple):
    """After each round: everybody's models, and how many iterations and communications that took."""

    w: np.ndarray
    iterations: np.ndarray
    communications: np.ndarray


def l2gd(p: Problem, lam: np.ndarray, rounds: int) -> Rival:
    """L2GD with its best p and the theory's step; a round is a communication."""
    options = dict(lam=lam, p=lam / (lam + 1.0))
    return Rival(*_run("l2gd", p, options, rounds, _counted, batch=0, smoothness=1.0))


def al2sgd(p: Problem, lam: np.ndarray, rounds: int, mu: float) -> Rival:
    """AL2SGD+; a round is an iteration."""
    return Rival(*_run("al2sgd", p, dict(lam=lam), rounds, _counted, smoothness=1.0, convexity=mu))


def _counted(server: Any, models: Any, _: Any) -> tuple[Any, ...]:
    return models, server.iterations, server.communications


def _run(name: str, p: Problem, hyper: dict[str, Any], rounds: int, look: Any, start: float = 0.0, **fixed: Any) -> Any:
    loss = objective(quadratic(p.b.shape[-1]), "custom").loss
    build = lambda hyper, round: CATALOG[name](loss, **hyper, **fixed)
    params = jnp.full(p.b.shape[-1], start)
    return repeated(build, params, p.h[:, :, None], p.b[:, :, None], look, rounds=rounds, hyper=hyper)
