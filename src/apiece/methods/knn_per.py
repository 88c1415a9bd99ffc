"""kNN-Per: the shared model, and a memory of the client's own examples beside it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece.client.weigh import map_rows, rows_known
from apiece.errors import UserError
from apiece.methods.fed_avg import fed_avg
from apiece.methods.head import see
from apiece.protocol import Apply, Client, Data, Loss, Message, Method, Params, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize, TunedShare


class Memory(NamedTuple):
    """A client's personal model: the shared one, what it sees of the client's training examples, and how both mix.

    A row of weight 0 holds no example. Whatever a prediction needs is here, so that a saved model is whole.
    """

    params: Params
    features: jax.Array  # [rows, features]
    labels: jax.Array  # [rows]: classes; or [rows, ...]: numbers
    weight: jax.Array  # [rows]
    mix: jax.Array
    scale: jax.Array


def knn_per(
    loss: Loss,
    *,
    model: Any,
    mix: TunedShare = 0.5,
    neighbours: int = 10,
    scale: Positive = 1.0,
    steps: Tree = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """The shared model, corrected by the client's own examples that are most like the one at hand.

    Client and server train x as FedAvg. A client then predicts by mix q + (1 - mix) p: p is what the model says, and
    q(y) is proportional to the sum of exp(-|f - f_j|^2 / scale) over those of the `neighbours` nearest of its training
    examples whose label is y; f is what the model's last layer sees of an example (`model.features`), or the example
    itself, flattened, if the model does not tell or has no other layer (pictures then count from 0 to 1).
    So for classes, whose probabilities p and q are; of numbers, q is the neighbours' mean with the same weights.
    mix = 0 is FedAvg, mix = 1 k nearest neighbours.

    Solves: FedAvg's problem for x; beside it nothing is trained.
    Sent: x down, y - x up.
    Kept: nothing. The personal model holds the client's training examples, as features: it is as private as they are.
    Forgetting: the same; nothing is kept.
    Guarantee: FedAvg's for x; the risk of the mixture is bounded where the classes' chances are Lipschitz in f.
    Reference: Marfoq et al. 2022 (Personalized federated learning through local memorization).

    Args:
        model: the model that is trained; given by whoever runs the method. mix: the share of the neighbours.
        neighbours: how many are looked at. scale: of squared distances; the authors' programs take as many as there are
        features. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> from apiece.models import softmax
    >>> model = softmax((2,), 3)
    >>> method = knn_per(lambda params, batch, key: 0.0, model=model, mix=0.4, neighbours=1)
    >>> mine = Data(x=jnp.array([[0.0, 0.0], [5.0, 5.0]]), y=jnp.array([2, 0]), start=0, size=2, capacity=2)
    >>> memory = method.personal((), model.init(jax.random.key(0)), mine, jax.random.key(0))
    >>> said = jnp.exp(method.predict(model.apply, memory, jnp.array([[1.0, 0.0]])))
    >>> (100 * said).round().tolist()  # percent: 0.6 / 3 for each, and 0.4 for the neighbour's
    [[20.0, 20.0, 60.0]]
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)

    def enroll(params: Params, x: Message, data: Data, key: Tree) -> Client:
        check_outputs(model, params, data)
        return base.enroll(params, x, data, key)

    def personal(client: Client, x: Message, data: Data, key: Tree) -> Memory:
        remember = lambda some: (see(model, x, some.x), some.y, some.weight)
        memory = map_rows(remember, data, rows_known(data, "knn_per"))
        features, labels, weight = memory
        return Memory(x, features, labels, weight, *(jnp.asarray(number, features.dtype) for number in (mix, scale)))

    def predict(apply: Apply, memory: Memory, x: Tree) -> jax.Array:
        outputs = apply(memory.params, x)
        share, which = nearest(memory, see(model, memory.params, x), neighbours)
        labels = memory.labels[which]  # [batch, neighbours, ...]
        asked = (memory.weight > 0).any()  # who has no examples asks nobody
        mix = jnp.where(asked, memory.mix, 0).astype(outputs.dtype)
        if outputs.ndim == memory.labels.ndim:
            return (1 - mix) * outputs + mix * jnp.einsum("bk,bk...->b...", share, labels).astype(outputs.dtype)
        votes = jnp.einsum("bk,bkc->bc", share, jax.nn.one_hot(labels, outputs.shape[-1], dtype=share.dtype))
        # As logarithms, which are logits: a class that no neighbour has is unlikely, and never minus infinity.
        q = jnp.log(jnp.maximum(votes, jnp.finfo(votes.dtype).tiny)).astype(outputs.dtype)
        return jnp.logaddexp(jnp.log1p(-mix) + jax.nn.log_softmax(outputs), jnp.log(mix) + q)

    return base._replace(enroll=enroll, personal=personal, predict=predict)


def nearest(memory: Memory, features: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """(weights that sum to 1, rows), both [batch, count], of the nearest examples of a memory, the nearest first.

    >>> rows, half = (jnp.array([[0.0], [3.0], [1.0]]), jnp.arange(3), jnp.array([1.0, 1.0, 0.0])), jnp.array(0.5)
    >>> memory = Memory((), *rows, mix=half, scale=half)
    >>> nearest(memory, jnp.array([[2.0]]), 5)[1].tolist()
    [[1, 0, 2]]
    """
    product = jnp.matmul(features, memory.features.T, precision="highest")
    length = lambda rows: jnp.sum(rows * rows, axis=1)
    squared = jnp.maximum(length(features)[:, None] + length(memory.features) - 2 * product, 0)
    near = jnp.where(memory.weight > 0, -squared / memory.scale, -jnp.inf)
    near, which = lax.top_k(near, min(count, near.shape[1]))
    return jnp.where(near > -jnp.inf, jax.nn.softmax(near), 0), which


def check_outputs(model: Any, params: Params, data: Data) -> None:
    """An example has one class, or numbers that the model gives as many of: else there is nothing to mix.

    >>> from apiece.models import char_lstm
    >>> model, text = char_lstm(5, embed=2, width=3, layers=1), jnp.zeros((1, 4), int)
    >>> try: check_outputs(model, model.init(jax.random.key(0)), Data(text, text, 0, 1, 1))
    ... except UserError as error: print(error)
    method 'knn_per' mixes the class or the numbers of an example with its neighbours'; here a label has the shape (4,)
    and lstm 5-2-3-5 answers with (4, 5): take a model and data with one answer an example, or another method
    """
    given = jax.eval_shape(lambda x: model.apply(params, jax.tree.map(lambda leaf: leaf[:1], x)), data.x)
    outputs, labels = ([leaf.shape[1:] for leaf in jax.tree.leaves(side)] for side in (given, data.y))
    whole_numbers = all(jnp.issubdtype(leaf.dtype, jnp.integer) for leaf in jax.tree.leaves(data.y))
    classes = whole_numbers and labels == [()] and [len(shape) for shape in outputs] == [1]
    if not classes and (outputs != labels or len(labels) > 1):
        told, name = lambda shapes: " and ".join(map(str, shapes)), getattr(model, "name", "the model")
        raise UserError(
            "method 'knn_per' mixes the class or the numbers of an example with its neighbours'; here a label has the "
            f"shape {told(labels)} and {name} answers with {told(outputs)}: take a model and data with one answer an "
            "example, or another method"
        )
