"""RTFA: average first, then fine-tune without going far."""

from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Message, Method, Params, Tree
from apiece.registry import FromZero, Passes, Pull, StepSize
from apiece.wrap import fine_tuned


def rtfa(
    loss: Loss,
    *,
    lam: Pull = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    tune_epochs: Passes | None = 10,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
    by_size: bool = False,
) -> Method:
    """Ridge-tuned FedAvg: fine-tuning that is pulled back to the shared model.

    After FedAvg, client i: p <- p - tune_lr [G_i(p) + lam (p - x)] from p = x, `tune_epochs` passes.

    Solves: FedAvg's problem, then min L_i(p) + lam/2 |p - x|^2.
    Sent: x down, an update up; and x once more to every client at the end.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: as FedAvg; exact asymptotic risk for linear models, where it beats FTFA and FedAvg at the best lam.
    Reference: Cheng, Chadha and Duchi 2021.

    lam -> 0 is FTFA run to convergence, lam -> infinity is FedAvg; equals Ditto with a converged shared model.

    Args:
        lam: strength of the pull. steps, epochs, lr, batch: FedAvg's. tune_epochs: passes of fine-tuning; none:
        `tune_steps` steps instead. tune_lr: its step size; tune_lr (L + lam) < 2 is needed. by_size: the pull is
        lam/n_i, n_i the client's examples, so that each of them counts alike; steps are shorter where it is strong.

    >>> rtfa(lambda params, batch, key: 0.0, lam=0.5).message("the model", 3)
    'the model'
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch)
    if not by_size:
        return fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch, lam=lam)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        pull = lam / data.size
        step = tune_lr / (1 + tune_lr * pull)  # as stable as without the pull, however strong it is
        tuned = fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=step, batch=batch, lam=pull)
        return tuned.personal(client, message, data, key)

    return base._replace(personal=personal)
