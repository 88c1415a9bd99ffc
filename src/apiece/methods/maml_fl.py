"""MAML-FL (Per-FedAvg): a shared model that is good after one step, not before."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.solve import slopes
from apiece.errors import UserError, suggest
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize
from apiece.wrap import fine_tuned

ORDERS = ("first", "free", "exact")


def maml_fl(
    loss: Loss,
    *,
    order: str = "first",
    steps: int = 20,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    tune_lr: StepSize = 0.1,
    tune_epochs: Passes | None = 10,
    tune_steps: int = 1,
    delta: Positive | None = None,
) -> Method:
    """Train the shared model for what it becomes after a client's own step.

    Client, from y = x, `steps` times with three batches D, D', D'': g = G(y - tune_lr G(y; D); D'), then
    exact: y <- y - lr [g - tune_lr H(y; D'') g];  first: y <- y - lr g;
    free: as exact with H g ~ [G(y + d g; D'') - G(y - d g; D'')] / 2d, d = `delta` or 1e-3 (1 + |y|) / |g|.
    Server as FedAvg. Personal: `tune_epochs` passes (or `tune_steps` steps) of size tune_lr from x, on training data.

    Solves: min sum_i p_i L_i(x - tune_lr G_i(x)); "first" has another fixed point than the others.
    Sent: x down, y - x up; and x once more at the end.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: synchronous, smooth losses; exact asymptotic risk for linear models.
    Reference: Fallah et al. 2020; Cheng, Chadha and Duchi 2021.

    Args:
        order: how the second derivative enters. steps: local steps a round. lr: outer step size.
        tune_lr: inner step size, also of the personalization. batch: examples a batch, 0 for all.
        tune_epochs: passes of personalization; none: `tune_steps` steps instead (the original takes one).
        delta: d of order "free", as published 1e-3 or 1e-5; none: by the lengths of y and g.

    >>> maml_fl(lambda params, batch, key: 0.0, order="exact").message("the model", 3)
    'the model'
    """
    if order not in ORDERS:
        raise UserError(f"option 'order' of method 'maml_fl' is not {order!r}: {suggest(order, ORDERS)}")
    if delta is not None and order != "free":
        raise UserError(f"option 'delta' of method 'maml_fl' is for order 'free', not '{order}'; leave it out")

    def local(client: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        slope = slopes(data, key, batch=batch)

        def outer(k: Tree, y: Params) -> Params:
            first, second, third = (partial(slope, 3 * k + j, loss) for j in range(3))
            g = second(tree.step(y, -tune_lr, first(y)))
            if order == "first":
                return tree.step(y, -lr, g)
            if order == "exact":
                curved = jax.jvp(third, (y,), (g,))[1]
            else:
                # Relative to both lengths: a fixed width drowns in rounding once the gradient is small.
                by_rule = lambda: 1e-3 * (1 + tree.norm(y)) / jnp.maximum(tree.norm(g), 1e-12)
                width = by_rule() if delta is None else delta
                ahead, behind = third(tree.step(y, width, g)), third(tree.step(y, -width, g))
                curved = tree.scale(0.5 / width, tree.sub(ahead, behind))
            return tree.step(y, -lr, tree.step(g, -tune_lr, curved))

        return client, tree.sub(lax.fori_loop(0, steps, outer, x), x)

    base = fed_avg(loss)._replace(local=local)
    return fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch)
