"""FedDyn: every client's loss is bent, round by round, until all of them are least at the same model."""

from functools import partial

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import descend
from apiece.errors import UserError
from apiece.protocol import Client, Cohort, Data, Loss, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Passes, Pull, StepSize


def fed_dyn(
    loss: Loss,
    *,
    lam: Pull = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
) -> Method:
    """FedAvg whose clients' losses are bent until the optimum of all is the optimum of each (lam: the paper's alpha).

    Client: y <- y - lr [G_i(y) - g_i + lam (y - x)], `steps` times from y = x: towards min L_i(y) - <g_i, y> +
    lam/2 |y - x|^2;  then g_i <- g_i - lam (y - x), which after an exact solve is the gradient of L_i at y.
    Server: s <- s + (|S| / N) mean(y_i - x), over the |S| of N who answered;  x <- x + mean(y_i - x) + s.
    (The paper's h is -lam s: the mean of everybody's g_i.)

    Solves: min sum_i L_i(x), without drift for any number of steps. The shared model is the personal one.
    Sent: x down, y - x up.
    Kept: g_i by the client; s by the server.
    Forgetting: g_i = 0 each visit: FedProx, with its bias and a momentum at the server.
    Guarantee: synchronous, also with sampled clients, exact local solves: convex, strongly convex (linear, lam large
      enough) or smooth losses; none known for late replies.
    Reference: Acar et al. 2021 (Federated learning based on dynamic regularization).

    Args:
        lam: strength of the pull, and with it how fast g_i learns; above 0. steps: local steps a round. epochs: passes
        over the data instead of `steps`. lr: step size. batch: examples a step, 0 for all.

    >>> fed_dyn(lambda params, batch, key: 0.0).message(("model", "sum"), 3)
    'model'
    """
    if isinstance(lam, float | int) and lam == 0:
        raise UserError("option 'lam' of method 'fed_dyn' is above 0: at 0 no client's drift would be corrected")
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def local(g: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        y = train(x, data, key, shift=lambda y: tree.step(tree.scale(-1.0, g), lam, tree.sub(y, x)))
        moved = tree.sub(y, x)
        return tree.step(g, -lam, moved), moved

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, s = server
        moved = plain_mean(replies, cohort.weight)
        present = (cohort.weight > 0).sum() / cohort.population
        s = tree.step(s, present, moved)
        return tree.add(tree.add(x, moved), s), s

    return Method(
        init=lambda params, key: (params, tree.zeros(params)),
        message=lambda server, i: server[0],
        merge=merge,
        enroll=lambda params, x, data, key: tree.zeros(params),
        local=local,
        personal=lambda g, x, data, key: x,
    )
