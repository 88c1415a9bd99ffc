"""FFGG: fine-tune first, then ask for the gradient of the shared part."""

from collections.abc import Callable

import jax

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import full_gradient
from apiece.client.solve import solve
from apiece.errors import UserError, suggest
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, InnerStepSize, Passes, StepSize
from apiece.split import given, join, split
from apiece.wrap import fine_tuned

STARTS = ("random", "zero", "initial", "kept")


def ffgg(
    loss: Loss,
    *,
    private: str = "output",
    inner_steps: FromZero = 20,
    inner_epochs: Passes | None = None,
    inner_lr: InnerStepSize = 0.1,
    lr: StepSize = 0.1,
    solver: str = "gradient",
    start: str = "random",
    batch: FromZero = 32,
    tune_epochs: Passes | None = 5,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
) -> Method:
    """Gradient descent on what the shared part is worth after everybody has tuned a private part (the FFGG paper).

    The model is (theta, w): theta shared, w private. Client: w from its start; w <- w - inner_lr dL_i/dw(theta, w),
    `inner_steps` times; replies g_i = dL_i/dtheta(theta, w), over all of its examples.
    Server: theta <- theta - lr mean_i g_i, every client counting once.
    With exact inner solves g_i is the gradient of min_w L_i(theta, w); with few steps a floor remains that rounds do
    not lower, and more inner steps do. Personal: theta, and w tuned for `tune_epochs` passes from its start.

    Solves: min over theta of mean_i min_w L_i(theta, w); all g_i vanish there only if one theta suits everybody.
    Sent: theta down, g_i up; nothing private ever.
    Kept: nothing: w starts from the initial model, which everybody knows (with start = "kept": the last w).
    Forgetting: nothing changes, unless start = "kept", which then starts each round at the initial w.
    Guarantee: synchronous for lr <= 1/L (exact inner solves) or 1/(2L), L the smoothness of min_w L_i;
      asynchronous for lr <= 1/(2L sqrt(2 A d)), A clients active and delays up to d, if one theta suits everybody;
      Byzantine with a robust mean of the replies (after bucketing), up to how unlike the clients are.
    Reference: the FFGG paper (partial personalization and overpersonalization).

    Args:
        private: which part stays with the client, see `apiece.split`. inner_steps, inner_lr: the solve for w.
        inner_epochs: passes over the data instead of `inner_steps`. lr: the server's step. solver: of the inner
        problem: "gradient", "cg" (conjugate gradients, no step size) or an optax optimizer. start: of w in each round:
        "random" (the initial values of each array in random order, which has their law), "zero", "initial" (these
        values themselves: of a trained model, what training left), or "kept" (where it stopped). batch: examples an
        inner step, 0 for all.
        tune_epochs: passes of the final tuning of w; none: `tune_steps` steps instead. tune_lr: its step size.

    >>> import jax.numpy as jnp
    >>> method = ffgg(lambda params, batch, key: 0.0, private="out")
    >>> method.init({"hidden": jnp.ones(2), "out": jnp.ones(1)}, jax.random.key(0))
    {'hidden': Array([1., 1.], dtype=float32), 'out': None}
    """
    begin = starts("ffgg", start)

    def local(kept: Client, theta: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        start_key, solve_key, last_key = jax.random.split(key, 3)
        how = dict(solver=solver, steps=inner_steps, epochs=inner_epochs, lr=inner_lr, batch=batch)
        w = solve(given(loss, theta), begin(kept, start_key), data, solve_key, **how)
        return w if start == "kept" else kept, full_gradient(given(loss, w), theta, data, last_key)

    base = Method(
        init=lambda params, key: split(params, private)[0],
        message=lambda theta, i: theta,
        merge=lambda theta, replies, cohort, key: tree.step(theta, -lr, plain_mean(replies, cohort.weight)),
        enroll=lambda params, theta, data, key: split(params, private)[1],
        local=local,
        personal=lambda kept, theta, data, key: join(theta, begin(kept, key)),
        keep=keep_work,
        forgets=start != "kept",
    )
    return fine_tuned(base, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch, part=private)


def starts(method: str, start: str) -> Callable[[Client, Tree], Params]:
    """(what is kept, key) -> where the private part starts.

    >>> starts("ffgg", "kept")("what is kept", None)
    'what is kept'
    """
    if start not in STARTS:
        raise UserError(f"option 'start' of method '{method}' is not {start!r}: {suggest(start, STARTS)}")

    def begin(kept: Client, key: Tree) -> Params:
        if start in ("initial", "kept"):
            return kept
        if start == "zero":
            return tree.zeros(kept)
        leaves, form = jax.tree.flatten(kept)
        shuffled = [
            jax.random.permutation(jax.random.fold_in(key, k), leaf.ravel()).reshape(leaf.shape)
            for k, leaf in enumerate(leaves)
        ]
        return jax.tree.unflatten(form, shuffled)

    return begin
