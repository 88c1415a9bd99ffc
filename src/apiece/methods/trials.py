"""With whom to learn, by trying it: together, alone, in groups; on half of each client's examples, judged on the rest.

What two clients' gradients or models say of each other is too little where labels are skewed: a model of one client
alone is poor for every other, and the model of all that belong together is good for each. So that nothing is
concluded from pairs but a proposal of groups, and the proposal has to prove itself.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import full_loss
from apiece.estimate.grouping import group_by_cost
from apiece.protocol import Data, Loss, Params, Tree

TOGETHER, ALONE, GROUPED = -3, -2, -1  # phases, before the first that trains on all examples
UNHEARD = -1e30  # the loss that nobody told; a number, as what is sent and kept has to be finite


class Trials(NamedTuple):
    """What the server notes: each client's held-out loss halfway through and at the end of training together, alone and
    in its group; the loss of j's model, trained alone, at i; the groups."""

    halfway: Tree
    together: Tree
    alone: Tree
    grouped: Tree
    cross: Tree
    labels: Tree


class Tried(NamedTuple):
    """What a client says: the phase it worked in, its held-out loss, whose models it was shown, and their losses."""

    phase: Tree
    held: Tree
    asked: Tree
    paid: Tree


def nothing_tried(clients: int) -> Trials:
    """Before the first round: nobody was heard, all are of one group.

    >>> nothing_tried(2).cross.shape
    (2, 2)
    """
    unknown = jnp.full(clients, UNHEARD)
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


def halves(data: Data) -> tuple[Data, Data]:
    """The first half of a client's examples, to train on, and the rest.

    >>> [int(half.size) for half in halves(Data(x=None, y=None, start=4, size=5))]
    [3, 2]
    """
    first = (data.size + 1) // 2
    return replace(data, size=first), replace(data, start=data.start + first, size=data.size - first)


def try_models(loss: Loss, own: Params, others: Params, asked: Tree, phase: Tree, data: Data, key: Tree) -> Tried:
    """The loss of the client's model on its second half, and of the others' on its first, which they have not seen."""
    first, second = halves(data)
    # The second half judges groups, so that it must not have proposed them.
    tell = lambda value: jnp.where(jnp.isfinite(value), value, UNHEARD).astype(jnp.float32)
    held = lambda: jnp.where(second.size > 0, tell(full_loss(loss, own, second, key)), UNHEARD)
    paid = lambda: lax.map(lambda model: tell(full_loss(loss, model, first, key)), others)
    return Tried(
        phase.astype(jnp.float32),
        lax.cond(phase < 0, held, lambda: jnp.float32(UNHEARD)),
        asked.astype(jnp.float32),
        lax.cond(phase == ALONE, paid, lambda: jnp.full(len(asked), UNHEARD, jnp.float32)),
    )


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
        use = heard & now & told(said.held)
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

    >>> tried = nothing_tried(2)._replace(alone=jnp.array([0.5, 0.5]), cross=jnp.array([[0.1, 0.7], [1.5, 0.1]]))
    >>> cost_of(tried).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    known = told(trials.cross) & told(trials.alone)[:, None]
    cost = jnp.where(known, jnp.maximum(trials.cross - trials.alone[:, None], 0), -1)
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

    All stay together if their loss, let fall once more by as much as it did since halfway, is below that of the groups,
    which came later. A group, or everybody, parts if its members were better off alone, on average.

    >>> one = jnp.array([1.0, 1.0, 1.0])
    >>> tried = nothing_tried(3)._replace(halfway=one, together=one, labels=jnp.array([0, 0, 2]))
    >>> found, all = decide(tried._replace(alone=0.8 * one, grouped=jnp.array([0.5, 0.6, 0.9])))
    >>> found.labels.tolist(), bool(all)
    ([0, 0, 5], False)
    """
    halfway, together, alone, grouped, _, labels = trials
    clients = len(labels)
    known = told(halfway) & told(together) & told(alone) & told(grouped)
    later = together - jnp.maximum(halfway - together, 0)
    total = lambda values: jnp.where(known, values, 0).sum()
    all_of_them = known.any() & (total(later) < total(grouped))
    labels = jnp.where(all_of_them, jnp.zeros_like(labels), labels)
    loses = jnp.where(known, jnp.where(all_of_them, later, grouped) - alone, 0)
    parted = jax.ops.segment_sum(loses, labels, clients)[labels] > 0
    alone_now = clients + jnp.arange(clients, dtype=labels.dtype)
    return trials._replace(labels=jnp.where(parted, alone_now, labels)), all_of_them


def begin_phase(x: Params, trials: Trials, phase: Tree) -> tuple[Params, Trials]:
    """Models and trials when the phase that follows `phase` begins; the last row of x is where all began."""
    rows = lambda leaf: jnp.broadcast_to(leaf[-1:], leaf.shape)
    again = lambda: jax.tree.map(rows, x)

    def mean_last(models: Params) -> Params:
        return jax.tree.map(lambda leaf: leaf.at[-1].set(leaf[:-1].mean(axis=0)), models)

    def settle() -> tuple[Params, Trials]:
        found, all_of_them = decide(trials)
        return mean_last(tree.where(all_of_them, again(), x)), found

    way = jnp.where(phase == ALONE, 1, jnp.where(phase == GROUPED, 2, 0))
    return lax.switch(way, [lambda: (x, trials), lambda: (again(), propose(trials)), settle])
