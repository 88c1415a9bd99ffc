"""Local: nobody talks."""

from functools import partial

from apiece.client.descend import descend, shrink
from apiece.protocol import Loss, Method, Tree, keep_work
from apiece.registry import FromZero, Passes, Ridge, StepSize


def local(
    loss: Loss,
    *,
    steps: Tree = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    ridge: Ridge = 0.0,
) -> Method:
    """Every client trains alone from the initial model: what collaboration has to beat.

    Client: v <- v - lr [G_i(v) + ridge v], `steps` times a round, from where it stopped; biases are not pulled.

    Solves: min L_i(v) + ridge/2 |v|^2 for each client alone.
    Sent: nothing.
    Kept: v by the client.
    Forgetting: every visit starts again from the initial model.
    Guarantee: any engine; clients do not meet.
    Reference: the baseline of all.

    Args:
        steps: local steps a round. epochs: passes over the client's data instead of `steps`.
        lr: step size. batch: examples a step, 0 for all. ridge: strength of the pull to zero.

    >>> local(lambda params, batch, key: 0.0).message((), 3)
    ()
    """
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch, shift=shrink(ridge))

    return Method(
        init=lambda params, key: (),
        message=lambda server, i: (),
        merge=lambda server, replies, cohort, key: (),
        enroll=lambda params, message, data, key: params,
        local=lambda v, message, data, key: (train(v, data, key), ()),
        personal=lambda v, message, data, key: v,
        keep=keep_work,
    )
