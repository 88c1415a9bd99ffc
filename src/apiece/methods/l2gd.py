"""L2GD: local steps and steps towards the mean, by a coin; communication only where the coin turns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import descend
from apiece.errors import UserError
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Positive, Pull, StepSize


class Mean(NamedTuple):
    """The server's state: the clients' mean, what comes next, and what was done."""

    x: Params
    counts: jax.Array  # of the coming round: pulls towards the mean, then local steps
    joined: jax.Array  # how many clients x is the mean of
    iterations: jax.Array
    communications: jax.Array


def l2gd(
    loss: Loss,
    *,
    lam: Pull = 0.5,
    p: Positive = 0.5,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    smoothness: Positive | None = None,
    coins: Tree = (),
) -> Method:
    """Gradient descent on a sum of two parts, one of which is drawn in each iteration (Hanzely and Richtarik 2020).

    One coin for everybody in each iteration, with the mean xbar of the x_i:
    with probability 1 - p: x_i <- x_i - lr/(1 - p) G_i(x_i);  else: x_i <- x_i + c (xbar - x_i), c = min(1, lr lam/p).
    The mean must be known only where a pull follows a local step, and stays as it is while pulls follow one another.
    So a round is a communication: client: k pulls at once, x_i <- xbar + (1 - c)^k (x_i - xbar), then a local steps.
    Server: xbar <- xbar + sum_S (change of x_i) / J, over the J clients that have joined (each joins at xbar);
    k ~ Geometric(1 - p), a ~ Geometric(p). A round has 1 / (p (1 - p)) iterations on average, 1/p of them local.

    Solves: min (1/M) sum_i [L_i(x_i) + lam/2 |x_i - xbar|^2], up to a neighbourhood: with a constant step
      the noise of the coin remains. FedCLUP solves the same problem exactly.
    Sent: xbar and two counts down, the change of x_i (and whether the client is new) up.
    Kept: x_i by the client; iterations and communications are counted by the server.
    Forgetting: FedAvg with a geometric number of local steps and a server step of |S| / J.
    Guarantee: synchronous with everybody taking part, convex and smooth clients, lr at most the theory's step:
      linearly to a neighbourhood. None known for late replies or partial participation.
    Reference: Hanzely and Richtarik 2020 (Federated learning of a mixture of global and local models).

    Args:
        lam: strength of the pull. p: probability of a pull, strictly between 0 and 1; lam / (lam + L) is best.
        lr: step size (the paper's alpha, divided by the number of clients). batch: examples a step, 0 for all.
        smoothness: L of the clients' losses; given, lr is the theory's 1 / (2 max(L/(1 - p), lam/p)).
        coins: a recorded sequence of zeros (local) and ones (pull) to be played before any coin is drawn.

    >>> rounds_of([0, 0, 1, 0, 1]).tolist()
    [[0, 2], [1, 1], [1, 0]]
    """
    if isinstance(p, int | float) and not 0 < p < 1:  # a traced one cannot be looked at
        raise UserError(f"option 'p' of method 'l2gd' lies strictly between 0 and 1; got {p}")
    plan = rounds_of(coins)
    rate = lr if smoothness is None else 1 / (2 * jnp.maximum(smoothness / (1 - p), lam / p))
    # More than the whole way would overshoot the mean; the theory's step never does.
    share = jnp.minimum(1.0, rate * lam / p)

    def coming(number: Tree, key: Tree) -> jax.Array:
        pull_key, local_key = jax.random.split(key)
        # The first coins may well be local steps: that round has no pull.
        pulls = jax.random.geometric(pull_key, 1 - p, dtype=jnp.int32) - (number == 0)
        counts = jnp.stack([pulls, jax.random.geometric(local_key, p, dtype=jnp.int32)])
        if len(plan):
            counts = jnp.where(number < len(plan), jnp.asarray(plan)[jnp.minimum(number, len(plan) - 1)], counts)
        return counts

    def init(params: Params, key: Tree) -> Server:
        zero = jnp.zeros((), jnp.int32)
        return Mean(params, coming(zero, key), zero, zero, zero)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        change, is_new = replies
        present = cohort.weight > 0
        newcomers = jnp.where(present, is_new, 0).sum().astype(jnp.int32)
        joined = jnp.minimum(server.joined + newcomers, cohort.population).astype(jnp.int32)
        moved = present.sum() / jnp.maximum(joined, 1)
        communications = server.communications + 1
        return Mean(
            tree.step(server.x, moved, plain_mean(change, cohort.weight)),
            coming(communications, key),
            joined,
            server.iterations + server.counts.sum().astype(jnp.int32),
            communications,
        )

    def pulled(client: Client, message: Message) -> Params:
        xbar, counts = message
        return tree.mix(client[0], xbar, 1 - (1 - share) ** counts[0])

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        old, is_new = client
        steps = message[1][1]
        x = descend(loss, pulled(client, message), data, key, steps=steps, lr=rate / (1 - p), batch=batch)
        return (x, jnp.zeros_like(is_new)), (tree.sub(x, old), is_new)

    return Method(
        init=init,
        message=lambda server, i: (server.x, server.counts),
        merge=merge,
        enroll=lambda params, message, data, key: (message[0], jnp.ones((), jnp.float32)),
        local=local,
        personal=lambda client, message, data, key: pulled(client, message),
    )


def rounds_of(coins: Tree) -> np.ndarray:
    """Coins as rounds: how many pulls, and then how many local steps, each has.

    >>> rounds_of([1, 1, 0, 1, 0, 0]).tolist()
    [[2, 1], [1, 2]]
    """
    tossed = np.asarray(coins, float)
    if tossed.ndim > 1 or not np.isin(tossed, (0, 1)).all():
        raise UserError("option 'coins' of method 'l2gd' is a list of zeros (a local step) and ones (a pull)")
    rounds: list[list[int]] = []
    for k, coin in enumerate(tossed.astype(int)):
        if not rounds or (coin and not tossed[k - 1]):
            rounds.append([0, 0])
        rounds[-1][1 - coin] += 1
    return np.array(rounds, np.int32).reshape(-1, 2)
