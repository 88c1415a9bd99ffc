"""Minimizing over one part of a model while the other is held: gradient steps, optax optimizers, conjugate gradients.

Each works on a tree of parameters as `descend` does; to hold a part of the model, give it `split.given(loss, part)`.
"""

import inspect
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax

from apiece import tree
from apiece.client.descend import descend, full_gradient, gradient, steps_taken
from apiece.client.draw import draw, shuffler
from apiece.errors import UserError, suggest
from apiece.protocol import Data, Loss, Params, Tree
from apiece.split import given

Slope = Callable[[Tree, Loss, Params], Params]


def solve(
    loss: Loss,
    params: Params,
    data: Data,
    key: Tree,
    *,
    solver: str,
    steps: Tree,
    lr: Tree,
    batch: int,
    epochs: Tree | None = None,
) -> Params:
    """`steps` steps of a solver on the client's own data, from `params`; with `epochs`, as many as so many passes have.

    "gradient" is `descend`; "cg" is `conjugate_gradients` (which knows its own step size); any other word is the name
    of an optax optimizer, run with learning rate `lr`.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(3), y=jnp.array([0.0, 1.0, 2.0]), start=0, size=3, capacity=3)
    >>> float(solve(loss, jnp.array(5.0), data, jax.random.key(0), solver="cg", steps=1, lr=0.1, batch=0))
    1.0
    """
    if solver == "cg":
        count = steps_taken(data, steps, epochs, batch)
        return conjugate_gradients(loss, params, data, key, steps=count, batch=batch)
    optimizer = None if solver == "gradient" else optimizer_named(solver)
    return descend(loss, params, data, key, steps=steps, epochs=epochs, lr=lr, batch=batch, optimizer=optimizer)


def conjugate_gradients(loss: Loss, params: Params, data: Data, key: Tree, *, steps: Tree, batch: int = 0) -> Params:
    """Minimize the loss's quadratic model at `params`: solve H d = -g by `steps` products with H, return params + d.

    Exact on a quadratic after as many steps as the part has parameters; one Newton step, inexactly solved, elsewhere
    (which is no descent far from a minimum: for losses that are nearly quadratic in the part, or from a near start).
    Along a direction without curvature (flat, or concave) it does not move. `batch` examples, one draw, serve all
    steps; 0 takes all of the client's.

    >>> curved = lambda w, batch, key: 2 * w[0] ** 2 + w[1] ** 2 - w[0]
    >>> data = Data(x=jnp.zeros(3), y=jnp.zeros(3), start=0, size=3, capacity=3)
    >>> conjugate_gradients(curved, jnp.ones(2), data, jax.random.key(0), steps=2).round(4).tolist()
    [0.25, 0.0]
    """
    sloped = slopes(data, key, batch=batch)
    slope = lambda p: sloped(0, loss, p)
    curve = lambda p: jax.jvp(slope, (params,), (p,))[1]

    return tree.add(params, _directed(curve, tree.scale(-1.0, slope(params)), steps))


def _directed(curve: Callable[[Params], Params], left: Params, steps: Tree) -> Params:
    """d with H d = left, by `steps` products with H, which `curve` gives."""
    first = tree.dot(left, left)
    # Below the rounding of the gradient itself, further steps would only amplify it.
    enough = first * max((jnp.finfo(leaf.dtype).eps for leaf in jax.tree.leaves(left)), default=0) ** 2

    def step(_: Tree, carry: tuple) -> tuple:
        moved, left, direction, length = carry
        curved = curve(direction)
        bend = tree.dot(direction, curved)
        go = (bend > 0) & (length > enough)
        size = jnp.where(go, length / jnp.where(go, bend, 1), 0)
        left = tree.step(left, -size, curved)
        new = tree.dot(left, left)
        keep = jnp.where(go, new / jnp.where(go, length, 1), 0)
        return tree.step(moved, size, direction), left, tree.step(left, keep, direction), new

    return lax.fori_loop(0, steps, step, (tree.zeros(left), left, left, first))[0]


def newton(value: Callable[[Params], jax.Array], params: Params, *, steps: int = 30, products: int = 40) -> Params:
    """The minimum of a convex function: Newton's steps, each solved by at most `products` products with the Hessian.

    A step is halved until the function falls, up to ten times; it ends when none does, when the gradient is rounding,
    or after `steps` steps. Exact on a quadratic with no more parameters than products.

    >>> newton(lambda w: jnp.sum(jnp.cosh(w - 3.0)), jnp.zeros(2)).round(4).tolist()
    [3.0, 3.0]
    """
    slope = jax.grad(value)
    first = tree.dot(slope(params), slope(params))
    rounding = max((jnp.finfo(leaf.dtype).eps for leaf in jax.tree.leaves(params)), default=0)
    halves = 0.5 ** jnp.arange(10)

    def step(carry: tuple) -> tuple:
        k, p, _ = carry
        down = tree.scale(-1.0, slope(p))
        way = _directed(lambda along: jax.jvp(slope, (p,), (along,))[1], down, products)
        found = lax.map(lambda size: value(tree.step(p, size, way)), halves)
        falls = found < value(p)
        p = tree.step(p, jnp.where(falls.any(), halves[jnp.argmin(jnp.where(falls, found, jnp.inf))], 0), way)
        return k + 1, p, falls.any() & (tree.dot(down, down) > first * rounding**2)

    return lax.while_loop(lambda carry: carry[2] & (carry[0] < steps), step, (0, params, first > 0))[1]


