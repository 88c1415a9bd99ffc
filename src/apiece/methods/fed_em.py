"""FedEM: a few shared models; every client uses its own mixture of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import descend
from apiece.client.draw import rows
from apiece.client.weigh import each_loss, map_rows, rows_known, weighted_loss
from apiece.methods.fed_avg import fed_avg
from apiece.methods.ifca import start_apart
from apiece.protocol import Apply, Batch, Client, Data, Loss, Method, Params, Reply, Tree, keep_work, trained_as
from apiece.registry import FromZero, Passes, Positive, StepSize


class Mixture(NamedTuple):
    """A client's personal model: the shared models, the share of each, and what a label looks like.

    The label is all zeros: its shape and its type tell a prediction whether it is one of classes or of numbers.
    """

    models: Params  # stacked
    pi: jax.Array  # [components]
    label: Tree


def fed_em(
    loss: Loss,
    *,
    components: int = 3,
    apart: Positive = 0.1,
    pi_steps: int = 10,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A few shared models; a client predicts by a mixture of them, in shares that it finds on its own data.

    Client, with losses l_t of its n examples: q_t(j) = pi_j exp(-l_t(x_j)) / sum_m pi_m exp(-l_t(x_m)), which tells how
    well model j explains example t;  pi_j <- mean_t q_t(j);  and from y_j = x_j, `steps` times with q held:
    y_j <- y_j - lr G_ij(y_j), the gradient of mean_t q_t(j) l_t: a model that explains nothing here does not move.
    Server: x_j <- x_j + server_lr sum_i p_i (y_ij - x_j). Start: as IFCA's models, `apart`.
    Of classes, the mixture is that of the predicted probabilities; of numbers, the mean. One component is FedAvg.

    Solves: min over all x_j and pi_i of -sum_i p_i mean_t log sum_j pi_ij exp(-l_t(x_j)), up to FedAvg's drift and to
      a local optimum: maximum likelihood, if clients' examples are drawn from mixtures of the same few distributions.
    Sent: all x_j down, all y_j - x_j up; pi never.
    Kept: pi by the client.
    Forgetting: every round begins with equal shares, so that q tells the models apart less well.
    Guarantee: synchronous, also with sampled clients, to a stationary point, for smooth losses and a decreasing lr.
    Reference: Marfoq et al. 2021 (Federated multi-task learning under a mixture of distributions).

    Args:
        components: how many models there are. apart: how far from one another they start. pi_steps: times that a
        client, also a new one, fits pi to the models before it uses them. steps, epochs, lr, batch, server_lr: as in
        FedAvg, for each of the models.

    >>> method = fed_em(lambda w, batch, key: ((w - batch.y) ** 2 * batch.weight).sum() / batch.weight.sum())
    >>> mine = Data(x=jnp.zeros(3), y=jnp.array([4.9, 5.0, 9.1]), start=0, size=3, capacity=3)
    >>> found = method.personal(jnp.ones(3) / 3, jnp.array([1.0, 5.0, 9.0]), mine, jax.random.key(0))
    >>> [round(share, 2) for share in found.pi.tolist()]
    [0.0, 0.67, 0.33]
    """
    base = fed_avg(loss, server_lr=server_lr)

    def explain(x: Params, data: Data, key: Tree) -> jax.Array:
        """[rows, components]: -l_t(x_j)."""
        # One key for all models, so that a loss that draws is compared alike; not the one that training spends.
        key = jax.random.fold_in(key, components)
        of = lambda some: lax.map(lambda model: each_loss(loss, model, some, key), x).T
        found = -map_rows(of, data, rows_known(data, "fed_em"))
        return jnp.where(jnp.isnan(found), -jnp.inf, found).astype(jax.tree.leaves(x)[0].dtype)

    def shares(q: jax.Array, data: Data) -> jax.Array:
        mine = jnp.arange(len(q)) < data.size
        return jnp.where(mine[:, None], q, 0).sum(axis=0) / jnp.maximum(data.size, 1).astype(q.dtype)

    def local(pi: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        q = belief(pi, explain(x, data, key))
        # Batches are drawn of places and their q; the examples are looked up when they are used, and never copied.
        places = Data(jnp.arange(len(q)), q, 0, data.size, len(q))

        def train(j: Tree, model: Params, key: Tree) -> Params:
            def explained(model: Params, drawn: Batch, key: Tree) -> jax.Array:
                some = rows(data, drawn.x, drawn.weight > 0)._replace(weight=drawn.weight)
                return weighted_loss(loss, model, some, drawn.y[:, j], key)

            how = trained_as(loss, explained)
            return descend(how, model, places, key, steps=steps, epochs=epochs, lr=lr, batch=batch)

        # The same key, so the same batches, for all models.
        y = lax.map(lambda given: train(*given), (jnp.arange(components), x, jnp.broadcast_to(key, components)))
        return shares(q, data), tree.sub(y, x)

    def personal(pi: Client, x: Params, data: Data, key: Tree) -> Mixture:
        explained = explain(x, data, key)
        pi = lax.fori_loop(0, pi_steps, lambda _, pi: shares(belief(pi, explained), data), pi)
        return Mixture(x, pi, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), data.y))

    return base._replace(
        init=lambda params, key: start_apart(params, key, components, apart),
        enroll=lambda params, x, data, key: jnp.full(components, 1 / components, jax.tree.leaves(x)[0].dtype),
        local=local,
        personal=personal,
        predict=predict_mixed,
        keep=keep_work,
    )


def belief(pi: jax.Array, explained: jax.Array) -> jax.Array:
    """[rows, components]: how likely it is that an example is explained by each of the models.

    >>> belief(jnp.array([0.5, 0.5]), jnp.array([[0.0, 0.0], [0.0, -jnp.inf]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    return jax.nn.softmax(jnp.log(pi) + explained, axis=1)


def predict_mixed(apply: Apply, mixture: Mixture, x: Tree) -> Tree:
    """Logarithms of the mixed probabilities of classes, or the mean of numbers.

    >>> mixture = Mixture(jnp.array([1.0, 3.0]), pi=jnp.array([0.75, 0.25]), label=jnp.array(0.0))
    >>> predict_mixed(lambda w, x: w * x, mixture, jnp.array([2.0])).tolist()
    [3.0]
    """
    outputs = lax.map(lambda model: apply(model, x), mixture.models)  # [components, batch, ...]
    label, given = jax.tree.leaves(mixture.label)[0], jax.tree.leaves(outputs)[0]
    if jnp.issubdtype(label.dtype, jnp.integer) and given.ndim == label.ndim + 3:
        pi = mixture.pi.astype(given.dtype).reshape(-1, *[1] * (given.ndim - 1))
        return jax.nn.logsumexp(jnp.log(pi) + jax.nn.log_softmax(given), axis=0)
    return jax.tree.map(lambda leaf: jnp.einsum("k,k...->...", mixture.pi.astype(leaf.dtype), leaf), outputs)
