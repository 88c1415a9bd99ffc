"""FFGG's least-squares example: its clients as sufficient statistics, and runs of FFGG and of its rivals on them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods import CATALOG
from apiece.protocol import Batch, Method, Tree
from apiece.reproduce.ffgg.private_quadratics import Quadratics, from_grams, loss
from apiece.reproduce.repeat import repeated

CLIENTS, SHARED, PRIVATE = 32, 100, 50


class Example(NamedTuple):
    """f = |H theta - b|^2/2 + |A theta + B w - y|^2/2 for each client: with w rotated, and with w as it is.

    `curvature` [clients, d + k, d + k] and `force` [clients, d + k] are of f in (theta, w); `phi` is H'H.
    """

    f: Quadratics
    curvature: NDArray
    force: NDArray
    phi: NDArray
    theta: NDArray


@cache
def example(n: int, consistent: bool, clients: int = CLIENTS, shared: int = SHARED, private: int = PRIVATE) -> Example:
    """Entries of H, A and B are uniform, over the number of columns; only their products are kept.

    Consistent: b and y come from one theta for everybody and a w for each; else they are uniform noise.

    >>> made = example(30, True, clients=2, shared=3, private=2)
    >>> j, c = made.f.tuned()
    >>> bool(np.abs(j @ made.theta - c).max() < 1e-12)
    True
    """
    rng = np.random.default_rng(0)
    theta, columns = rng.random(shared), []
    for _ in range(clients):
        h, a = rng.random((n, shared)) / shared, rng.random((n, shared)) / shared
        b, w = rng.random((n, private)) / private, rng.random(private)
        target, y = (h @ theta, a @ theta + b @ w) if consistent else (rng.random(n), rng.random(n))
        both, phi = np.concatenate([a, b], axis=1), h.T @ h
        curvature, force = both.T @ both, both.T @ y
        curvature[:shared, :shared] += phi
        force[:shared] += h.T @ target
        columns.append((curvature, force, phi))
    curvature, force, phi = (np.array(column) for column in zip(*columns, strict=True))
    top, low = slice(shared), slice(shared, None)
    grams = curvature[:, top, top], curvature[:, top, low], curvature[:, low, low]
    return Example(from_grams(*grams, force[:, top], force[:, low]), curvature, force, phi, theta)


class Case(NamedTuple):
    """A problem to start from theta = 0, with F_m(theta) = j_m theta - c_m and the constants that give step sizes."""

    f: Quadratics
    j: NDArray
    c: NDArray
    smoothness: float  # of min_w f_m: L
    private_smoothness: float  # in w: L_ww

    def length(self, theta: NDArray) -> float:
        """|F|, F the mean of the F_m."""
        return float(np.linalg.norm(self.j.mean(0) @ theta - self.c.mean(0)))

    def optimum(self) -> NDArray:
        """Where F = 0."""
        return np.linalg.solve(self.j.mean(0), self.c.mean(0))

    def from_optimum(self) -> "Case":
        """The same problem, started there: what remains is the floor of inexact inner solves."""
        moved = self.f.moved(self.optimum())
        return self._replace(f=moved, c=moved.tuned()[1])


def case(f: Quadratics) -> Case:
    """From zero.

    >>> made = example(30, True, clients=2, shared=3, private=2)
    >>> case(made.f).length(made.theta) < 1e-12
    True
    """
    j, c = f.tuned()
    return Case(f, j, c, float(np.linalg.eigvalsh(j)[:, -1].max()), float(f.b.max()))


class Course(NamedTuple):
    """|F| and mean_m |F_m|^2, [cases, rounds + 1]."""

    length: NDArray
    squares: NDArray


def fine_tuned_first(cases: Sequence[Case], rounds: int, steps: int, solver: str = "gradient") -> Course:
    """FFGG from zero on all cases at once; `steps` = 0 stands for exact inner solves."""
    problems = [one.f if steps else one.f.whitened() for one in cases]
    stacked = Quadratics(*(np.stack(parts) for parts in zip(*problems, strict=True)))
    j, c = np.stack([one.j for one in cases]), np.stack([one.c for one in cases])
    how = dict(
        private="w", start="zero", solver=solver, inner_steps=steps or 1, batch=0, tune_epochs=None, tune_steps=0
    )

    def build(hyper: dict[str, Any], round: Any) -> Method:
        return CATALOG["ffgg"](loss, lr=hyper["lr"], inner_lr=hyper["inner_lr"], **how)

    def look(server: Tree, models: Tree, given: Tree) -> Tree:
        pulls = given[0] @ server["theta"] - given[1]
        return Course(jnp.linalg.norm(pulls.mean(0)), (pulls**2).sum(-1).mean())

    x, y = stacked.examples()
    rates = {
        "lr": np.array([1 / one.smoothness for one in cases]),
        "inner_lr": np.array([1 / one.private_smoothness if steps else 1.0 for one in cases]),
    }
    seen = repeated(build, stacked.start(), x, y, look, rounds=rounds, given=(j, c), hyper=rates)
    first = Course(np.linalg.norm(c.mean(1), axis=-1), (c**2).sum(-1).mean(-1))
    return Course(*(np.concatenate([start[:, None], after], axis=1) for start, after in zip(first, seen, strict=True)))


@jax.custom_jvp
def bowl(x: Any, curvature: Any) -> Any:
    """x'Qx/2 for a symmetric Q, whose gradient is Qx: one product, where the general rule would take two."""
    return x @ (curvature @ x) / 2


@bowl.defjvp
def _bowl_slope(at: tuple, moved: tuple) -> tuple:
    force = at[1] @ at[0]
    return at[0] @ force / 2, moved[0] @ force


def whole_loss(x: Any, batch: Batch, key: Any) -> Any:
    """f as a function of x = (theta, w) in one vector; examples are (curvature, force)."""
    bowls = jax.vmap(lambda curvature: bowl(x, curvature))(batch.x)
    return (batch.weight * (bowls - batch.y @ x)).sum() / batch.weight.sum()


class Rivals:
    """Methods that share all of (theta, w), on one example; a compile each."""

    def __init__(self, curvature: NDArray, force: NDArray) -> None:
        self.curvature, self.force = curvature, force
        self.smoothness = float(np.linalg.eigvalsh(curvature)[:, -1].max())

    def engine(self, name: str, block: int = 10, **options: Any) -> Vectorized:
        """Hyper-parameters rule over options."""

        def build(hyper: dict[str, Any], round: Any) -> Method:
            return CATALOG[name](whole_loss, batch=0, **(options | hyper))

        return Vectorized(build, self.curvature, self.force, np.arange(len(self.force) + 1), block=block)

    def thetas(
        self, engine: Vectorized, model: Callable[[Tree], Any], rounds: int, seed: int = 0, **hyper: float
    ) -> NDArray:
        """The shared part of the server's model after every block, [looks, d]."""
        zero = jnp.zeros(self.force.shape[1])
        run, seen = engine.start(lambda key: zero, seed, hyper), []
        for _ in range(rounds // engine.block):
            run = engine.advance(run, engine.block)
            seen.append(np.asarray(model(run.server))[:SHARED])
        return np.array(seen)
