"""APFL: the personal model is a mixture of an own one and the shared one."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import steps_taken
from apiece.client.solve import slopes
from apiece.errors import UserError
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, Passes, Positive, Share, StepSize


def apfl(
    loss: Loss,
    *,
    mix: Share = 0.5,
    adapt: bool = False,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A client uses a v + (1 - a) x: its own model v, mixed with the shared one (Deng et al. 2020).

    Client, from y = x and the v it kept, `steps` times with m = a v + (1 - a) y:
    y <- y - lr G_i(y);  v <- v - lr a G_i(m);  and if it adapts, a <- a - lr <v - y, G_i(m)>, held within 0 and 1
    (all three from the same y, v, a and batch).
    Server: x <- x + server_lr sum_i p_i (y_i - x), as FedAvg. a = 0 is FedAvg, a = 1 is Local.

    Solves: min over v_i of L_i(a v_i + (1 - a) x) for each client, x being FedAvg's.
    Sent: x down, y - x up.
    Kept: v, and a if it adapts, by the client.
    Forgetting: v starts each round at x (and a at `mix`): a locally tuned FedAvg.
    Guarantee: synchronous, for a fixed mixture and decreasing lr (Deng et al. 2020).
    Reference: Deng et al. 2020 (Adaptive personalized federated learning).

    Args:
        mix: a, the share of the own model, from 0 to 1. adapt: whether each client learns its own, from `mix` on.
        steps, epochs, lr, batch, server_lr: FedAvg's; steps and lr are also v's.

    >>> apfl(lambda params, batch, key: 0.0, mix=0.25).personal(jnp.array(4.0), jnp.array(0.0), None, None).item()
    1.0
    """
    if isinstance(mix, float | int) and not 0 <= mix <= 1:
        raise UserError(f"option 'mix' of method 'apfl' is a share from 0 to 1, not {mix!r}")

    def state(v: Params, share: Tree) -> Client:
        # Without adapting, the share is a hyper-parameter and not a memory.
        return (v, share) if adapt else v

    def read(client: Client) -> tuple[Params, Tree]:
        return client if adapt else (client, mix)

    def enroll(params: Params, x: Params, data: Data, key: Tree) -> Client:
        return state(x, jnp.asarray(mix, jax.tree.leaves(x)[0].dtype))

    def local(client: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        slope = slopes(data, key, epochs=epochs, batch=batch)

        def step(k: Tree, carry: tuple) -> tuple:
            y, client = carry
            v, a = read(client)
            mixed = slope(k, loss, tree.mix(y, v, a))
            moved = tree.step(v, -lr * a, mixed)
            if adapt:
                a = jnp.clip(tree.step(a, -lr, tree.dot(tree.sub(v, y), mixed)), 0, 1)
            return tree.step(y, -lr, slope(k, loss, y)), state(moved, a)

        y, client = lax.fori_loop(0, steps_taken(data, steps, epochs, batch), step, (x, client))
        return client, tree.sub(y, x)

    return fed_avg(loss, server_lr=server_lr)._replace(
        enroll=enroll,
        local=local,
        personal=lambda client, x, data, key: tree.mix(x, *read(client)),
        keep=keep_work,
    )
