"""What clients answer under privacy: every answer a vector that is no longer than its clip, made at the client.

The sums of these are all that the private pilot looks at, and it looks at them with noise (`release`).
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from apiece import tree
from apiece.advise import questions as q
from apiece.advise.folds import held_out, rows_dealt
from apiece.advise.weigh import KAPPAS, WIDTH, Inquiry, Score, Told, expect_shares, tell_sums
from apiece.client.draw import whole
from apiece.client.linear import smoothness_of, with_intercept
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.protocol import Client, Cohort, Data, Message, Method, Params, Question, Reply, Server, Tree
from apiece.wrap.private import clip_row

SETTING = ((0,),)  # one fold of four is held out
SIZES_CLIP = 4.0  # in logarithms: what is within a factor of 55 of the usual counts as it is
USUAL, USUAL_SQUARE = 64.0, 4.0  # examples, and mean square of a row, from which these are counted
LEVELS_CLIP = 2.0  # of (1, loss, error, error^2), each at most 1
PREDICTORS = WIDTH + len(KAPPAS)
OUTCOMES = 2 * PREDICTORS  # losses and errors, less those of the shared model
WHAT = ("levels", "bits of scores", "scores", "weights", "bits of outcomes", "outcomes", "squares")


@lru_cache(maxsize=64)
def sizes_question(most: int) -> Question:
    """The logarithms of a client's examples (over `USUAL`) and of the mean square of its rows (over
    `USUAL_SQUARE`), clipped."""

    def answer(message: Message, data: Data, key: Tree) -> jax.Array:
        batch = whole(data, 0, most)
        n = jnp.maximum(batch.weight.sum(), 1)
        rows = with_intercept(batch.x)[:, :-1]
        square = jnp.sum(batch.weight * jnp.sum(rows * rows, axis=1)) / n
        both = jnp.log(jnp.stack([n / USUAL, jnp.clip(square / USUAL_SQUARE, 1e-30, 1e30)]))
        return clip_row(both, SIZES_CLIP)[0]

    return Question(answer)


@lru_cache(maxsize=64)
def step_question(of: q.Linear, most: int, bits: bool) -> Question:
    """How far a client's own model lies from the shared one, on rows that are not held out, clipped; `bits`: whether
    that is within the clip (1/2) or not (-1/2)."""

    def answer(message: Message, data: Data, key: Tree) -> jax.Array:
        shared, c, seed, clip = message
        batch, fold = rows_dealt(data, key, seed, most)
        mine = batch._replace(weight=jnp.where(held_out(fold, SETTING)[0], 0, batch.weight))
        path = q.walk_path(of, shared, mine, smoothness_of(mine, bool(of.classes)), c[None])
        row = ravel_pytree(tree.sub(tree.take(path, 0), shared))[0]
        row, within = clip_row(jnp.where(jnp.isfinite(row).all(), row, 0), clip)
        return within if bits else row

    return Question(answer)


@lru_cache(maxsize=64)
def share_question(of: q.Linear, most: int) -> Question:
    """How much of its model a client's own data decide at a pull: between 0 and 1."""

    def answer(message: Message, data: Data, key: Tree) -> jax.Array:
        shared, pull = message
        values = q.spectrum_question(of, most).answer(shared, data, key)
        real = values > 1e-6 * jnp.maximum(values.max(), 1e-12)
        each = jnp.where(real, values / (values + pull / jnp.maximum(data.size, 1)), 0)
        return jnp.clip(each.sum() / jnp.maximum(real.sum(), 1), 0, 1)

    return Question(answer)


class Wanted(NamedTuple):
    """The server's state: what is asked (`WHAT`), of which candidates, with which clip, and the sum that came."""

    asked: Inquiry
    what: Any
    clip: Any
    cap: Any  # of a mean loss, where its level is told
    total: Any


