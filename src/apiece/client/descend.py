"""What a client does with its data: take its loss, a gradient, descend."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from apiece import tree
from apiece.client.draw import FULL_CHUNK, places, rows, shuffler, whole
from apiece.protocol import Batch, Data, Loss, Params, Tree

PLANNED_DRAWS = 1 << 16  # up to so many examples, a client's draws are planned before its first step
TOGETHER_DRAWS = 1 << 13  # up to so many are gathered for a loss that takes all steps in one call
GRADIENT_MARK = "apiece_gradient"  # names each gradient in the traced program, so that costs can be counted


def full_gradient(loss: Loss, params: Params, data: Data, key: Tree) -> Params:
    """The gradient of the mean loss over all of the client's examples.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 1.0, 2.0, 9.0]), start=0, size=3, capacity=4)
    >>> float(full_gradient(loss, jnp.array(5.0), data, jax.random.key(0)))
    4.0
    """
    most = FULL_CHUNK if data.capacity is None else min(data.capacity, FULL_CHUNK)
    if data.capacity is not None and data.capacity <= most:
        return gradient(loss, params, whole(data, 0, most), key)

    def chunk(c: jax.Array, total: Tree) -> Tree:
        batch = whole(data, c * most, most)
        g = jax.grad(loss)(params, batch, jax.random.fold_in(key, c))
        return tree.step(total, batch.weight.sum().astype(exact) / size, g)

    exact = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    size = checkpoint_name(jnp.asarray(data.size), GRADIENT_MARK)  # one mark for all chunks: they are one gradient
    return lax.fori_loop(0, -(-data.size // most), chunk, tree.zeros(params))


def full_loss(loss: Loss, params: Params, data: Data, key: Tree) -> jax.Array:
    """The mean loss over all of the client's examples, as many at once as a full gradient takes; no gradient is taken.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 1.0, 2.0, 9.0]), start=0, size=3, capacity=4)
    >>> round(float(full_loss(loss, jnp.array(1.0), data, jax.random.key(0))), 4)
    0.3333
    """
    most = FULL_CHUNK if data.capacity is None else min(data.capacity, FULL_CHUNK)

    def chunk(c: Tree, total: jax.Array) -> jax.Array:
        batch = whole(data, c * most, most)
        share = batch.weight.sum() / data.size
        return total + (share * loss(params, batch, jax.random.fold_in(key, c))).astype(total.dtype)

    return lax.fori_loop(0, -(-data.size // most), chunk, jnp.zeros((), jax.tree.leaves(params)[0].dtype))


def gradient(loss: Loss, params: Params, batch: Batch, key: Tree) -> Params:
    """The gradient of the loss over one batch; every gradient of the library goes through here, to be counted.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> float(gradient(loss, jnp.array(5.0), Batch(jnp.zeros(2), jnp.array([0.0, 4.0]), jnp.ones(2)), None))
    3.0
    """
    return jax.grad(loss)(params, _marked(batch), key)


def _marked(batch: Batch) -> Batch:
    return batch._replace(weight=checkpoint_name(batch.weight, GRADIENT_MARK))


def steps_taken(data: Data, steps: Tree, epochs: Tree | None, batch: int) -> Tree:
    """How many steps `descend` takes on this client: `steps`, or `epochs` passes over its data.

    >>> steps_taken(Data(x=None, y=None, start=0, size=70), steps=20, epochs=2, batch=32)
    6
    """
    if epochs is None:
        return steps
    return epochs * (-(-data.size // batch) if batch else 1)


def descend(
    loss: Loss,
    params: Params,
    data: Data,
    key: Tree,
    *,
    steps: Tree = 20,
    epochs: Tree | None = None,
    lr: Tree = 0.1,
    batch: int = 32,
    shift: Callable[[Params], Params] | None = None,
    optimizer: optax.GradientTransformation | None = None,
) -> Params:
    """Gradient descent on the client's own data: p <- p - lr * (gradient at p + shift(p)).

    With `steps`, every step draws a fresh batch of distinct examples; with `epochs` (which then rules), each pass
    goes through a new random order of all examples. `batch=0` takes the gradient over all of them. `shift` adds to
    the gradient (a pull towards a centre, a control variate); `optimizer` is any optax transformation of it
    (`optax.scale_by_adam()`, `optax.trace(0.9)`), applied before the step of size `lr`. Both counts may be traced.
    A loss with an `optimizer` of its own (`apiece.client.optimize`) is descended by that one, unless another is given.
    A loss with a function `sgd(params, batches, keys, lr)`, as a torch module's, takes a known number of plain steps by
    one call of it.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(3), y=jnp.array([0.0, 1.0, 2.0]), start=0, size=3, capacity=3)
    >>> float(descend(loss, jnp.array(5.0), data, jax.random.key(0), steps=50, lr=0.5, batch=0).round(4))
    1.0
    """
    batch_key, loss_key = jax.random.split(key)
    begin, end = (lambda params: optimizer.init(params) if optimizer is not None else ()), lambda memory: None
    if optimizer is None and getattr(loss, "optimizer", None) is not None:
        optimizer, begin, end = loss.optimizer, loss.begin, loss.end  # type: ignore[attr-defined]
    shuffle = shuffler(batch_key, data.size)
    count = steps_taken(data, steps, epochs, batch)
    per_epoch = 1 if epochs is None else steps_taken(data, 1, 1, batch)
    which = lambda k: places(data, shuffle, batch, k // per_epoch, k % per_epoch)
    if batch and isinstance(count, int) and 0 < count * batch <= PLANNED_DRAWS:
        planned = jax.vmap(which)(jnp.arange(count))  # the same draws, a quarter cheaper than one step at a time
        which = lambda k: tree.take(planned, k)
        together = getattr(loss, "sgd", None)
        if together is not None and shift is None and optimizer is None and count * batch <= TOGETHER_DRAWS:
            # Each batch is marked as it is drawn, in a loop of known length: the steps are counted as if taken here.
            ahead = lambda k: (_marked(rows(data, *which(k))), jax.random.fold_in(loss_key, k))
            return together(params, *lax.map(ahead, jnp.arange(count)), lr)

    def direction(p: Params, k: Tree) -> Params:
        step_key = jax.random.fold_in(loss_key, k)
        if not batch:
            return full_gradient(loss, p, data, step_key)
        return gradient(loss, p, rows(data, *which(k)), step_key)

    def step(k: Tree, carry: tuple) -> tuple:
        p, memory = carry
        g = direction(p, k)
        if shift is not None:
            g = tree.add(g, shift(p))
        if optimizer is not None:
            g, memory = optimizer.update(g, memory, p)
        return tree.step(p, -lr, g), memory

    params, memory = lax.fori_loop(0, count, step, (params, begin(params)))
    end(memory)
    return params


def toward(center: Params, lam: Tree) -> Callable[[Params], Params]:
    """The gradient of lam/2 |p - center|^2, as a shift for `descend`.

    >>> toward(jnp.array(1.0), 0.5)(jnp.array(3.0)).item()
    1.0
    """
    return lambda p: tree.scale(lam, tree.sub(p, center))


def shrink(ridge: Tree) -> Callable[[Params], Params]:
    """The gradient of ridge/2 |p|^2, as a shift for `descend`; biases and scales are free, where there are matrices.

    An intercept that is pulled to zero would be wrong for a client whose labels are not centred there.

    >>> shrink(0.5)({"w": jnp.ones((1, 2)), "b": jnp.ones(1)})
    {'b': Array([0.], dtype=float32), 'w': Array([[0.5, 0.5]], dtype=float32)}
    >>> shrink(0.5)(jnp.ones(2)).tolist()
    [0.5, 0.5]
    """

    def pull(p: Params) -> Params:
        matrices = any(leaf.ndim > 1 for leaf in jax.tree.leaves(p))
        free = lambda leaf: matrices and leaf.ndim < 2
        return jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if free(leaf) else tree.scale(ridge, leaf), p)

    return pull
