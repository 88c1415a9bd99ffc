"""FedCLUP: warm-started personal models around a centre, with the theory's step sizes."""

import math
from functools import partial

import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.aggregate import mean, plain_mean
from apiece.client.descend import descend, toward
from apiece.errors import UserError
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, Passes, Positive, PullOfEach, StepSize
from apiece.theory.formulas import noisy_steps, proved_steps
from apiece.wrap import per_client


def fed_clup(
    loss: Loss,
    *,
    lam: PullOfEach = 0.5,
    steps: Tree = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    gamma: Positive | None = None,
    smoothness: Positive | None = None,
    convexity: Positive | None = None,
    weighted: bool = False,
) -> Method:
    """Gradient descent on the mean Moreau envelope; one knob, lam, from Local to FedAvg.

    Client, from where it stopped: w <- w - lr [G_i(w) + lam (w - x)], `steps` times.
    Server: x <- x - gamma sum_i p_i lam (x - w_i).  Every client counts once, p_i = 1/m; or, `weighted`, as the run
    weighs clients (by default by their numbers of examples).

    Solves: min sum_i p_i [L_i(w_i) + lam_i/2 |w_i - x|^2], exactly for any number of steps thanks to the warm start.
      A larger lam shares more and needs more rounds.
    Sent: x down, lam (x - w) up.
    Kept: w, the personal model, by the client.
    Forgetting: FedProx with the server's step gamma: biased for few steps.
    Guarantee: synchronous, linear rate for strongly convex smooth losses; none known for late replies.
    Reference: the FedCLUP paper (accuracy and communication in personalized federated learning).

    Args:
        lam: strength of the pull; or a list, one for each client, which is then sent along. steps: local steps a round.
        epochs: passes over the data instead of `steps`. lr: step size. batch: examples a step, 0 for all (full
        gradient). gamma: the server's step; none: 1/lam (of a list: of its mean), which makes x the mean of the w_i, by
        their lam. smoothness, convexity: L and mu of the clients' losses; given, `steps`, `lr` and `gamma` are the
        theory's (see `theory_steps`), of full gradients if `batch` is 0, else those for noisy ones.
        weighted: p_i by the weights of the run, not one for each.

    >>> fed_clup(lambda params, batch, key: 0.0, lam=0.5).enroll("initial", "shared", None, None)
    'shared'
    """
    if (smoothness is None) != (convexity is None):
        raise UserError("fed_clup: theory needs both 'smoothness' and 'convexity', or neither; only one was given")
    if isinstance(lam, tuple | list):
        if smoothness is not None:
            raise UserError("fed_clup: theory's steps are for one 'lam'; give one, or leave 'smoothness' out")
        how = dict(steps=steps, epochs=epochs, lr=lr, batch=batch, gamma=gamma, weighted=weighted)
        return per_client(lambda own: fed_clup(loss, lam=own, **how), lam)
    if smoothness is not None and convexity is not None:
        gamma, lr, steps = theory_steps(lam, smoothness, convexity, noisy=batch > 0)
        epochs = None
    rate = 1 / lam if gamma is None else gamma
    average = mean if weighted else plain_mean
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def local(w: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        w = train(w, data, key, shift=toward(x, lam))
        return w, toward(w, lam)(x)

    return Method(
        init=lambda params, key: params,
        message=lambda x, i: x,
        merge=lambda x, replies, cohort, key: tree.step(x, -rate, average(replies, cohort.weight)),
        enroll=lambda params, x, data, key: x,
        local=local,
        personal=lambda w, x, data, key: w,
        keep=keep_work,
    )


def theory_steps(lam: Tree, smoothness: float, convexity: float, noisy: bool = False) -> tuple[Tree, Tree, Tree]:
    """(gamma, lr, steps) under which the linear rate is proved, for L-smooth, mu-strongly convex clients.

    Those of `apiece.theory.clup.constants`, as numbers a program can be traced with; `noisy`: those of Theorem 3, for
    gradients of batches, which come near the solution up to `apiece.theory.clup.noise_ball`.

    >>> theory_steps(0.5, 3.0, 0.5)[0].__round__(6), theory_steps(0.1, 1.0, 0.1)[2]
    (1.166667, 66)
    >>> theory_steps(0.5, 3.0, 0.5, noisy=True)[2]
    45
    """
    gamma, lr, steps = (noisy_steps if noisy else proved_steps)(lam, smoothness, convexity)
    # A traced lam (a sweep in one compile) makes a traced number of steps.
    whole = isinstance(steps, float | np.floating)
    return gamma, lr, math.ceil(steps) if whole else jnp.ceil(steps).astype(jnp.int32)