def answers(kept: q.Scores, wanted: Wanted, width: int) -> jax.Array:
    """What a client answers from the scores that it keeps: one vector, filled up with zeros to `width`."""
    said, present = kept.said.reshape(-1, *kept.said.shape[2:]), kept.present.reshape(-1)
    told = tell_sums(((said, present),), wanted.asked, classes=True)
    some = told.count[0] > 0
    n = jnp.maximum(told.count[0], 1)
    scores = (told.every[0] - told.every[0, 0]) / n
    outcomes = _outcomes(told, n)
    shares = expect_shares(said, present, wanted.asked, classes=True)[0][0]
    fill = lambda row: jnp.zeros(width).at[: row.size].set(jnp.where(some, row.ravel(), 0))
    bit = lambda row: fill(clip_row(row, wanted.clip)[1][None])
    level, error = jnp.clip(told.every[0, 0] / n / wanted.cap, 0, 1), jnp.clip(told.error[0, 0] / n, 0, 1)
    short = clip_row(outcomes, wanted.clip)[0]
    every: list[Callable[[], jax.Array]] = [
        lambda: fill(jnp.stack([jnp.ones(()), level, error, error * error])),
        lambda: bit(scores),
        lambda: fill(clip_row(scores, wanted.clip)[0]),
        lambda: fill(clip_row(shares, 1.0)[0]),
        lambda: bit(outcomes),
        lambda: fill(short),
        lambda: fill(jnp.outer(short, short)),  # as long as the square of the clip
    ]
    return lax.switch(wanted.what, every)


def _outcomes(told: Told, n: jax.Array) -> jax.Array:
    """Mean losses and errors of all predictors, less those of the first candidate, which is the shared model."""
    return jnp.concatenate([told.loss[0] - told.loss[0, 0], told.error[0] - told.error[0, 0]]) / n


def sum_scores(score: Score, width: int) -> Method:
    """The method: clients keep what `score` finds, and a round adds up one clipped answer of each."""

    def message(server: Server, i: Tree) -> Message:
        # The key by which `Engine.ask` lets the client deal its folds: they must be the same here.
        return server._replace(total=()), jax.random.key_data(jax.random.fold_in(jax.random.key(0), i))

    def enroll(params: Params, said: Message, data: Data, key: Tree) -> Client:
        wanted, own = said
        return score(wanted.asked.given, data, jax.random.wrap_key_data(own))

    def local(client: Client, said: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, answers(client, said[0], width)

    def merge(server: Wanted, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        return server._replace(total=jnp.where(cohort.weight[:, None] > 0, replies, 0).sum(axis=0))

    return Method(init=lambda params, key: params, message=message, merge=merge, enroll=enroll, local=local,
                  personal=lambda client, said, data, key: client.present.sum())  # fmt: skip


class KeptScores:
    """Clients that keep their held-out scores, and answer with clipped vectors: their sums."""

    def __init__(
        self, rows: tuple, population: int, remote: bool, score: Score, given: Tree, candidates: int, classes: int
    ) -> None:
        self.rows, self.population, self.remote, self.score, self.given = rows, population, remote, score, given
        self.width, self.cap = max(candidates, OUTCOMES**2), 2.0 * float(np.log(max(classes, 2)))
        self._engine: Any = None
        self._run: Any = None

    def sum(self, what: str, clip: float, chosen: list[int] | None = None, weights: np.ndarray | None = None) -> Any:
        """The sum of everybody's answers, each no longer than its clip."""
        who = chosen or [0]
        pooled = np.ones(1) if weights is None else weights
        fill = WIDTH - len(who)
        row = np.pad(pooled, (0, fill)).astype(np.float32)
        asked = Inquiry(self.given, np.array(who + [who[0]] * fill, np.int32), np.stack([row, row]),
                        np.ones(2, np.float32))  # fmt: skip
        wanted = Wanted(asked, np.int32(WHAT.index(what)), np.float32(clip), np.float32(self.cap),
                        np.zeros(self.width, np.float32))  # fmt: skip
        wanted = jax.tree.map(jnp.asarray, wanted)
        if self._engine is None:
            method = sum_scores(self.score, self.width)
            first = self._engine_of(method)
            self._run = first.advance(first.start(lambda key: wanted, 0), 1)  # everybody enrolls
            # Whoever is known never enrolls again: programs without that are compiled sooner.
            blank = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), self._run.rows)
            self._engine = self._engine_of(method._replace(enroll=blank))
        run = dataclasses.replace(self._run, server=self._engine.take_in(wanted))
        self._run = self._engine.advance(run, 1)
        return np.asarray(self._run.server.total, np.float64)

    def _engine_of(self, method: Method) -> Engine:
        kind: Any = Remote if self.remote else Vectorized
        return kind(lambda hyper, round: method, *self.rows, population=self.population, weights="uniform")
