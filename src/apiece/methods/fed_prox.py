"""FedProx: FedAvg on a leash."""

from functools import partial

from apiece import tree
from apiece.client.descend import descend, toward
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree
from apiece.registry import FromZero, Passes, Pull, StepSize


def fed_prox(
    loss: Loss,
    *,
    lam: Pull = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
) -> Method:
    """FedAvg whose local work is pulled back to the shared model, which is also how a client personalizes it.

    Client: w <- w - lr [G_i(w) + lam (w - x)], `steps` times from w = x.  Server: x <- sum_i p_i w_i.

    Solves: min sum_i p_i [L_i(w_i) + lam/2 |w_i - x|^2] with exact inner solves; with few steps it is biased,
      because every round restarts at x (FedCLUP's warm start repairs that).
    Sent: x down, w - x up.
    Kept: nothing; the personal model is the client's w computed from the latest x.
    Forgetting: the same; nothing is kept.
    Guarantee: synchronous, smooth losses; asynchronous as FedAvg.
    Reference: Li et al. 2020.

    Args:
        lam: strength of the pull. steps: local steps a round. epochs: passes over the data instead of `steps`.
        lr: step size; lr (L + lam) < 2 is needed. batch: examples a step, 0 for all.

    >>> fed_prox(lambda params, batch, key: 0.0, lam=0.5).message("the model", 3)
    'the model'
    """
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def solve(client: Client, x: Params, data: Data, key: Tree) -> Params:
        return train(x, data, key, shift=toward(x, lam))

    def local(client: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, tree.sub(solve(client, x, data, key), x)

    return fed_avg(loss)._replace(local=local, personal=solve)