def accelerated(
    slope: Callable[[Params], Params], params: Params, *, smoothness: Tree, convexity: Tree = 0.0, steps: Tree
) -> Params:
    """Nesterov's steps of length 1/smoothness on a convex function.

    The momentum grows, up to what suits a function that is strongly convex by so much; nothing in it depends on
    data, so that rounding stays rounding.

    >>> curved = lambda w: jnp.array([1.0, 0.01]) * (w - 1.0)
    >>> accelerated(curved, jnp.zeros(2), smoothness=1.0, convexity=0.01, steps=80).round(2).tolist()
    [1.0, 1.0]
    """
    root = jnp.sqrt(convexity / smoothness)
    most = (1 - root) / (1 + root)

    def step(_: Tree, carry: tuple) -> tuple:
        p, ahead, t = carry
        new = tree.step(ahead, -1 / smoothness, slope(ahead))
        later = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        return new, tree.step(new, jnp.minimum((t - 1) / later, most), tree.sub(new, p)), later

    return lax.fori_loop(0, steps, step, (params, params, jnp.ones(())))[0]


def slopes(data: Data, key: Tree, *, epochs: Tree | None = None, batch: int = 32) -> Slope:
    """(k, loss, params) -> the gradient over the k-th batch: the batches that `descend` draws from this key.

    For loops that take more than one gradient a step, on one and the same batch.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(3), y=jnp.array([0.0, 1.0, 2.0]), start=0, size=3, capacity=3)
    >>> float(slopes(data, jax.random.key(0), batch=0)(0, loss, jnp.array(5.0)))
    4.0
    """
    batch_key, loss_key = jax.random.split(key)
    shuffle = shuffler(batch_key, data.size)
    per_epoch = 1 if epochs is None else steps_taken(data, 1, 1, batch)

    def slope(k: Tree, loss: Loss, params: Params) -> Params:
        at = jax.random.fold_in(loss_key, k)
        if not batch:
            return full_gradient(loss, params, data, at)
        return gradient(loss, params, draw(data, shuffle, batch, k // per_epoch, k % per_epoch), at)

    return slope


def alternate(
    loss: Loss,
    shared: Params,
    own: Params,
    data: Data,
    key: Tree,
    *,
    steps: Tree,
    lr: Tree,
    own_lr: Tree,
    epochs: Tree | None = None,
    batch: int = 32,
) -> tuple[Params, Params]:
    """`steps` times: a gradient step on the own part, then one on the shared part at the new own part.

    >>> loss = lambda p, batch, key: (p["a"] + p["b"] - 1) ** 2 / 2
    >>> data = Data(x=jnp.zeros(3), y=jnp.zeros(3), start=0, size=3, capacity=3)
    >>> parts = {"a": jnp.array(0.0), "b": None}, {"a": None, "b": jnp.array(0.0)}
    >>> shared, own = alternate(loss, *parts, data, jax.random.key(0), steps=1, lr=0.5, own_lr=0.5, batch=0)
    >>> float(own["b"]), float(shared["a"])
    (0.5, 0.25)
    """
    slope = slopes(data, key, epochs=epochs, batch=batch)

    def step(k: Tree, parts: tuple) -> tuple:
        shared, own = parts
        own = tree.step(own, -own_lr, slope(k, given(loss, shared), own))
        return tree.step(shared, -lr, slope(k, given(loss, own), shared)), own

    return lax.fori_loop(0, steps_taken(data, steps, epochs, batch), step, (shared, own))


def optimizer_named(name: str) -> optax.GradientTransformation:
    """The optax optimizer of that name (adam, rmsprop, lion, ...) as `descend` takes it: a direction, to be scaled.

    >>> rule = optimizer_named("sgd")
    >>> float(rule.update(jnp.array(2.0), rule.init(jnp.array(0.0)))[0])
    2.0
    """
    found: Tree = getattr(optax, name, None) if name.isidentifier() else None
    if not _takes_learning_rate(found):
        raise UserError(f"unknown solver '{name}': {suggest(name, ['gradient', 'cg', *optimizers()])}")
    return optax.chain(found(learning_rate=1.0), optax.scale(-1.0))


def optimizers() -> list[str]:
    """The names that `optimizer_named` knows.

    >>> "adam" in optimizers()
    True
    """
    public = (name for name in dir(optax) if not name.startswith(("_", "scale_by")))
    return [name for name in public if _takes_learning_rate(getattr(optax, name))]


def _takes_learning_rate(factory: Tree) -> bool:
    """An optimizer of optax that needs no more than a learning rate, and no more than gradients at each step."""
    if not inspect.isfunction(factory) or not factory.__module__.startswith("optax."):
        return False
    named = dict(inspect.signature(factory).parameters)
    rate = named.pop("learning_rate", None)
    if rate is None or any(p.default is inspect.Parameter.empty for p in named.values()):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # one that is about to ask for more than that
            rule = factory(learning_rate=1.0)
            jax.eval_shape(lambda p: rule.update(p, rule.init(p), p), jnp.zeros(1))
    except (TypeError, AttributeError, ValueError, Warning):
        return False
    return True
