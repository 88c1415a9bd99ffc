"""All-for-all (AFA): a model for every client at the price of one gradient each."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.client.solve import slopes
from apiece.errors import UserError
from apiece.estimate.similarity import (
    bias_of_clusters,
    combine,
    gradient_and_error,
    largest_eigenvalue,
    neighbours,
    separation,
    squared_distances,
)
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Positive, StepSize, Tolerance
from apiece.theory import formulas

UNKNOWN = -1.0  # the b of two clients that were never seen together
FOREVER = 2.0**30  # rounds


class Mixing(NamedTuple):
    """What a phase mixes with: W, its largest eigenvalue, and S = sum_i 1/N_i."""

    w: Tree
    largest: Tree
    loneliness: Tree


class Everybody(NamedTuple):
    """The server: everybody's model, stacked, and after them their mean, which is what a newcomer is shown; the phase
    (-1: warm-up) and how many of its rounds are over; its mixing; the b measured so far (nothing if it was given).
    """

    x: Params
    phase: Tree
    spent: Tree
    mixing: Mixing
    b: Tree


def all_for_all(
    loss: Loss,
    *,
    population: FromZero = 0,
    lr: StepSize = 0.1,
    bias: Any = (),
    clusters: Any = (),
    eps: Tolerance = 1.0,
    halve_every: FromZero = 0,
    warmup: int = 20,
    smoothness: Positive | None = None,
    convexity: Positive | None = None,
    noise: Positive | None = None,
    batch: FromZero = 0,
) -> Method:
    """Every client's model moves by the gradients of those like it, each taken at that one's own model.

    Client j answers with g_j = G_j(x_j), one gradient. Server: x_i <- x_i - (lr / l) sum over j in S of W_ij g_j, with
    W = Lambda Lambda', l = lambda_max(W), and Lambda 1/N_i on the N_i clients with b_ij <= eps/2 (S: who answered; no
    N/|S|). All start at one point: what lies outside the range of Lambda would never be unlearned.
    b is given (`bias`, or `clusters`: 0 within, infinite between), or measured in `warmup` rounds in which all share
    one model: b_ij is the largest |g_i - g_j|^2 - e_i - e_j, e_i the squared standard error that client i sends
    along, in units of 2 mu (`convexity` mu given), else of that round's mean |g_i - g_j|^2. So eps = 1 parts two
    clients that differ by more than half of what two gradients differ on average, noise included: hardly anybody
    while noise dominates, everybody unlike once it does not. Clients never seen together in a round are apart.
    Phases: eps halves every `halve_every` rounds; or, with L = smoothness, mu = convexity and sigma^2 = noise given,
    phase q has eps_q = eps / 2^q, lr_q = min{1/(2 L l_q), mu eps_q N / (2 L sigma^2 S_q)}, S_q = sum_i 1/N_i, and
    K_q = ceil(ln 4 / (mu lr_q)) rounds. x is kept from phase to phase.

    Solves: min over y of (1/N) sum_i L_i((Lambda y)_i), x = Lambda y; for b_ij <= eps/2 within eps of everybody's own.
    Sent: one model down, a gradient up (and one number while b is measured).
    Kept: nothing by the client; N models by the server, and N^2 numbers b.
    Forgetting: changes nothing.
    Guarantee: synchronous (L-smooth, mu-strongly convex), N / S times fewer samples than alone; asynchronous, one
      uniform client a step, with the mean iterate and lr = N D / (B sqrt(K S)), |G| <= B; for b that holds, not for
      an estimate. Without the division by l, which reaches N/4, it can diverge.
    Reference: Even, Massoulié, Scaman 2022 (On sample optimality in personalized collaborative and federated learning).

    Args:
        population: how many clients there are; told by the engine. lr: step size. bias: the matrix b. clusters: a
        label for each client. eps: the precision that filters b. halve_every: rounds until eps halves, 0 never.
        warmup: rounds in which b is measured when it is not given; where few take part in a round, more are needed.
        smoothness, convexity, noise: L, mu and sigma^2; all given, steps and phases are the theory's. Of these,
        convexity alone is the unit in which b is measured. batch: examples a gradient, 0 for all.

    >>> method = all_for_all(lambda params, batch, key: 0.0, clusters=[0, 0, 1])
    >>> server = method.init(jnp.zeros(2), jax.random.key(0))
    >>> server.x.shape, method.message(server, 1).shape
    ((4, 2), (2,))
    """
    given = _given("all_for_all", population, bias, clusters)
    measured = not given.size
    clients = population or len(given)
    theory = smoothness is not None and noise is not None
    if (smoothness is None) != (noise is None) or (theory and convexity is None):
        raise UserError("all_for_all: theory's steps need all of 'smoothness', 'convexity' and 'noise'")

    def bounds(b: Tree, phase: Tree) -> Tree:
        """The b in force: what was given or measured; in the warm-up nothing parts anybody."""
        return jnp.where(phase < 0, 0, jnp.where(b < 0, jnp.inf, b)) if measured else given

    def pace(mixing: Mixing, phase: Tree, eps: Tree) -> tuple[Tree, Tree]:
        """The step, and for how many rounds."""
        rate, rounds = lr / mixing.largest, jnp.asarray(halve_every or FOREVER)
        if smoothness is not None and convexity is not None and noise is not None:
            known = clients, eps, smoothness, convexity, noise
            rate = formulas.steady_step(mixing.largest, mixing.loneliness, *known)
            rounds = jnp.minimum(formulas.steps_to_a_quarter(convexity, rate), FOREVER)
        return rate, jnp.where(phase < 0, warmup, rounds)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, phase, spent, mixing, b = server
        g = replies[0] if measured else replies
        heard = (cohort.weight > 0) & (cohort.ids < clients)
        now = eps / 2.0 ** jnp.maximum(phase, 0)
        mixing = _renewed(spent == 0, mixing, bounds(b, phase), now)
        rate, rounds = pace(mixing, phase, now)
        columns = mixing.w.at[:, cohort.ids].get(mode="fill", fill_value=0)
        columns = jnp.concatenate([columns, columns.mean(axis=0, keepdims=True)])  # the last row moves as the mean does
        x = tree.step(x, -rate, combine(columns, g, heard))
        if measured:
            b = _noted(phase < 0, b, g, replies[1], cohort.ids, heard, convexity)
        over = spent + 1 >= rounds
        return Everybody(x, phase + over, jnp.where(over, 0, spent + 1), mixing, b)

    def local(client: Client, x: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        if measured:
            return client, gradient_and_error(loss, x, data, key, batch)
        return client, slopes(data, key, batch=batch)(0, loss, x)

    def init(params: Params, key: Tree) -> Server:
        blank = Mixing(jnp.zeros((clients, clients)), jnp.ones(()), jnp.ones(()))  # renewed when the first phase begins
        b = jnp.full((clients, clients), UNKNOWN) if measured else ()
        return Everybody(_copies(params, clients + 1), jnp.int32(-1 if measured else 0), jnp.int32(0), blank, b)

    return Method(
        init=init,
        message=lambda server, i: tree.take(server.x, jnp.minimum(i, clients)),
        merge=merge,
        enroll=lambda params, x, data, key: (),
        local=local,
        personal=lambda client, x, data, key: x,
        report=lambda server: {"w": server.mixing.w} | ({"b": server.b} if jnp.size(server.b) else {}),
    )


def naive_all_for_all(
    loss: Loss,
    *,
    population: FromZero = 0,
    lr: StepSize = 0.1,
    bias: Any = (),
    clusters: Any = (),
    eps: Tolerance = 1.0,
    batch: FromZero = 0,
) -> Method:
    """All-for-one for everybody at once: the reference that all-for-all spares N gradients a client.

    x_i <- x_i - lr (N/|S|) sum over j in S of lambda_ij G_j(x_i): every client takes its gradient at all N models.

    >>> naive_all_for_all(lambda params, batch, key: 0.0, clusters=[0, 0, 1]).enroll(None, None, None, None)
    ()
    """
    given = _given("naive_all_for_all", population, bias, clusters)
    clients = population or len(given)
    if not given.size:
        raise UserError("naive_all_for_all: give 'bias' or 'clusters'")

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, jax.vmap(partial(slopes(data, key, batch=batch), 0, loss))(message[0])

    def merge(x: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        heard = (cohort.weight > 0) & (cohort.ids < clients)
        columns = neighbours(given, eps).T.at[cohort.ids].get(mode="fill", fill_value=0).T
        by_model = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), replies)
        g = jax.vmap(lambda share, answers: combine(share, answers, heard))(columns, by_model)
        return tree.step(x, -lr * cohort.population / jnp.maximum((cohort.weight > 0).sum(), 1), g)

    def message(x: Server, i: Tree) -> Message:
        middle = jax.tree.map(lambda leaf: leaf.mean(axis=0), x)
        return x, tree.where(i < clients, tree.take(x, jnp.minimum(i, clients - 1)), middle)

    return Method(
        init=lambda params, key: _copies(params, clients),
        message=message,
        merge=merge,
        enroll=lambda params, message, data, key: (),
        local=local,
        personal=lambda client, message, data, key: message[1],
    )


def _given(name: str, population: int, bias: Any, clusters: Any) -> Any:
    """The matrix b as it was given; empty if it is to be measured."""
    traced = isinstance(bias, jax.Array)  # several b in one compile; its numbers cannot be looked at
    matrix, labels = bias if traced else np.asarray(bias, float), np.asarray(clusters)
    if matrix.size and labels.size:
        raise UserError(f"{name}: give 'bias' or 'clusters', not both")
    clients = population or len(matrix) or len(labels)
    if not clients:
        raise UserError(f"{name}: give 'population', the number of clients (or 'bias', or 'clusters')")
    if labels.size and labels.shape != (clients,):
        raise UserError(f"{name}: 'clusters' needs a label for each of {clients} clients, not {labels.shape}")
    if matrix.size and (matrix.shape != (clients, clients) or (not traced and (matrix < 0).any())):
        raise UserError(f"{name}: 'bias' is a {clients} x {clients} matrix of numbers from 0, not {matrix.shape}")
    return bias_of_clusters(labels) if labels.size else matrix


# Programs of their own, so that a server that merges outside of any compiled program does not compile anew each round.


@partial(jax.jit, static_argnames="convexity")
def _noted(warming: Tree, b: Tree, g: Params, errors: Tree, ids: Tree, heard: Tree, convexity: float | None) -> Tree:
    """b after a round of the warm-up, in which all gradients were taken at one common model."""

    def note() -> Tree:
        pairs = heard[:, None] & heard[None] & ~jnp.eye(len(ids), dtype=bool)
        blank = lambda leaf: jnp.where(heard.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0)
        squared = squared_distances(jax.tree.map(blank, g))
        usual = jnp.where(pairs, squared, 0).sum() / jnp.maximum(pairs.sum(), 1)
        unit = jnp.maximum(usual, jnp.finfo(usual.dtype).tiny) if convexity is None else 2 * convexity
        found = jnp.where(pairs, separation(squared, blank(errors)) / unit, UNKNOWN)
        return b.at[ids[:, None], ids[None]].max(found.astype(b.dtype), mode="drop")

    return lax.cond(warming, note, lambda: b)


@jax.jit
def _renewed(begins: Tree, mixing: Mixing, b: Tree, eps: Tree) -> Mixing:
    """The mixing of a phase, computed when it begins."""

    def anew() -> Mixing:
        filter = neighbours(b, eps).astype(mixing.w.dtype)
        return Mixing(formulas.mixing(filter), largest_eigenvalue(filter), formulas.loneliness(filter))

    return lax.cond(begins, anew, lambda: mixing)


def _copies(params: Params, count: int) -> Params:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), params)
