"""With whom to learn, by trying it: together, alone, in groups; on half of each client's examples, judged on the rest.

Halves are random: files are sorted by label or by time more often than not.

What two clients' gradients or models say of each other is too little where labels are skewed: a model of one client
alone is poor for every other, and the model of all that belong together is good for each. So that nothing is
concluded from pairs but a proposal of groups, and the proposal has to prove itself.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import full_loss
from apiece.client.draw import rows, shuffler
from apiece.estimate.grouping import group_by_cost
from apiece.protocol import Batch, Data, Loss, Params, Tree

TOGETHER, ALONE, GROUPED = -3, -2, -1  # phases, before the first that trains on all examples
UNHEARD = -1e30  # the loss that nobody told; a number, as what is sent and kept has to be finite


class Trials(NamedTuple):
    """What the server notes: each client's held-out score (loss, share of errors, examples) halfway through and at the
    end of training together, alone and in its group; the loss of j's model, trained alone, at i; the groups."""

    halfway: Tree
    together: Tree
    alone: Tree
    grouped: Tree
    cross: Tree
    labels: Tree


class Tried(NamedTuple):
    """What a client says: the phase it worked in, its held-out score, whose models it was shown, and their losses."""

    phase: Tree
    held: Tree
    asked: Tree
    paid: Tree


def nothing_tried(clients: int) -> Trials:
    """Before the first round: nobody was heard, all are of one group.

    >>> nothing_tried(2).cross.shape
    (2, 2)
    """
    unknown = jnp.full((clients, 3), UNHEARD)
    cross = jnp.full((clients, clients), UNHEARD)
    return Trials(unknown, unknown, unknown, unknown, cross, jnp.zeros(clients, jnp.int32))


