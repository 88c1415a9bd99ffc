"""All-for-one (WGA): one model for one client, from the gradients of those like it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.client.solve import slopes
from apiece.errors import UserError
from apiece.estimate.similarity import combine
from apiece.protocol import Client, Cohort, Data, Loss, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, StepSize, Tolerance
from apiece.theory.formulas import neighbours


def all_for_one(
    loss: Loss,
    *,
    agent: FromZero = 0,
    mixture: Any = (),
    bias: Any = (),
    eps: Tolerance = 1.0,
    population: FromZero = 0,
    lr: StepSize = 0.1,
    batch: FromZero = 0,
) -> Method:
    """One model, for the client `agent`, moved by a mixture of everybody's gradients (weighted gradient averaging).

    x <- x - lr (N/|S|) sum over j in S of lambda_j G_j(x), S those who answered; lambda is a probability vector:
    the `mixture`; or 1/N_i on the N_i clients with b_ij <= eps/2; or, with neither, 1/N.
    N/|S| makes the expected step that of everybody, whoever is drawn uniformly: 1 when all answer, N when one does.
    Everybody's personal model is x, though it is made for `agent`.

    Solves: min over x of sum_j lambda_j L_j(x), which for b_ij <= eps/2 is within eps of client i's own optimum.
    Sent: x down, a gradient up.
    Kept: nothing.
    Forgetting: changes nothing.
    Guarantee: synchronous, error eps after about kappa sigma^2 N / (mu eps N_i) gradients (L-smooth, mu-strongly
      convex, noise sigma^2); asynchronous, one uniform client a step, D B sqrt(N sum lambda^2 / K) + sum lambda_j b_ij
      for the mean iterate of lr = D / (B sqrt(K N sum lambda^2)) (|G| <= B, |x - x*| <= D).
    Reference: Even, Massoulié, Scaman 2022 (On sample optimality in personalized collaborative and federated learning).

    Args:
        agent: whose model it is. mixture: lambda, a probability for each client. bias: b, as row `agent` or as the
        whole matrix. eps: the precision that filters b. population: how many clients there are; told by the engine.
        lr: step size. batch: examples a gradient, 0 for all.

    >>> all_for_one(lambda params, batch, key: 0.0, mixture=[0.5, 0.5, 0.0]).message("the model", 3)
    'the model'
    """
    given, row = np.asarray(mixture, float), np.asarray(bias, float)
    if given.size and row.size:
        raise UserError("all_for_one: give 'mixture' or 'bias', not both")
    clients = population or (len(given) if given.size else row.shape[-1])
    if not clients:
        raise UserError("all_for_one: give 'population', the number of clients (or 'mixture', or 'bias')")
    if not 0 <= agent < clients:
        raise UserError(f"all_for_one: there is no 'agent' {agent} among {clients} clients; they count from 0")
    if row.shape == (clients, clients):
        row = row[agent]
    for option, values in (("mixture", given), ("bias", row)):
        if values.size and values.shape != (clients,):
            raise UserError(f"all_for_one: '{option}' needs a number for each of {clients} clients, not {values.shape}")
        if (values < 0).any():
            raise UserError(f"all_for_one: '{option}' has a number below 0")
    if given.size and abs(given.sum() - 1) > 1e-6:
        raise UserError(f"all_for_one: 'mixture' sums to {given.sum():.6g}; divide it by that, probabilities sum to 1")

    def mixed() -> jax.Array:
        if not row.size:
            return jnp.asarray(given if given.size else np.full(clients, 1 / clients))
        return neighbours(jnp.asarray(row), jnp.asarray(eps), jnp.arange(clients) == agent)

    def merge(x: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        heard = (cohort.weight > 0) & (cohort.ids < clients)
        share = mixed().at[cohort.ids].get(mode="fill", fill_value=0)
        scale = cohort.population / jnp.maximum((cohort.weight > 0).sum(), 1)
        return tree.step(x, -lr * scale, combine(share, replies, heard))

    def local(client: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, slopes(data, key, batch=batch)(0, loss, x)

    return Method(
        init=lambda params, key: params,
        message=lambda x, i: x,
        merge=merge,
        enroll=lambda params, x, data, key: (),
        local=local,
        personal=lambda client, x, data, key: x,
    )
