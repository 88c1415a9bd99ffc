"""All-for-all (AFA): a model for every client at the price of one reply each."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import descend, full_loss
from apiece.client.solve import slopes
from apiece.errors import UserError, suggest
from apiece.estimate.similarity import (
    combine,
    gradient_and_error,
    largest_eigenvalue,
    neighbours,
    separation,
    squared_distances,
)
from apiece.methods import trials
from apiece.methods.given_bias import given_bias
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Positive, StepSize, Tolerance
from apiece.theory import formulas

UNKNOWN = -1.0  # the b of two clients that were never seen together
FOREVER = 2.0**30  # rounds
WAYS = ("trials", "gradients")


class Mixing(NamedTuple):
    """What a phase mixes with: W, its largest eigenvalue, S = sum_i 1/N_i, and whose models newcomers choose from."""

    w: Tree
    largest: Tree
    loneliness: Tree
    chosen: Tree


class Everybody(NamedTuple):
    """The server: everybody's model, stacked, and after them their mean, for newcomers too; the phase (-1: warm-up) and
    how many of its rounds are over; its mixing; the b measured so far (nothing if it was given); the mean over the
    rounds of the phase (nothing unless it is asked for); what the trials found (nothing unless they are made).
    """

    x: Params
    phase: Tree
    spent: Tree
    mixing: Mixing
    b: Tree
    mean: Tree
    trials: Tree


class Shown(NamedTuple):
    """What a client is shown: where to take its gradient, the model to use, models of others, whether it is new; while
    groups are tried, in which phase, and whose models these are."""

    x: Params
    used: Tree
    others: Tree
    new: Tree
    phase: Tree
    asked: Tree


def all_for_all(
    loss: Loss,
    *,
    model: Any = None,
    population: FromZero = 0,
    steps: int = 20,
    lr: StepSize = 0.1,
    bias: Any = (),
    clusters: Any = (),
    eps: Tolerance = 1.0,
    halve_every: FromZero = 0,
    by: str = "trials",
    warmup: int = 10,
    smoothness: Positive | None = None,
    convexity: Positive | None = None,
    noise: Positive | None = None,
    bound: Positive | None = None,
    distance: Positive | None = None,
    averaged: bool = False,
    candidates: FromZero = 3,
    batch: FromZero = 32,
) -> Method:
    """Every client's model moves by the work of those like it, each done from that one's own model.

    Client j answers with g_j, the sum of the gradients of `steps` steps of size lr from x_j: (x_j - y_j) / lr. Server:
    x_i <- x_i - r sum over j in S of W_ij g_j, with W = Lambda Lambda', Lambda 1/N_i on the N_i clients with
    b_ij <= eps/2 (S: who answered; no N/|S|), and r = lr / l, l = lambda_max(W), unless the constants of a theory are
    given. steps = 1 with batch = 0 is the published method, for which lr = 1 is a good step. All start at one point:
    what lies outside the range of Lambda would never be unlearned. With everybody apart this is `local`, with all
    together `fed_avg` of equal weights.
    b is given (`bias`, or `clusters`: 0 within, infinite between), or groups are found, in one of two ways.
    by = "trials": three times `warmup` visits of every client on a random half of its examples, judged on the rest:
    together; alone, while everybody tries on the others' models, `candidates` a round, and average linkage of what
    these cost proposes groups, cut at the widest gap; in these groups. What is best on held-out examples stays: all
    together, a group, or each of its members alone; by errors of classes where these tell, else by the loss. Then all
    examples train. Together and the groups are kept on with, so that one warm-up and what the showing takes is spent on
    finding out. b is what i pays for j's model.
    by = "gradients": `warmup` rounds in which all share one model; b_ij is the largest |g_i - g_j|^2 - e_i - e_j, e_i
    the squared standard error that client i sends along, in units of 2 mu (`convexity` mu given), else of that round's
    mean |g_i - g_j|^2. So eps = 1 parts two clients that differ by more than half of what two gradients differ on
    average, noise included. Clients never seen together in a round are apart. Skewed labels part clients, too.
    A newcomer joins those whom its examples fit best: it is shown the models of `candidates` clients who have most
    partners, each of another group as far as there are groups, and uses the one with the least loss on its examples.
    Phases: eps halves every `halve_every` rounds; or by theory, phase q with eps_q = eps / 2^q and S_q = sum_i 1/N_i.
    Setting 2, L = smoothness, mu = convexity, sigma^2 = noise: r_q = min{1/(2 L l_q), mu eps_q N / (2 L sigma^2 S_q)},
    K_q = ceil(ln 4 / (mu r_q)) rounds. Setting 1, |G| <= B = bound, |x - x*| <= D = distance, one uniform client a
    round: r_q = N eps_q / (2 B^2 S_q), K_q = ceil(4 D^2 B^2 S_q / eps_q^2). x is kept from phase to phase.
    averaged: clients use the mean of x over the phase, which is what theory bounds in setting 1 and for mu = 0.

    Solves: min over y of (1/N) sum_i L_i((Lambda y)_i), x = Lambda y; for b_ij <= eps/2 within eps of everybody's own.
    Sent: one model down, and the candidates' (with `averaged` one more); g_j up (and a few losses while groups are
      found). With candidates = 0 a newcomer has the mean of all models, and groups are not tried.
    Kept: nothing by the client; N models by the server, and N^2 numbers b.
    Forgetting: changes nothing.
    Guarantee: synchronous (L-smooth, mu-strongly convex), N / S times fewer samples than alone; asynchronous, one
      uniform client a step, with the mean iterate and setting 1's steps; for steps = 1 and for b that holds, not for an
      estimate.
      Without the division by l, which reaches N/4, setting 2 can diverge.
    Reference: Even, Massoulié, Scaman 2022 (On sample optimality in personalized collaborative and federated learning).

    Args:
        model: the model, by which errors are counted; given by whoever runs the method. population: how many clients
        there are; told by the engine. steps: local steps a round. lr: step size. bias: the matrix b, or the name of a
        file that holds it (.csv, .npy), a row for each client in the order of the federation. clusters: a
        label for each client. eps: the precision that filters b. halve_every: rounds until eps halves, 0 never.
        by: how groups are found when b is not given: "trials" or "gradients". warmup: how long; in rounds by gradients,
        of which more are needed where few take part, and in visits of each client by trials.
        smoothness, convexity, noise: L, mu and sigma^2; all given, steps and phases are those of setting 2. Of these,
        convexity alone is the unit in which b is measured. bound, distance: B and D; given, those of setting 1.
        averaged: use the mean iterate. candidates: how many models newcomers choose from. batch: examples a step,
        0 for all.

    >>> method = all_for_all(lambda params, batch, key: 0.0, clusters=[0, 0, 1])
    >>> server = method.init(jnp.zeros(2), jax.random.key(0))
    >>> server.x.shape, method.message(server, 1).x.shape
    ((4, 2), (2,))
    """
    given = given_bias("all_for_all", population, bias, clusters)
    measured = not given.size
    clients = population or len(given)
    theory = smoothness is not None and noise is not None
    if (smoothness is None) != (noise is None) or (theory and convexity is None):
        raise UserError("all_for_all: theory's steps need all of 'smoothness', 'convexity' and 'noise'")
    if (bound is None) != (distance is None) or (theory and bound is not None):
        raise UserError("all_for_all: setting 1 needs 'bound' and 'distance', and neither 'smoothness' nor 'noise'")
    offered = min(candidates, clients)
    trying = measured and by == "trials"
    if steps != 1 and (theory or bound is not None or (measured and by == "gradients")):
        why = "theory's steps are" if theory or bound is not None else "by = 'gradients' is"
        raise UserError(f"all_for_all: {why} for a single gradient a round: give steps = 1")
    if by not in WAYS:
        raise UserError(f"all_for_all: 'by' is not {by!r}: {suggest(by, WAYS)}")
    if trying and not offered:
        raise UserError("all_for_all: 'by' = 'trials' needs 'candidates' of 1 or more")
    shows = min(-(-clients // max(offered, 1)), warmup)  # rounds until everybody was shown, or as many as there are

    def bounds(server: Everybody) -> Tree:
        """The b in force: what was given or measured; in the warm-up nothing parts anybody, but for a trial."""
        _, phase, _, _, b, _, tried = server
        if not trying:
            return jnp.where(phase < 0, 0, jnp.where(b < 0, jnp.inf, b)) if measured else given
        apart = (tried.labels[:, None] != tried.labels) | (phase == trials.ALONE)
        return jnp.where(apart & (phase > trials.TOGETHER), jnp.inf, 0.0)

    def pace(mixing: Mixing, phase: Tree, eps: Tree) -> tuple[Tree, Tree]:
        """The step, and for how many rounds."""
        rate, rounds = lr / mixing.largest, jnp.asarray(halve_every or FOREVER)
        if smoothness is not None and convexity is not None and noise is not None:
            known = clients, eps, smoothness, convexity, noise
            rate = formulas.steady_step(mixing.largest, mixing.loneliness, *known)
            rounds = jnp.minimum(formulas.steps_to_a_quarter(convexity, rate), FOREVER)
        if bound is not None and distance is not None:
            rate = formulas.phase_step(mixing.loneliness, clients, eps, bound)
            rounds = jnp.minimum(jnp.ceil(formulas.phase_length(mixing.loneliness, eps, bound, distance)), FOREVER)
        return rate, jnp.where(phase < 0, trials.length(phase, warmup, shows) if trying else warmup, rounds)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, phase, spent, mixing, b, middle, tried = server
        g = replies[0] if measured else replies
        heard = (cohort.weight > 0) & (cohort.ids < clients)
        now = eps / 2.0 ** jnp.maximum(phase, 0)
        mixing = _renewed(spent == 0, mixing, bounds(server), now)
        rate, rounds = pace(mixing, phase, now)
        columns = mixing.w.at[:, cohort.ids].get(mode="fill", fill_value=0)
        last = columns.mean(axis=0, keepdims=True)  # the last row moves as the mean does
        if trying:
            last = jnp.where((phase == trials.ALONE) | (phase == trials.GROUPED), 0, last)  # or stays where all began
        x = tree.step(x, -rate, combine(jnp.concatenate([columns, last]), g, heard))
        if trying:
            tried = trials.note(tried, replies[1], cohort.ids, heard, spent < warmup / 2)
        elif measured:
            b = _noted(phase < 0, b, g, replies[1], cohort.ids, heard, convexity)
        if averaged:
            middle = tree.mix(middle, x, 1 / (spent + 1))
        # A trial lasts until everybody has had so many visits; all else so many rounds.
        after = spent + (jnp.where(phase < 0, heard.sum() / clients, 1) if trying else 1)
        over = after > rounds - 0.5 / clients
        if trying:
            x, tried = lax.cond(over, lambda: trials.begin_phase(x, tried, phase), lambda: (x, tried))
        return Everybody(x, phase + over, jnp.where(over, 0, after).astype(spent.dtype), mixing, b, middle, tried)

    def message(server: Server, i: Tree) -> Message:
        used = server.mean if averaged else server.x
        pick = lambda rows, which: tree.take(rows, jnp.minimum(which, clients))
        new, whose, asked = jnp.asarray(i >= clients), server.mixing.chosen, ()
        if trying:
            asked = trials.shown(server.spent, warmup, shows, clients, offered)
            whose = jnp.where(new | (server.phase != trials.ALONE), whose, jnp.minimum(asked, clients))
        others = tree.take(used, whose) if offered else ()
        phase = server.phase if trying else ()
        return Shown(pick(server.x, i), pick(used, i) if averaged else (), others, new, phase, asked)

    def moved(x: Params, data: Data, key: Tree) -> Params:
        if steps == 1:
            return slopes(data, key, batch=batch)(0, loss, x)
        ahead = descend(loss, x, data, key, steps=steps, lr=lr, batch=batch)
        return tree.scale(1 / lr, tree.sub(x, ahead))

    def local(client: Client, shown: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        if trying:
            data = trials.in_random_order(data)
            said = trials.try_models(loss, shown.x, shown.others, shown.asked, shown.phase, data, key, model)
            first = replace(data, size=jnp.where(shown.phase < 0, trials.halves(data)[0].size, data.size))
            return client, (moved(shown.x, first, key), said)
        if measured:
            return client, gradient_and_error(loss, shown.x, data, key, batch)
        return client, moved(shown.x, data, key)

    def personal(client: Client, shown: Message, data: Data, key: Tree) -> Params:
        used = shown.used if averaged else shown.x
        return lax.cond(shown.new, lambda: best_of(loss, shown.others, data, key), lambda: used) if offered else used

    def init(params: Params, key: Tree) -> Server:
        nobody = jnp.zeros(offered, jnp.int32)
        blank = Mixing(jnp.zeros((clients, clients)), jnp.ones(()), jnp.ones(()), nobody)  # renewed by the first phase
        b = jnp.full((clients, clients), UNKNOWN) if measured and not trying else ()
        x, phase = tree.copies(params, clients + 1), jnp.int32(trials.TOGETHER if trying else -1 if measured else 0)
        tried, spent = (trials.nothing_tried(clients), jnp.float32(0)) if trying else ((), jnp.int32(0))
        return Everybody(x, phase, spent, blank, b, x if averaged else (), tried)

    def report(server: Server) -> dict[str, Tree]:
        if trying:
            return {"w": server.mixing.w, "b": trials.cost_of(server.trials)}
        b = server.b if measured else jnp.asarray(given)
        return {"w": server.mixing.w, "b": b}

    return Method(
        init=init,
        message=message,
        merge=merge,
        enroll=lambda params, shown, data, key: (),
        local=local,
        personal=personal,
        report=report,
    )


def best_of(loss: Loss, models: Params, data: Data, key: Tree) -> Params:
    """Of stacked models, the one with the least mean loss on the client's examples.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(2), y=jnp.array([3.0, 5.0]), start=0, size=2, capacity=2)
    >>> float(best_of(loss, jnp.array([-1.0, 3.5, 9.0]), data, jax.random.key(0)))
    3.5
    """
    losses = lax.map(lambda model: full_loss(loss, model, data, key), models)
    return tree.take(models, jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)))


def representatives(filter: Any, count: int) -> jax.Array:
    """Clients that stand for others: each time the one with the most partners among those that nobody stands for yet.

    >>> from apiece.estimate import bias_of_clusters
    >>> near = neighbours(bias_of_clusters([0, 1, 1, 1, 0]), 1.0)
    >>> representatives(near, 2).tolist()
    [1, 0]
    """
    near = jnp.asarray(filter) > 0

    def pick(_: Tree, carry: tuple) -> tuple:
        chosen, covered, at = carry
        best = jnp.argmax((near & ~covered).sum(axis=1)).astype(jnp.int32)
        return chosen.at[at].set(best), covered | near[best], at + 1

    start = jnp.zeros(count, jnp.int32), jnp.zeros(len(near), bool), 0
    return lax.fori_loop(0, count, pick, start)[0]


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
        numbers = formulas.mixing(filter), largest_eigenvalue(filter), formulas.loneliness(filter)
        return Mixing(*numbers, representatives(filter, len(mixing.chosen)))

    return lax.cond(begins, anew, lambda: mixing)
