"""FedAvg: average what the clients learn from the shared model."""

from functools import partial

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import descend
from apiece.protocol import Loss, Method, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize


def fed_avg(
    loss: Loss,
    *,
    steps: Tree = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """One shared model: clients train it on their data, the server averages.

    Client: y <- y - lr G_i(y), `steps` times from y = x.  Server: x <- x + server_lr sum_i p_i (y_i - x).

    Solves: min sum_i p_i L_i(x); its fixed point is that optimum only for steps=1 (or a small lr).
    Sent: x down, y - x up.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: synchronous, convex or smooth losses; asynchronous for bounded delays and a small server_lr.
    Reference: McMahan et al. 2017.

    Args:
        steps: local steps a round. epochs: passes over the client's data instead of `steps`.
        lr: step size. batch: examples a step, 0 for all. server_lr: step of the server along the mean update.

    >>> fed_avg(lambda params, batch, key: 0.0).message("the model", 3)
    'the model'
    """
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    return Method(
        init=lambda params, key: params,
        message=lambda x, i: x,
        merge=lambda x, replies, cohort, key: tree.step(x, server_lr, mean(replies, cohort.weight)),
        enroll=lambda params, x, data, key: (),
        local=lambda client, x, data, key: (client, tree.sub(train(x, data, key), x)),
        personal=lambda client, x, data, key: x,
    )
