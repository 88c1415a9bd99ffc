"""FedProto: every client trains a model of its own; what they share is how each class looks to them, on average."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece.client.descend import descend
from apiece.client.draw import FULL_CHUNK, whole
from apiece.methods.head import check_classes, check_features, head_size, see
from apiece.protocol import (
    Apply,
    Batch,
    Client,
    Cohort,
    Data,
    Loss,
    Message,
    Method,
    Params,
    Personal,
    Reply,
    Tree,
    apply_model,
    keep_work,
    trained_as,
)
from apiece.registry import FromZero, Passes, Pull, StepSize

UNKNOWN = 30.0  # how much further away than all others: a chance of e^-30, and never minus infinity


class Prototypes(NamedTuple):
    """What the server knows and says: the mean features of each class, and of which classes it has heard."""

    mean: jax.Array  # [classes, features]
    known: jax.Array  # [classes]


class Prototyped(NamedTuple):
    """A client's personal model, if it predicts by the nearest prototype."""

    params: Params
    prototypes: Prototypes


def fed_proto(
    loss: Loss,
    *,
    model: Any,
    lam: Pull = 0.1,
    nearest: bool = False,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
) -> Method:
    """Models of one's own, whose features of a class are pulled towards everybody's mean of that class.

    Client, f being what the last layer of its model v sees of an example (`model.features`): v <- v - lr G(v), `steps`
    times from where it stopped, G the gradient of L_i(v) + lam mean |f - c_y|^2 over those examples whose class y has a
    prototype c_y.  Then it says, class by class, the sum of its f and how many they are.
    Server: c_y <- the mean of f over all examples of class y of those who answered; a class that nobody has stays.
    lam = 0 is Local. Of a model with one layer f is the example itself, which nothing can pull: Local, too.

    Solves: min over each v_i of L_i(v_i) + lam mean |f_i - c_y|^2, with c_y the mean of all clients' f of class y.
    Sent: prototypes down; sums of features and counts of classes up: who has one example of a class sends its features.
    Kept: v by the client.
    Forgetting: every visit starts again from the initial model, and the prototypes are those of a first visit.
    Guarantee: synchronous, everybody taking part, smooth losses and bounded gradients: to a stationary point, for a
      small lr and lam.
    Late: a reply is made of sums and counts, and no update: a late one has the features of an older model, and counts
      as if it were new.
    Reference: Tan et al. 2022 (FedProto: federated prototype learning across heterogeneous clients).

    Args:
        model: the model that is trained; given by whoever runs the method. lam: strength of the pull. nearest: whether
        a client predicts the class whose prototype is nearest, and not by its own last layer. steps: local steps a
        round. epochs: passes over the data instead of `steps`. lr: step size. batch: examples a step, 0 for all.

    >>> from apiece.models import softmax
    >>> model = softmax((1,), 2)
    >>> method, params = fed_proto(lambda params, batch, key: 0.0, model=model), model.init(jax.random.key(0))
    >>> mine = Data(x=jnp.array([[1.0], [3.0], [4.0]]), y=jnp.array([0, 0, 1]), start=0, size=3, capacity=3)
    >>> _, (sums, counts) = method.local(params, method.init(params, None), mine, jax.random.key(0))
    >>> sums.tolist(), counts.tolist()
    ([[4.0], [4.0]], [2.0, 1.0])
    """

    def init(params: Params, key: Tree) -> Prototypes:
        classes, features = head_size("fed_proto", params)
        return Prototypes(jnp.zeros((classes, features), jax.tree.leaves(params)[0].dtype), jnp.zeros(classes, bool))

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        check_features("fed_proto", model, params, data)
        check_classes("fed_proto", model, params, data)
        return params

    def local(v: Client, c: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        def pulled(v: Params, some: Batch, key: Tree) -> jax.Array:
            away = jnp.square(see(model, v, some.x) - c.mean[some.y]).sum(axis=1)
            counted = some.weight * c.known[some.y]
            return loss(v, some, key) + lam * (counted * away).sum() / jnp.maximum(some.weight.sum(), 1)

        v = descend(trained_as(loss, pulled), v, data, key, steps=steps, epochs=epochs, lr=lr, batch=batch)
        return v, sum_classes(lambda x: see(model, v, x), data, c.mean)

    def merge(c: Prototypes, replies: Reply, cohort: Cohort, key: Tree) -> Prototypes:
        came = cohort.weight > 0
        total = lambda leaf: jnp.where(came.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0).sum(axis=0)
        sums, counts = map(total, replies)
        here = counts > 0
        mean = jnp.where(here[:, None], sums / jnp.where(here, counts, 1)[:, None], c.mean)
        return Prototypes(mean.astype(c.mean.dtype), c.known | here)

    def personal(v: Client, c: Message, data: Data, key: Tree) -> Personal:
        return Prototyped(v, c) if nearest else v

    def predict(apply: Apply, mine: Prototyped, x: Tree) -> jax.Array:
        return score(see(model, mine.params, x), mine.prototypes)

    return Method(
        init=init,
        message=lambda c, i: c,
        merge=merge,
        enroll=enroll,
        local=local,
        personal=personal,
        predict=predict if nearest else apply_model,
        keep=keep_work,
    )


def sum_classes(see: Any, data: Data, like: jax.Array) -> tuple[jax.Array, jax.Array]:
    """By class: the sum of the features of a client's examples, an array `like` that one, and how many they are.

    >>> mine = Data(x=jnp.array([[1.0], [2.0], [4.0], [8.0]]), y=jnp.array([2, 0, 2, 2]), start=0, size=3, capacity=4)
    >>> sums, counts = sum_classes(lambda x: x, mine, jnp.zeros((3, 1)))
    >>> sums.tolist(), counts.tolist()
    ([[2.0], [0.0], [5.0]], [1.0, 0.0, 2.0])
    """
    most = FULL_CHUNK if data.capacity is None else min(data.capacity, FULL_CHUNK)

    def chunk(c: Tree, total: tuple) -> tuple:
        some = whole(data, c * most, most)
        mine = some.weight[:, None].astype(like.dtype) * jax.nn.one_hot(some.y, len(like), dtype=like.dtype)
        return total[0] + (mine.T @ see(some.x)).astype(like.dtype), total[1] + mine.sum(axis=0)

    return lax.fori_loop(0, -(-data.size // most), chunk, (jnp.zeros_like(like), jnp.zeros(len(like), like.dtype)))


def score(features: jax.Array, prototypes: Prototypes) -> jax.Array:
    """[batch, classes]: minus the squared distance to each prototype; a class without one is further than all others.

    >>> two = Prototypes(jnp.array([[0.0], [3.0], [0.0]]), jnp.array([True, True, False]))
    >>> score(jnp.array([[1.0]]), two).tolist()
    [[-1.0, -4.0, -34.0]]
    """
    squared = jnp.square(features[:, None] - prototypes.mean).sum(axis=2)
    farthest = jnp.where(prototypes.known, squared, 0).max(axis=1, keepdims=True)
    return -jnp.where(prototypes.known, squared, farthest + UNKNOWN)
