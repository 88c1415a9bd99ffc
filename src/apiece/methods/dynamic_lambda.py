"""FedCLUP whose pull grows while held-out examples say that sharing helps."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.aggregate import mean, plain_mean
from apiece.client.descend import descend, full_loss, toward
from apiece.errors import UserError
from apiece.methods.fed_clup import theory_steps
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree, keep_work
from apiece.registry import FromZero, Positive, StepSize


class Mark(NamedTuple):
    """The best round of a stage: its validation loss, the server's version after it, and the shared model then."""

    loss: jax.Array
    version: jax.Array
    x: Params


class Climb(NamedTuple):
    """The server's state: the shared model, where on the grid it is, what was best there and one stage below."""

    x: Params
    stage: jax.Array  # 0: everybody alone; j: the j-th value of the grid
    version: jax.Array  # rounds merged
    stale: jax.Array  # rounds without improvement
    best: Mark
    below: Mark
    stopped: jax.Array
    restored: jax.Array


class News(NamedTuple):
    """What a client is told."""

    x: Params
    stage: jax.Array
    best: jax.Array  # the versions of the two marks
    below: jax.Array
    stopped: jax.Array
    restored: jax.Array


class Kept(NamedTuple):
    """A client's own model as of a version of the server."""

    version: jax.Array
    w: Params


class Own(NamedTuple):
    """A client's model, and as it was at the two marks."""

    w: Params
    best: Kept
    below: Kept
    late: jax.Array  # joined after the end: it may still train


