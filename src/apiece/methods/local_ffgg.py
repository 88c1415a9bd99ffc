"""Local FFGG: FFGG with more than one step of the shared part between two rounds."""

from collections.abc import Callable
from typing import Any

import jax

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.solve import alternate, solve
from apiece.methods.ffgg import ffgg, starts
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree
from apiece.registry import FromZero, InnerStepSize, Passes, Positive, StepSize
from apiece.split import given


def local_ffgg(
    loss: Loss,
    *,
    private: str = "output",
    inner_steps: FromZero = 20,
    inner_epochs: Passes | None = None,
    inner_lr: InnerStepSize = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    server_lr: Positive = 1.0,
    solver: str = "gradient",
    start: str = "random",
    batch: FromZero = 32,
    tune_epochs: Passes | None = 5,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
) -> Method:
    """Fine-tune the private part, then alternate steps on both, and average the shared part (the FFGG paper).

    The model is (theta, w): theta shared, w private. Client: w ~ argmin_w L_i(theta, w) by `inner_steps` steps from
    its start; then from y = theta, `steps` times: w <- w - inner_lr dL_i/dw(y, w); y <- y - lr dL_i/dtheta(y, w).
    Server: theta <- theta + server_lr mean_i (y_i - theta), every client counting once; with another optimizer by
    `wrap.server_optimized` (the paper: Adam). Personal: theta, and w tuned for `tune_epochs` passes from its start.
    One step with inner_lr = 0 after an exact inner solve is FFGG; more steps drift, as FedAvg's do.

    Solves: min over theta of mean_i min_w L_i(theta, w), up to the drift.
    Sent: theta down, y - theta up; nothing private ever.
    Kept: nothing (with start = "kept": the last w).
    Forgetting: nothing changes, unless start = "kept", which then starts each round at the initial w.
    Guarantee: none known.
    Reference: the FFGG paper (partial personalization and overpersonalization).

    Args:
        private: which part stays with the client, see `apiece.split`. inner_steps: of the solve for w at the start
        of a round; inner_epochs: passes over the data instead. inner_lr: step size on w, in the solve and in the
        alternation. steps, lr: of the alternation, lr on theta. epochs: passes over the data instead of `steps`.
        server_lr: step of the server along the mean update.
        solver, start, batch, tune_epochs, tune_steps, tune_lr: as FFGG's.

    >>> local_ffgg(lambda params, batch, key: 0.0, private="b").message({"w": "shared", "b": None}, 3)
    {'w': 'shared', 'b': None}
    """
    base = ffgg(
        loss, private=private, start=start, batch=batch, tune_epochs=tune_epochs, tune_steps=tune_steps, tune_lr=tune_lr
    )
    work: dict[str, Any] = dict(
        inner_steps=inner_steps, inner_epochs=inner_epochs, inner_lr=inner_lr, steps=steps, epochs=epochs, lr=lr
    )
    merge = lambda theta, replies, cohort, key: tree.step(theta, server_lr, plain_mean(replies, cohort.weight))
    return base._replace(local=visit_of(loss, solver=solver, start=start, batch=batch, **work), merge=merge)


def visit_of(
    loss: Loss,
    *,
    inner_steps: Tree = 20,
    inner_epochs: Tree | None = None,
    inner_lr: Tree = 0.1,
    steps: Tree = 20,
    epochs: Tree | None = None,
    lr: Tree = 0.1,
    solver: str = "gradient",
    start: str = "random",
    batch: int = 32,
) -> Callable[[Client, Params, Data, Tree], tuple[Client, Reply]]:
    """What a client does in a round of `local_ffgg`; numbers of steps and passes may be traced.

    >>> visit_of(lambda params, batch, key: 0.0, start="kept").__name__
    'local'
    """
    begin = starts("local_ffgg", start)

    def local(kept: Client, theta: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        start_key, solve_key, last_key = jax.random.split(key, 3)
        how: dict[str, Any] = dict(solver=solver, steps=inner_steps, epochs=inner_epochs, lr=inner_lr, batch=batch)
        w = solve(given(loss, theta), begin(kept, start_key), data, solve_key, **how)
        how = dict(steps=steps, epochs=epochs, lr=lr, own_lr=inner_lr, batch=batch)
        y, w = alternate(loss, theta, w, data, last_key, **how)
        return w if start == "kept" else kept, tree.sub(y, theta)

    return local
