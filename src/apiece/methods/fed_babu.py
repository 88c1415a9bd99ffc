"""FedBABU: the body of the model is trained under a head that never moves; each client then tunes a head of its own."""

from functools import partial

from apiece import tree
from apiece.client.descend import descend
from apiece.errors import UserError, suggest
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize
from apiece.split import given, join, split
from apiece.wrap import fine_tuned

TUNED = ("head", "body", "all")


def fed_babu(
    loss: Loss,
    *,
    private: str = "output",
    tune_part: str = "head",
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
    tune_epochs: Passes | None = 10,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
) -> Method:
    """FedAvg on all but the head, which stays as it was drawn; each client fine-tunes its own at the end.

    The model is (x, v): x the body, v the head, at its initial value for everybody all the time.
    Client: y <- y - lr dL_i/dx(y, v), `steps` times from y = x.  Server: x <- x + server_lr sum_i p_i (y_i - x).
    Then client i: p <- p - tune_lr G_i(p) from p = (x, v), `tune_epochs` passes: the head of p, or its body, or all.
    All features are learned for the same classifier, so that clients do not disagree about what they stand for.
    A head whose weights start at zero passes no gradient on: take a model that draws them, as all networks here do.

    Solves: min sum_i p_i L_i(x, v) over x alone, up to FedAvg's drift; then min L_i over the tuned part, stopped early.
    Sent: x (all but the head) down, y - x up.
    Kept: nothing: v never changes, and any client can make it again from the seed.
    Forgetting: the same.
    Guarantee: FedAvg's, for x.
    Reference: Oh, Kim, Yun 2022 (FedBABU: toward enhanced representation for federated image classification).

    Args:
        private: which part is the head, see `apiece.split`. tune_part: what a client fine-tunes: "head", "body" or
        "all". steps, epochs, lr, batch, server_lr: FedAvg's. tune_epochs: passes of fine-tuning; none: `tune_steps`
        steps instead. tune_lr: step size of the fine-tuning.

    >>> fed_babu(lambda params, batch, key: 0.0, private="b").init({"w": 1.0, "b": 2.0}, None)
    {'b': None, 'w': 1.0}
    """
    if tune_part not in TUNED:
        raise UserError(f"option 'tune_part' of method 'fed_babu' is not {tune_part!r}: {suggest(tune_part, TUNED)}")
    train = partial(descend, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def local(v: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        return v, tree.sub(train(given(loss, v), x, data, key), x)

    base = fed_avg(loss, server_lr=server_lr)._replace(
        init=lambda params, key: split(params, private)[0],
        enroll=lambda params, x, data, key: split(params, private)[1],
        local=local,
        personal=lambda v, x, data, key: join(x, v),
        forgets=True,
    )
    part = {"head": private, "body": f"not {private}", "all": ""}[tune_part]
    return fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch, part=part)
