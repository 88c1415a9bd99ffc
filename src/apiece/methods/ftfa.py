"""FTFA: average first, fine-tune afterwards."""

from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Loss, Method
from apiece.registry import FromZero, Passes, StepSize
from apiece.wrap import fine_tuned


def ftfa(
    loss: Loss,
    *,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    tune_epochs: Passes | None = 10,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
) -> Method:
    """Fine-tuned FedAvg: each client continues from the shared model on its own data.

    Server and client train as FedAvg; then client i: p <- p - tune_lr G_i(p) from p = x, `tune_epochs` passes.

    Solves: FedAvg's problem, then min L_i(p) from x, stopped early.
    Sent: x down, an update up; and x once more to every client at the end.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: as FedAvg; exact asymptotic risk for linear models.
    Reference: Cheng, Chadha and Duchi 2021.

    Run to convergence with fewer examples than parameters, it projects x onto the client's interpolating models;
    with more examples than parameters it forgets x: the gain then comes from stopping early.

    Args:
        steps, epochs, lr, batch: FedAvg's. tune_epochs: passes of fine-tuning; none: `tune_steps` steps instead.
        tune_lr: step size of the fine-tuning.

    >>> ftfa(lambda params, batch, key: 0.0).message("the model", 3)
    'the model'
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch)
    return fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch)