def length(phase: Tree, warmup: int, shows: int) -> Tree:
    """Visits of every client in a phase of trials; alone, half a warm-up comes before anybody is shown to others.

    >>> [int(length(phase, 20, 7)) for phase in (TOGETHER, ALONE, GROUPED)], int(length(ALONE, 20, 20))
    ([20, 20, 20], 30)
    """
    return jnp.where(phase == ALONE, warmup // 2 + max(warmup - warmup // 2, shows), warmup)


def shown(spent: Tree, warmup: int, shows: int, clients: int, candidates: int) -> Tree:
    """Whose models everybody tries on at this point of training alone: each client's in turn.

    >>> shown(19.0, 20, 4, 10, 3).tolist(), shown(0.0, 20, 4, 10, 3).tolist()
    ([9, 10, 11], [0, 1, 2])
    """
    turn = jnp.floor(spent) - (length(ALONE, warmup, shows) - shows)
    return (jnp.maximum(turn, 0) * candidates + jnp.arange(candidates)).astype(jnp.int32)


def in_random_order(data: Data) -> Data:
    """The client's examples, copied in a random order that is the same at every visit.

    Files are often sorted (by label, by time), and half of such a file says nothing of the other half.

    >>> mine = Data(x=jnp.arange(9.0), y=jnp.arange(9), start=2, size=5, capacity=6)
    >>> sorted(in_random_order(mine).y[:5].tolist())
    [2, 3, 4, 5, 6]
    """
    most = jax.tree.leaves(data.x)[0].shape[0] if data.capacity is None else data.capacity
    position = jnp.arange(most)
    there = position < data.size
    at = shuffler(jax.random.key(0), data.size)(0, jnp.where(there, position, 0))
    mixed = rows(data, at, there)
    return replace(data, x=mixed.x, y=mixed.y, start=jnp.zeros_like(data.start))


def halves(data: Data) -> tuple[Data, Data]:
    """The first half of a client's examples, to train on, and the rest.

    >>> [int(half.size) for half in halves(Data(x=None, y=None, start=4, size=5))]
    [3, 2]
    """
    first = (data.size + 1) // 2
    return replace(data, size=first), replace(data, start=data.start + first, size=data.size - first)


def try_models(
    loss: Loss, own: Params, others: Params, asked: Tree, phase: Tree, data: Data, key: Tree, model: Any = None
) -> Tried:
    """The score of the client's model on its second half, and the others' losses on its first, which they never saw."""
    first, second = halves(data)
    # The second half judges groups, so that it must not have proposed them.
    tell = lambda value: jnp.where(jnp.isfinite(value), value, UNHEARD).astype(jnp.float32)
    wrong = error_of(model, own, data)

    def held() -> Tree:
        right = full_loss(wrong, own, second, key) if wrong else UNHEARD
        found = jnp.stack([tell(value) for value in (full_loss(loss, own, second, key), right, second.size)])
        return jnp.where(second.size > 0, found, UNHEARD)

    paid = lambda: lax.map(lambda model: tell(full_loss(loss, model, first, key)), others)
    return Tried(
        phase.astype(jnp.float32),
        lax.cond(phase < 0, held, lambda: jnp.full(3, UNHEARD, jnp.float32)),
        asked.astype(jnp.float32),
        lax.cond(phase == ALONE, paid, lambda: jnp.full(len(asked), UNHEARD, jnp.float32)),
    )


def error_of(model: Any, params: Params, data: Data) -> Loss | None:
    """The share of a batch whose class a model gets wrong; None where the labels are no classes, or no model is known.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(apply=lambda w, x: jnp.stack([0 * x, w * x], axis=-1))
    >>> data = Data(x=jnp.array([1.0, 2.0, -1.0]), y=jnp.array([1, 1, 1]), start=0, size=3, capacity=3)
    >>> round(float(full_loss(error_of(model, jnp.array(1.0), data), jnp.array(1.0), data, jax.random.key(0))), 3)
    0.333
    >>> error_of(model, jnp.array(1.0), replace(data, y=jnp.ones(3)))
    """
    if model is None or not isinstance(data.y, jax.Array) or not jnp.issubdtype(data.y.dtype, jnp.integer):
        return None
    answers = jax.eval_shape(model.apply, params, jax.tree.map(lambda leaf: leaf[:1], data.x))
    if answers.ndim != data.y.ndim + 1:
        return None

    def wrong(params: Params, batch: Batch, key: Tree) -> jax.Array:
        there = (batch.y >= 0) * batch.weight.reshape((-1,) + (1,) * (batch.y.ndim - 1))
        missed = jnp.argmax(model.apply(params, batch.x), axis=-1) != batch.y
        return (there * missed).sum() / jnp.maximum(there.sum(), 1)

    return wrong


def told(value: Tree) -> Tree:
    """Whether somebody told it.

    >>> told(jnp.array([UNHEARD, -3.0, 0.0])).tolist()
    [False, True, True]
    """
    return value > UNHEARD / 2


def note(trials: Trials, said: Tried, ids: Tree, heard: Tree, early: Tree) -> Trials:
    """The trials after a round. `early`: training together is not half over."""
    clients = len(trials.labels)

    def put(column: Tree, now: Tree) -> Tree:
        use = heard & now & told(said.held[:, 0])
        return column.at[jnp.where(use, ids, clients)].set(said.held.astype(column.dtype), mode="drop")

    phase = said.phase
    use = (heard & (phase == ALONE))[:, None] & told(said.paid) & (said.asked >= 0) & (said.asked < clients)
    at = jnp.where(use, ids[:, None], clients), jnp.where(use, said.asked, 0).astype(jnp.int32)
    return trials._replace(
        halfway=put(trials.halfway, (phase == TOGETHER) & early),
        together=put(trials.together, phase == TOGETHER),
        alone=put(trials.alone, phase == ALONE),
        grouped=put(trials.grouped, phase == GROUPED),
        cross=trials.cross.at[at].set(said.paid.astype(trials.cross.dtype), mode="drop"),
    )


def cost_of(trials: Trials) -> Tree:
    """b: what i pays for j's model beyond its own held-out loss, at least 0, the larger of both directions; or -1.

    >>> tried = nothing_tried(2)._replace(alone=scores([0.5, 0.5]), cross=jnp.array([[0.1, 0.7], [1.5, 0.1]]))
    >>> cost_of(tried).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    own = trials.alone[:, :1]
    cost = jnp.where(told(trials.cross) & told(own), jnp.maximum(trials.cross - own, 0), -1)
    cost = jnp.maximum(cost, cost.T)
    return jnp.where(jnp.eye(len(cost), dtype=bool), 0, cost)


def propose(trials: Trials) -> Trials:
    """Groups, from what everybody pays for the models of others, more or less than for those of others on average."""
    known = told(trials.cross) & ~jnp.eye(len(trials.cross), dtype=bool)
    usual = jnp.where(known, trials.cross, 0).sum(axis=1) / jnp.maximum(known.sum(axis=1), 1)
    excess = jnp.where(known, trials.cross - usual[:, None], jnp.nan)
    return trials._replace(labels=group_by_cost(excess).astype(jnp.int32))


def decide(trials: Trials) -> tuple[Trials, Tree]:
    """The groups that proved themselves, and whether that is everybody.

    All stay together if their score, let fall once more by as much as it did since halfway, is better than that of the
    groups, which came later. A group, or everybody, parts if its members were better off alone.

    >>> one = scores([1.0, 1.0, 1.0])
    >>> tried = nothing_tried(3)._replace(halfway=one, together=one, labels=jnp.array([0, 0, 2]))
    >>> found, all = decide(tried._replace(alone=0.8 * one, grouped=scores([0.5, 0.6, 0.9])))
    >>> found.labels.tolist(), bool(all)
    ([0, 0, 5], False)
    """
    halfway, together, alone, grouped, _, labels = trials
    clients = len(labels)
    known = told(halfway[:, 0]) & told(together[:, 0]) & told(alone[:, 0]) & told(grouped[:, 0])
    one = jnp.zeros_like(labels)
    fell = jnp.where(known[:, None], halfway - together, 0)[:, :2].sum(axis=0) / jnp.maximum(known.sum(), 1)
    later = together.at[:, :2].add(-jnp.maximum(fell, 0))
    all_of_them = known.any() & (behind(grouped, later, known, one, 1)[0] > 0)
    labels = jnp.where(all_of_them, one, labels)
    parted = behind(jnp.where(all_of_them, later, grouped), alone, known, labels, clients)[labels] > 0
    alone_now = clients + jnp.arange(clients, dtype=labels.dtype)
    return trials._replace(labels=jnp.where(parted, alone_now, labels)), all_of_them


def behind(a: Tree, b: Tree, known: Tree, labels: Tree, groups: int) -> Tree:
    """By group, a number above 0 if scores b are better than a: fewer errors, if that is no chance; else a less loss.

    Errors are what users count, and a loss that is dominated by a few sure mistakes can grow while they fall. But they
    are coarse: so they decide where they differ by more than a standard error (at most as many examples as the two
    get wrong can differ), and the loss where they do not, or where there are none.

    >>> few, many = scores([0.9, 0.9], [0.1, 0.1], 100), scores([0.5, 0.5], [0.3, 0.3], 100)
    >>> behind(many, few, jnp.full(2, True), jnp.zeros(2, int), 1).tolist()
    [1.0]
    >>> close = scores([0.5, 0.5], [0.12, 0.12], 100)
    >>> round(behind(few, close, jnp.full(2, True), jnp.zeros(2, int), 1).item(), 3)
    0.8
    """
    add = lambda values: jax.ops.segment_sum(jnp.where(known, values, 0), labels, groups)
    judged = known & told(a[:, 1]) & told(b[:, 1])
    count = jnp.where(judged, a[:, 2], 0)
    fewer, either = add(count * (a[:, 1] - b[:, 1])), add(count * (jnp.abs(a[:, 1]) + jnp.abs(b[:, 1])))
    return jnp.where(jnp.abs(fewer) > jnp.sqrt(either), jnp.sign(fewer), add(a[:, 0] - b[:, 0]))


def scores(losses: Any, errors: Any = UNHEARD, examples: Any = UNHEARD) -> jax.Array:
    """A column of scores.

    >>> scores([0.5, 0.25], 0.125, 20).tolist()
    [[0.5, 0.125, 20.0], [0.25, 0.125, 20.0]]
    """
    return jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(part, jnp.float32) for part in (losses, errors, examples))), -1)


def begin_phase(x: Params, trials: Trials, phase: Tree) -> tuple[Params, Trials]:
    """Models and trials when the phase that follows `phase` begins; the last row of x is where all began."""
    again = lambda: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[-1:], leaf.shape), x)

    def mean_last(models: Params) -> Params:
        return jax.tree.map(lambda leaf: leaf.at[-1].set(leaf[:-1].mean(axis=0)), models)

    def settle() -> tuple[Params, Trials]:
        found, all_of_them = decide(trials)
        return mean_last(tree.where(all_of_them, again(), x)), found

    way = jnp.where(phase == ALONE, 1, jnp.where(phase == GROUPED, 2, 0))
    return lax.switch(way, [lambda: (x, trials), lambda: (again(), propose(trials)), settle])
