"""FedAvg on a part of the model: FedPer, FedRep, LG-FedAvg and FedBN are splits of one method."""

from functools import partial as bound

import jax

from apiece import tree
from apiece.client.descend import descend
from apiece.client.solve import alternate
from apiece.errors import UserError, suggest
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, InnerStepSize, NotNegative, Passes, Positive, StepSize
from apiece.split import divide, given, join, paths, split

ORDERS = ("together", "private_first", "alternate")


def partial(
    loss: Loss,
    *,
    private: str = "output",
    order: str = "together",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    inner_steps: FromZero = 20,
    inner_epochs: Passes | None = None,
    inner_lr: NotNegative = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg on the shared part of the model; every client keeps a private part of its own (Pillutla et al. 2022).

    The model is (x, v): x shared, v private. Client, from y = x and the v it kept:
    together: (y, v) <- (y, v) - lr G_i(y, v), `steps` times;
    private_first: v <- v - inner_lr dL_i/dv(x, v), `inner_steps` times, then y <- y - lr dL_i/dx(y, v), `steps` times;
    alternate: a step of size inner_lr on v, then one of size lr on y, `steps` times.
    Server: x <- x + server_lr sum_i p_i (y_i - x). The known methods of this kind:

    | method    | private                  | order         |
    | --------- | ------------------------ | ------------- |
    | fed_per   | the output layer         | together      |
    | fed_rep   | the output layer         | private_first |
    | lg_fed_avg | all but the output layer | together      |
    | fed_bn    | normalization layers     | together      |

    Solves: min over x and all v_i of sum_i p_i L_i(x, v_i), up to FedAvg's drift.
    Sent: x down, y - x up; nothing private ever.
    Kept: v by the client.
    Forgetting: v starts each round at its initial values.
    Guarantee: synchronous, to a stationary point, for a small lr ("private_first" and "together").
    Reference: Pillutla et al. 2022 (Federated learning with partial model personalization).

    Args:
        private: which part stays with the client, see `apiece.split`. order: how the two are trained. steps: local
        steps a round. epochs: passes over the client's data instead of `steps`. lr: step size. inner_steps, inner_lr:
        steps on v alone and their size, of the orders that have such (not tuned: the default has not). inner_epochs:
        passes over the data instead of `inner_steps`. batch: examples a step, 0 for all.
        server_lr: step of the server along the mean update.

    >>> partial(lambda params, batch, key: 0.0, private="b").init({"w": 1.0, "b": 2.0}, None)
    {'b': None, 'w': 1.0}
    """
    if order not in ORDERS:
        raise UserError(f"option 'order' of method 'partial' is not {order!r}: {suggest(order, ORDERS)}")
    train = bound(descend, steps=steps, epochs=epochs, lr=lr, batch=batch)
    alone = dict(steps=inner_steps, epochs=inner_epochs, lr=inner_lr, batch=batch)  # on v

    def work(x: Params, v: Params, data: Data, key: Tree) -> tuple[Params, Params]:
        if order == "together":
            own = paths(v)
            return divide(train(loss, join(x, v), data, key), lambda path: path in own)
        if order == "alternate":
            how = dict(steps=steps, epochs=epochs, lr=lr, own_lr=inner_lr, batch=batch)
            return alternate(loss, x, v, data, key, **how)
        own_key, shared_key = jax.random.split(key)
        v = descend(given(loss, x), v, data, own_key, **alone)
        return train(given(loss, v), x, data, shared_key), v

    def local(v: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        y, v = work(x, v, data, key)
        return v, tree.sub(y, x)

    return fed_avg(loss, server_lr=server_lr)._replace(
        init=lambda params, key: split(params, private)[0],
        enroll=lambda params, x, data, key: split(params, private)[1],
        local=local,
        personal=lambda v, x, data, key: join(x, v),
        keep=keep_work,
    )


def fed_per(
    loss: Loss,
    *,
    private: str = "output",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg whose clients each have an output layer of their own (Arivazhagan et al. 2019).

    Client, from y = x and the v it kept: (y, v) <- (y, v) - lr G_i(y, v), `steps` times, v the private layer.
    Server: x <- x + server_lr sum_i p_i (y_i - x). It is `partial` with the order "together".

    Solves: min over x and all v_i of sum_i p_i L_i(x, v_i), up to FedAvg's drift.
    Sent: x (all but the private part) down, y - x up.
    Kept: v by the client.
    Forgetting: v starts each round at its initial values.
    Guarantee: synchronous, to a stationary point, for a small lr (Pillutla et al. 2022).
    Reference: Arivazhagan et al. 2019 (Federated learning with personalization layers).

    Args:
        private: which part stays with the client, see `apiece.split`. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> fed_per(lambda params, batch, key: 0.0, private="b").init({"w": 1.0, "b": 2.0}, None)
    {'b': None, 'w': 1.0}
    """
    return partial(loss, private=private, steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)


def fed_rep(
    loss: Loss,
    *,
    private: str = "output",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    inner_steps: FromZero = 20,
    inner_epochs: Passes | None = None,
    inner_lr: InnerStepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A shared representation, trained under output layers that are first fitted to it (Collins et al. 2021).

    Client: v <- v - inner_lr dL_i/dv(x, v), `inner_steps` times, from the v it kept; then from y = x:
    y <- y - lr dL_i/dx(y, v), `steps` times. Server: x <- x + server_lr sum_i p_i (y_i - x).
    It is `partial` with the order "private_first".

    Solves: min over x and all v_i of sum_i p_i L_i(x, v_i), up to FedAvg's drift.
    Sent: x (all but the private part) down, y - x up.
    Kept: v by the client.
    Forgetting: v starts each round at its initial values; with many inner steps little changes.
    Guarantee: synchronous; linear rate for linear representations with one step on x (Collins et al. 2021).
    Reference: Collins et al. 2021 (Exploiting shared representations for personalized federated learning).

    Args:
        private: which part stays with the client, see `apiece.split`. steps, epochs, lr: on the shared part.
        inner_steps, inner_epochs, inner_lr: likewise on the private part, before. batch: examples a step, 0 for all.
        server_lr: FedAvg's.

    >>> fed_rep(lambda params, batch, key: 0.0, private="b").init({"w": 1.0, "b": 2.0}, None)
    {'b': None, 'w': 1.0}
    """
    how = dict(steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)
    own = dict(inner_steps=inner_steps, inner_epochs=inner_epochs, inner_lr=inner_lr)
    return partial(loss, private=private, order="private_first", **own, **how)


def lg_fed_avg(
    loss: Loss,
    *,
    private: str = "not output",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg on the output layer alone; every client has a representation of its own (Liang et al. 2020).

    Client, from y = x and the v it kept: (y, v) <- (y, v) - lr G_i(y, v), `steps` times, v all layers but the last.
    Server: x <- x + server_lr sum_i p_i (y_i - x). It is `partial` with the order "together": FedPer's complement.

    Solves: min over x and all v_i of sum_i p_i L_i(x, v_i), up to FedAvg's drift.
    Sent: x (the output layer) down, y - x up.
    Kept: v by the client.
    Forgetting: v starts each round at its initial values: the representation is then hardly trained.
    Guarantee: synchronous, to a stationary point, for a small lr (Pillutla et al. 2022).
    Reference: Liang et al. 2020 (Think locally, act globally).

    Args:
        private: which part stays with the client, see `apiece.split`. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> lg_fed_avg(lambda params, batch, key: 0.0, private="not b").init({"w": 1.0, "b": 2.0}, None)
    {'b': 2.0, 'w': None}
    """
    return partial(loss, private=private, steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)


def fed_bn(
    loss: Loss,
    *,
    private: str = "norm",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg whose clients keep their normalization layers to themselves (Li et al. 2021).

    Client, from y = x and the v it kept: (y, v) <- (y, v) - lr G_i(y, v), `steps` times, v the normalization layers.
    Server: x <- x + server_lr sum_i p_i (y_i - x). It is `partial` with the order "together".

    Solves: min over x and all v_i of sum_i p_i L_i(x, v_i), up to FedAvg's drift.
    Sent: x (all but the normalization layers) down, y - x up.
    Kept: v by the client.
    Forgetting: v starts each round at its initial values.
    Guarantee: synchronous, to a stationary point, for a small lr (Pillutla et al. 2022).
    Reference: Li et al. 2021 (FedBN: federated learning on non-IID features via local batch normalization).

    Args:
        private: which part stays with the client, see `apiece.split`. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> fed_bn(lambda params, batch, key: 0.0).init({"dense": 1.0, "norm0": 2.0}, None)
    {'dense': 1.0, 'norm0': None}
    """
    return partial(loss, private=private, steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)
