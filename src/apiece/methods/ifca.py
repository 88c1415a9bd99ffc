"""IFCA: a model for each of a few groups; every client joins the group whose model suits it best."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import full_loss
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Cohort, Data, Loss, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize


def ifca(
    loss: Loss,
    *,
    groups: int = 2,
    apart: Positive = 0.1,
    steps: Tree = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A model for each of a few groups of clients; who belongs to which is found on the way.

    Client: k = argmin_j L_i(x_j) over its training examples; then FedAvg's work, from y = x_k.
    Server: x_k <- x_k + server_lr sum_i p_i (y_i - x_k) over the clients that chose k; a model that nobody chose stays.
    Start: x_k = x + apart s (n_k - mean n), n_k standard normal, and s, leaf by leaf, how far the initial model's
    numbers scatter (1 where they do not: a layer that starts at zero). groups = 1 is FedAvg, to the last digit.

    Solves: min over all x_k of sum_i p_i min_k L_i(x_k), which is k-means, of models: the start decides in which local
      optimum it ends, and a group may stay empty. Then other seeds help, or another `apart`.
    Sent: all x_k down; y - x_k and a number for each group, which say k, up.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: synchronous, one step a round, strongly convex losses, groups well apart, and a start within reach of
      their optima: linear convergence to the error of knowing the groups.
    Reference: Ghosh, Chung, Yin, Ramchandran 2020 (An efficient framework for clustered federated learning).

    Args:
        groups: how many models there are. apart: how far from one another they start.
        steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> method = ifca(lambda w, batch, key: ((w - batch.y) ** 2 * batch.weight).sum() / batch.weight.sum())
    >>> client = Data(x=jnp.zeros(2), y=jnp.array([3.0, 5.0]), start=0, size=2, capacity=2)
    >>> method.personal((), jnp.array([-1.0, 2.0]), client, jax.random.key(0)).item()
    2.0
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def choose(x: Params, data: Data, key: Tree) -> Tree:
        # One key for all groups, so that a loss that draws is compared alike; not FedAvg's, which its work spends.
        key = jax.random.fold_in(key, groups)
        losses = lax.map(lambda group: full_loss(loss, group, data, key), x)
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses))  # a model that diverged suits nobody

    def local(client: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        k = choose(x, data, key)
        client, update = base.local(client, tree.take(x, k), data, key)
        return client, (jax.nn.one_hot(k, groups, dtype=jnp.float32), update)

    def merge(x: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        chosen, updates = replies
        weight = jnp.where(cohort.weight[:, None] > 0, cohort.weight[:, None] * chosen, 0)
        return tree.step(x, server_lr, tree.stack([mean(updates, weight[:, k]) for k in range(groups)]))

    return base._replace(
        init=lambda params, key: start_apart(params, key, groups, apart),
        merge=merge,
        local=local,
        personal=lambda client, x, data, key: tree.take(x, choose(x, data, key)),
    )


def start_apart(params: Params, key: Tree, groups: int, apart: Tree) -> Params:
    """So many models around an initial one, stacked; their mean is that one, and a single one is that one itself.

    >>> start_apart(jnp.array([1.0, 2.0]), jax.random.key(0), groups=3, apart=0.1).mean(axis=0).round(5).tolist()
    [1.0, 2.0]
    """
    leaves, structure = jax.tree.flatten(params)

    def around(leaf: jax.Array, key: Tree) -> jax.Array:
        scatter = jnp.std(leaf)
        noise = jax.random.normal(key, (groups, *leaf.shape), leaf.dtype)
        away = jnp.where(scatter > 0, scatter, 1) * (noise - noise.mean(axis=0))
        return tree.step(jnp.broadcast_to(leaf, noise.shape), apart, away)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [around(*both) for both in zip(leaves, keys, strict=True)])
