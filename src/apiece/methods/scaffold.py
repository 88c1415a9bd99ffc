"""Scaffold: control variates against client drift."""

from functools import partial

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import descend, steps_taken
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize


def scaffold(
    loss: Loss,
    *,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg whose clients correct their direction by what everybody's gradients were.

    Client: y <- y - lr (G_i(y) - c_i + c), K = `steps` times from y = x; then c_i <- c_i - c + (x - y) / (K lr).
    Server: x <- x + server_lr mean(y_i - x);  c <- c + (|S| / N) mean(change of c_i), over the |S| of N who answered.

    Solves: min sum_i L_i(x), without drift for any number of steps. The shared model is the personal one.
    Sent: x and c down, two updates up.
    Kept: c_i by the client; c by the server.
    Forgetting: c_i = 0 each visit, so that the correction is everybody's mean gradient: biased, may diverge.
    Guarantee: synchronous, also with sampled clients; none known for late replies.
    Reference: Karimireddy et al. 2020.

    Args:
        steps: local steps a round. epochs: passes over the client's data instead of `steps`.
        lr: step size. batch: examples a step, 0 for all. server_lr: step of the server along the mean update.

    >>> scaffold(lambda params, batch, key: 0.0).message(("model", "control"), 3)
    ('model', 'control')
    """
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def local(own: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        x, c = message
        correction = tree.sub(c, own)
        y = train(x, data, key, shift=lambda p: correction)
        moved = tree.sub(y, x)
        change = tree.step(tree.scale(-1.0, c), -1 / (steps_taken(data, steps, epochs, batch) * lr), moved)
        return tree.add(own, change), (moved, change)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, c = server
        moved, change = plain_mean(replies, cohort.weight)
        present = (cohort.weight > 0).sum() / cohort.population
        return tree.step(x, server_lr, moved), tree.step(c, present, change)

    return Method(
        init=lambda params, key: (params, tree.zeros(params)),
        message=lambda server, i: server,
        merge=merge,
        enroll=lambda params, message, data, key: tree.zeros(params),
        local=local,
        personal=lambda own, message, data, key: _model(message),
    )


def _model(message: Message) -> Params:
    return message[0]
