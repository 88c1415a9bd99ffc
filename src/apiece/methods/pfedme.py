"""pFedMe: descend on everybody's Moreau envelope."""

from functools import partial

import jax
from jax import lax

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import full_gradient, gradient, toward
from apiece.client.draw import draw, shuffler
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, Positive, Pull, StepSize


def pfedme(
    loss: Loss,
    *,
    lam: Pull = 15.0,
    steps: int = 20,
    lr: StepSize = 0.05,
    prox_steps: int = 5,
    prox_lr: Positive = 0.05,
    batch: FromZero = 32,
    beta: Positive = 1.0,
    warm: bool = True,
) -> Method:
    """A shared model that is a good centre for everybody's regularized own model.

    Client, from w = x, `steps` times: draw a batch; q ~ argmin_q L_i(q; batch) + lam/2 |q - w|^2 by `prox_steps`
    gradient steps of size `prox_lr`; w <- w - lr lam (w - q).  Server: x <- (1 - beta) x + beta sum_i p_i w_i.

    Solves: min sum_i p_i [L_i(q_i) + lam/2 |q_i - x|^2]; exactly only with steps=1 and an exact inner solve, more
      local steps drift.
    Sent: x down, w - x up.
    Kept: q, the personal model, by the client.
    Forgetting: training is the same; the personal model is computed anew from x.
    Guarantee: synchronous, smooth losses; none known for late replies.
    Reference: Dinh et al. 2020.

    Args:
        lam: strength of the pull. steps: outer local steps a round. lr: their size; lr lam < 1 is needed.
        prox_steps, prox_lr: the inner solve; prox_lr (L + lam) < 2 is needed. batch: examples a step, 0 for all.
        beta: the server's mixing. warm: start the inner solve at the previous q (else at w).

    >>> pfedme(lambda params, batch, key: 0.0).enroll("initial", "shared", None, None)
    'shared'
    """

    def local(kept: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        batch_key, loss_key = jax.random.split(key)
        shuffle = shuffler(batch_key, data.size)
        full = partial(full_gradient, loss, data=data)

        def outer(k: Tree, pair: tuple) -> tuple:
            w, q = pair
            step_key = jax.random.fold_in(loss_key, k)
            pull = toward(w, lam)
            # One batch serves the whole inner solve.
            slope = partial(gradient, loss, batch=draw(data, shuffle, batch, order=k)) if batch else full

            def inner(_: Tree, q: Params) -> Params:
                return tree.step(q, -prox_lr, tree.add(slope(params=q, key=step_key), pull(q)))

            q = lax.fori_loop(0, prox_steps, inner, q if warm else w)
            return tree.step(w, -lr * lam, tree.sub(w, q)), q

        w, q = lax.fori_loop(0, steps, outer, (x, x))
        return q, tree.sub(w, x)

    return Method(
        init=lambda params, key: params,
        message=lambda x, i: x,
        merge=lambda x, replies, cohort, key: tree.step(x, beta, mean(replies, cohort.weight)),
        enroll=lambda params, x, data, key: x,
        local=local,
        personal=lambda q, x, data, key: q,
        keep=keep_work,
    )
