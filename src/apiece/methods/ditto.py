"""Ditto: a personal model beside the shared one."""

from functools import partial

import jax

from apiece.client.descend import descend, toward
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, Passes, PullOfEach, StepSize
from apiece.wrap import per_client


def ditto(
    loss: Loss,
    *,
    lam: PullOfEach = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
) -> Method:
    """FedAvg, and beside it a personal model that is pulled towards the shared one.

    Client: v <- v - lr [G_i(v) + lam (v - x)], `steps` times a round, from where it stopped; and FedAvg's work on x.

    Solves: FedAvg's problem for x, and min L_i(v) + lam/2 |v - x|^2; with a converged x, v is RTFA's solution.
    Sent: x down, FedAvg's update up.
    Kept: v by the client.
    Forgetting: v starts from the received x each visit: FedProx's personal model.
    Guarantee: synchronous; asynchronous as FedAvg for x.
    Reference: Li et al. 2021.

    Args:
        lam: strength of the pull; 0 is Local, infinity FedAvg; or a list, one for each client, which is then sent
        along. steps: local steps a round, on each of the two models.
        epochs: passes over the data instead of `steps`. lr: step size of both. batch: examples a step, 0 for all.

    >>> ditto(lambda params, batch, key: 0.0, lam=0.5).enroll("initial", "shared", None, None)
    'shared'
    """
    if isinstance(lam, tuple | list):
        return per_client(lambda own: ditto(loss, lam=own, steps=steps, epochs=epochs, lr=lr, batch=batch), lam)
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch)
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def local(v: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        own_key, shared_key = jax.random.split(key)
        v = train(v, data, own_key, shift=toward(x, lam))
        return v, base.local((), x, data, shared_key)[1]

    return base._replace(
        enroll=lambda params, x, data, key: x,
        local=local,
        personal=lambda v, x, data, key: v,
        keep=keep_work,
    )
