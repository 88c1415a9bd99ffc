"""Fed-RoD: a shared model for whom all classes count alike, and a head of one's own that knows one's own classes."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import descend
from apiece.client.draw import FULL_CHUNK, whole
from apiece.client.weigh import weighted_loss
from apiece.methods.fed_avg import fed_avg
from apiece.methods.head import check_classes
from apiece.protocol import Batch, Client, Data, Loss, Method, Params, Reply, Tree, keep_work, trained_as
from apiece.registry import FromZero, NotNegative, Passes, Positive, StepSize
from apiece.split import divide, join, part_of


def fed_rod(
    loss: Loss,
    *,
    model: Any,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    head_lr: NotNegative = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """Two heads on shared features: a generic one, trained as if all classes were as frequent, and one's own beside it.

    The model is (x, u), u its last layer. A client has a v like u, from zero on, and predicts by the sum of what both
    say, which is what the layer u + v says: its personal model is (x, u + v).
    Client: y <- y - lr B_i(y), `steps` times from y = (x, u), B_i the gradient of mean_t c_t l_t, c_t = n / (m n_t):
    of the client's n examples, of m classes, n_t have the class of example t; so each of its classes counts as much.
    And v <- v - head_lr dL_i/dv(x, u + v), `steps` times from where it stopped: the plain loss, at the received (x, u).
    Server: (x, u) <- (x, u) + server_lr sum_i p_i (y_i - (x, u)).

    Solves: min sum_i p_i L_i over (x, u) with classes that count alike, up to FedAvg's drift; and min L_i(x, u + v_i).
    Sent: (x, u) down, an update of it up.
    Kept: v by the client.
    Forgetting: v starts each visit at zero.
    Guarantee: FedAvg's, for the shared model; none is known for v while that one moves.
    Reference: Chen, Chao 2022 (On bridging generic and personalized federated learning for image classification).

    Args:
        model: the model that is trained; given by whoever runs the method. steps, epochs, batch: FedAvg's, for (x, u)
        and once more for v. lr: step size of the shared model. head_lr: that of v; 0: everybody uses the shared model.
        server_lr: FedAvg's.

    >>> from apiece.models import softmax
    >>> model = softmax((2,), 3)
    >>> method, params = fed_rod(lambda params, batch, key: 0.0, model=model), model.init(jax.random.key(0))
    >>> mine = Data(x=jnp.zeros((3, 2)), y=jnp.array([0, 0, 2]), start=0, size=3, capacity=3)
    >>> jax.tree.map(jnp.shape, method.enroll(params, params, mine, jax.random.key(0)))
    {'b': (3,), 'w': (3, 2)}
    """
    train = partial(descend, steps=steps, epochs=epochs, batch=batch)

    def enroll(params: Params, x: Params, data: Data, key: Tree) -> Client:
        check_classes("fed_rod", model, params, data)
        return tree.zeros(divide(params, part_of(params, "output"))[1])

    def together(x: Params, v: Client) -> Params:
        below, u = divide(x, part_of(x, "output"))
        return join(below, tree.add(u, v))

    def local(v: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        own_key = jax.random.fold_in(key, 1)  # not FedAvg's, which the work on the shared model spends
        counts = count_classes(data, check_classes("fed_rod", model, x, data), jax.tree.leaves(x)[0].dtype)
        alike = data.size / (jnp.maximum(counts, 1) * (counts > 0).sum())

        def balanced(y: Params, some: Batch, key: Tree) -> jax.Array:
            return weighted_loss(loss, y, some, alike[some.y], key)

        beside = lambda v, some, key: loss(together(x, v), some, key)
        y = train(trained_as(loss, balanced), x, data, key, lr=lr)
        return train(trained_as(loss, beside), v, data, own_key, lr=head_lr), tree.sub(y, x)

    return fed_avg(loss, server_lr=server_lr)._replace(
        enroll=enroll,
        local=local,
        personal=lambda v, x, data, key: together(x, v),
        keep=keep_work,
    )


def count_classes(data: Data, classes: int, dtype: Any = jnp.float32) -> jax.Array:
    """[classes]: how many of a client's examples are of each.

    >>> count_classes(Data(x=None, y=jnp.array([1, 0, 2, 2, 0]), start=1, size=3, capacity=4), 4).tolist()
    [1.0, 0.0, 2.0, 0.0]
    """
    most = FULL_CHUNK if data.capacity is None else min(data.capacity, FULL_CHUNK)

    def chunk(c: Tree, total: jax.Array) -> jax.Array:
        some = whole(data, c * most, most)
        return total + some.weight.astype(dtype) @ jax.nn.one_hot(some.y, classes, dtype=dtype)

    return lax.fori_loop(0, -(-data.size // most), chunk, jnp.zeros(classes, dtype))
