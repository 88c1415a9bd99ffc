"""The two-stage method of Chen et al.: find a centre with one pull, then tune towards it with another."""

from functools import partial

import jax.numpy as jnp
import optax

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import descend, toward
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree, keep_work
from apiece.registry import FromZero, NotNegative, Passes, Positive, Pull, StepSize
from apiece.wrap import fine_tuned


def chen_two_stage(
    loss: Loss,
    *,
    lam: Pull = 0.5,
    tune_lam: Tree = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    gamma: Positive | None = None,
    decay: Tree = 0.01,
    radius: NotNegative | None = None,
    tune_epochs: Passes | None = 10,
    tune_steps: int = 20,
    tune_lr: StepSize = 0.1,
) -> Method:
    """A centre by projected steps that become smaller, then every client's ridge-tuning towards it (Chen et al. 2023).

    Stage 1, round t, step sizes lr_t = lr / (1 + decay t) and gamma_t = gamma / (1 + decay t):
    client, from where it stopped: w <- P(w - lr_t [G_i(w) + lam (w - x)]), `steps` times;
    server: x <- P(x - gamma_t mean_S lam (x - w_i)). P is the projection on the ball of that `radius` around zero.
    Stage 2 (`personal`), with x frozen: q <- q - tune_lr [G_i(q) + tune_lam (q - x)] from q = x, `tune_epochs` passes.
    With decay = 0 and no radius, stage 1 is FedCLUP; stage 2 from the pooled optimum is RTFA.

    Solves: min mean_i [L_i(w_i) + lam/2 |w_i - x|^2] for x, then min_q L_i(q) + tune_lam/2 |q - x|^2.
    Sent: x and the round's number down, lam (x - w) up, and x once more at the end.
    Kept: w by the client, for stage 1 only; the round's number by the server.
    Forgetting: FedProx with shrinking steps for the centre; stage 2 is the same.
    Guarantee: synchronous with sampled clients, strongly convex and smooth, gradients bounded on the ball, and steps
      that decrease like 1/t. None known for late replies.
    Reference: Chen, Zheng, Long and Su 2023 (Minimax estimation for personalized federated learning, JMLR).

    Args:
        lam: strength of the pull in stage 1. tune_lam: in stage 2. steps: local steps a round. epochs: passes over
        the data instead of `steps`. lr: first step size. batch: examples a step, 0 for all. gamma: the server's first
        step; none: 1/lam, which makes x the mean of the w_i (the paper takes lr). decay: how fast steps become
        smaller. radius: of the ball, none for no projection. tune_epochs: passes of stage 2; none: `tune_steps`
        steps instead. tune_lr: its step size; tune_lr (L + tune_lam) < 2 is needed.

    >>> chen_two_stage(lambda params, batch, key: 0.0).enroll("initial", ("shared", 0), None, None)
    'shared'
    """
    rate = 1 / lam if gamma is None else gamma
    train = partial(descend, loss, steps=steps, epochs=epochs, batch=batch)

    def inside(p: Params) -> Params:
        if radius is None:
            return p
        # Dividing by the larger of the two leaves a model that is inside as it is, zero included.
        return tree.scale(radius / jnp.maximum(tree.norm(p), radius), p)

    def local(w: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        x, t = message
        size = lr / (1 + decay * t)
        # The step that ends inside the ball, as a direction that `descend` can take.
        back = lambda g, p: tree.scale(1 / size, tree.sub(p, inside(tree.step(p, -size, g))))
        projected = None if radius is None else optax.stateless(back)
        w = train(w, data, key, lr=size, shift=toward(x, lam), optimizer=projected)
        return w, toward(w, lam)(x)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, t = server
        return inside(tree.step(x, -rate / (1 + decay * t), plain_mean(replies, cohort.weight))), t + 1

    centre = Method(
        init=lambda params, key: (inside(params), jnp.zeros((), jnp.int32)),
        message=lambda server, i: server,
        merge=merge,
        enroll=lambda params, message, data, key: message[0],
        local=local,
        personal=lambda w, message, data, key: message[0],
        keep=keep_work,
    )
    return fine_tuned(centre, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch, lam=tune_lam)