def dynamic_lambda(
    loss: Loss,
    *,
    grid: Tree = (0.01, 0.05, 0.2, 1.0, 5.0),
    patience: int = 3,
    improvement: Tree = 0.02,
    validation: Tree = 0.2,
    alone_steps: int = 200,
    steps: int = 20,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    smoothness: Positive | None = None,
    convexity: Positive | None = None,
) -> Method:
    """FedCLUP from local models upwards: lam climbs a grid as long as the validation loss does not suffer.

    First round: every client trains alone, `alone_steps` steps; x <- mean w_i. Then rounds of FedCLUP with lam_j of
    the ascending grid, keeping x and all w_i when j changes; v = mean of the clients' losses on the last `validation`
    share of their examples, which are never trained on. If v is not below (1 - improvement) best_j for `patience`
    rounds, lam_j has reached its plateau: if best_j > (1 + improvement) best_{j-1}, everybody goes back to the models
    of best_{j-1}, and the run is over; else it climbs to j + 1, or is over at the end of the grid.

    Solves: min mean_i [L_i(w_i) + lam/2 |w_i - x|^2] for the lam of the grid where the first rise of the
      validation loss stops it. Its final error is near that of the best fixed lam; on the way it is not.
    Sent: x, the place on the grid and four marks down; x - w, the validation loss and whether there is one up.
    Kept: w and its copies from the best rounds of this stage and the one below by the client, which finds out from
      version numbers what to copy or restore; the same of x by the server.
    Forgetting: FedProx with a climbing lam.
    Guarantee: none known for the choice of lam; for each fixed lam that of FedCLUP. With partial participation v is
      that of the round's clients, and noisy.
    Reference: the FedCLUP paper, which describes the idea in words; the steps are made explicit here.

    Args:
        grid: the values of lam, ascending. patience: rounds without improvement that make a plateau. improvement:
        the relative change that counts. validation: share of a client's examples, its last ones, that is held out;
        clients where it rounds to none have no say in v. alone_steps: local steps of the first round. steps: local
        steps a round. lr: step size. batch: examples a step, 0 for all. smoothness, convexity: L and mu of the
        clients' losses; given, `steps`, `lr` and the server's step are the theory's for each lam (else 1/lam).

    >>> dynamic_lambda(lambda params, batch, key: 0.0, grid=[0.5, 0.1])
    Traceback (most recent call last):
    apiece.errors.UserError: option 'grid' of method 'dynamic_lambda' is a list of positive numbers that ascend
    """
    lams = np.asarray(grid, float)
    if lams.ndim != 1 or not len(lams) or not (lams > 0).all() or not (np.diff(lams) > 0).all():
        raise UserError("option 'grid' of method 'dynamic_lambda' is a list of positive numbers that ascend")
    if (smoothness is None) != (convexity is None):
        raise UserError("dynamic_lambda: theory needs both 'smoothness' and 'convexity', or neither; one was given")
    pulls, sizes, rates, counts = _stages(lams, alone_steps, steps, lr, smoothness, convexity)

    def parted(data: Data) -> tuple[Data, Data, jax.Array]:
        held = jnp.minimum(jnp.round(validation * data.size), data.size - 1).astype(jnp.int32)
        rest = data.size - held
        # Who holds nothing out is given its first row, which then does not count: no row of a neighbour is ever read.
        first = jnp.where(held > 0, data.start + rest, data.start)
        own = partial(dataclasses.replace, data)
        return own(size=rest), own(start=first, size=jnp.maximum(held, 1)), (held > 0).astype(jnp.float32)

    def settled(own: Own, news: News) -> Own:
        # A version that it does not know is later than its last work: its model of then is the present one.
        best = tree.where(news.best == own.best.version, own.best, Kept(news.best, own.w))
        below = tree.where(news.below == own.best.version, own.best, Kept(news.below, own.w))
        below = tree.where(news.below == own.below.version, own.below, below)
        return Own(tree.where(news.restored & ~own.late, below.w, own.w), best, below, own.late)

    def local(own: Client, news: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        train_key, judge_key = jax.random.split(key)
        rest, held_out, counted = parted(data)
        own = settled(own, news)
        count = jnp.where(news.stopped & ~own.late, 0, counts[news.stage])
        pull = toward(news.x, pulls[news.stage])
        w = descend(loss, own.w, rest, train_key, steps=count, lr=sizes[news.stage], batch=batch, shift=pull)
        value = full_loss(loss, w, held_out, judge_key)
        return own._replace(w=w), (tree.sub(news.x, w), value, counted)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        away, values, counted = replies
        rate = jnp.where(server.stopped, 0, rates[server.stage])
        x = tree.step(server.x, -rate, plain_mean(away, cohort.weight))
        version = server.version + 1

        says = jnp.where(cohort.weight > 0, counted, 0)
        heard = (says.sum() > 0) & (server.stage > 0) & ~server.stopped
        v = jnp.where(heard, mean(values, says), server.best.loss)
        waited = jnp.where(v < (1 - improvement) * server.best.loss, 0, server.stale + 1)
        stale = jnp.where(heard, waited, server.stale).astype(jnp.int32)
        best = tree.where(v < server.best.loss, Mark(v, version, x), server.best)

        plateau = heard & (stale >= patience)
        back = plateau & (best.loss > (1 + improvement) * server.below.loss)
        last = plateau & ~back & (server.stage == len(lams))
        climb = plateau & ~back & ~last
        return Climb(
            x=tree.where(back, server.below.x, x),
            stage=(server.stage + climb - back + (server.stage == 0)).astype(jnp.int32),
            version=version,
            stale=jnp.where(climb, 0, stale),
            best=best._replace(loss=jnp.where(climb, _worst(x), best.loss)),
            below=tree.where(climb, best, server.below),
            stopped=server.stopped | back | last,
            restored=server.restored | back,
        )

    def init(params: Params, key: Tree) -> Server:
        zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        nothing = Mark(_worst(params), zero, params)
        return Climb(params, zero, zero, zero, nothing, nothing, no, no)

    def message(server: Server, i: Tree) -> Message:
        marks = server.best.version, server.below.version
        return News(server.x, server.stage, *marks, server.stopped, server.restored)

    def enroll(params: Params, news: Message, data: Data, key: Tree) -> Client:
        return Own(news.x, Kept(news.best, news.x), Kept(news.below, news.x), news.stopped)

    personal = lambda own, news, data, key: settled(own, news).w
    report = lambda server: {"lam": pulls[server.stage]}
    return Method(init, message, merge, enroll, local, personal, keep=keep_work, report=report)


def _worst(params: Params) -> jax.Array:
    """A loss that any other is below: states are finite."""
    dtype = jax.tree.leaves(params)[0].dtype
    return jnp.asarray(jnp.finfo(dtype).max, dtype)


def _stages(
    lams: np.ndarray, alone_steps: int, steps: int, lr: Tree, smoothness: float | None, convexity: float | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Of every stage, the first of them alone: pull, step size, how far x goes to the mean of the w_i, local steps."""
    if smoothness is None or convexity is None:
        terms, alone = [(1 / lam, lr, steps) for lam in lams], lr
    else:
        terms = [theory_steps(float(lam), smoothness, convexity) for lam in lams]
        alone = 1 / smoothness
    gammas, sizes, counts = zip(*terms, strict=True)
    return (
        jnp.asarray([0.0, *lams]),
        jnp.stack([jnp.asarray(size) for size in (alone, *sizes)]),
        jnp.asarray([1.0, *(lams * gammas)]),
        jnp.asarray([alone_steps, *counts], jnp.int32),
    )
