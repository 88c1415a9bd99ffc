"""Held-out scores stay with the clients: a method whose clients keep them, and tell sums of them.

A client scores all candidates on its held-out examples once, when it enrolls, and keeps what they said. From then on

    a round          r_e(k) ~ w_k p_e(k) at the client;  w_k <- mean_i mean_e r_e(k) at the server: EM, pooled
    when it is asked sums over its examples of losses and errors, of the candidates and of mixtures of them

so that no example's probabilities leave a client, nor do the weights that it finds for itself.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.advise.questions import Scores
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods.stack import own_weights
from apiece.protocol import Client, Cohort, Data, Message, Method, Params, Reply, Server, Tree

KAPPAS = (10.0, 30.0, 100.0, np.inf)  # examples that pooled weights count for, against a client's own
STEPS = 60  # of the pooled EM
WIDTH = 6  # candidates in a mixture, at most
LEAST = {True: -30.0, False: -300.0}  # log densities below count as this: of classes, of numbers
Score = Callable[[Message, Data, Tree], Scores]


class Inquiry(NamedTuple):
    """What the server says: what candidates are made from; which of them are `chosen`; two pooled mixtures of those
    (the second may leave some out); and the variance of numbers, of models on three quarters and on half of the data.
    """

    given: Tree
    chosen: Any
    weights: Any
    variance: Any


class Told(NamedTuple):
    """What a client tells, and, stacked, what all do. First of models on three quarters of the data, then on half.

    `every`: summed loss of each candidate (of numbers: squared residuals). `loss`, `error`: of the chosen ones, then of
    their mixtures by each kappa, with weights from the other half of the client's examples. `..._cross`: products of
    two such, each less that of the first candidate.
    """

    count: Any
    every: Any
    loss: Any
    error: Any
    loss_cross: Any
    error_cross: Any


def explain(said: jax.Array, variance: Any, classes: bool) -> jax.Array:
    """[examples, candidates]: log densities of what was true, of what candidates said of it (`Scores`)."""
    if classes:
        return jnp.clip(said[..., 0], LEAST[True], 0.0)
    square = (said * said).sum(axis=-1)
    return jnp.maximum(-square / (2 * variance) - said.shape[-1] * jnp.log(2 * jnp.pi * variance) / 2, LEAST[False])


def expect_shares(said: jax.Array, present: jax.Array, asked: Inquiry, classes: bool) -> tuple[jax.Array, jax.Array]:
    """([2, candidates] mean responsibilities under each of the two mixtures, 1 if there is an example at all)."""
    logs = explain(said[:, asked.chosen], asked.variance[0], classes)
    shares = jax.nn.softmax(jnp.log(asked.weights)[:, None] + logs, axis=-1)
    some = present.sum()
    shares = jnp.where(present[:, None] > 0, shares, 0).sum(axis=1) / jnp.maximum(some, 1)
    return jnp.where(some > 0, shares, 0), (some > 0).astype(jnp.float32)


def tell_sums(parts: tuple, asked: Inquiry, classes: bool) -> Told:
    """What a client tells of its two parts (those of three quarters, those of half), each (said, present)."""
    told = []
    for at, (said, present) in enumerate(parts):
        there = present > 0
        first = jnp.clip(-said[..., 0], 0, -LEAST[True]) if classes else (said * said).sum(axis=-1)
        some = said[:, asked.chosen]
        logs = explain(some, asked.variance[at], classes)
        weights = [jnp.broadcast_to(one, logs.shape) for one in jnp.eye(logs.shape[1], dtype=logs.dtype)]
        weights += [_crossed(logs, present, asked.weights[0], kappa) for kappa in KAPPAS]
        both = [_mixed(some, logs, w, asked.variance[at], classes) for w in weights]
        loss, error = (jnp.where(there[:, None], jnp.stack(each, axis=1), 0) for each in zip(*both, strict=True))
        every = jnp.where(there[:, None], first, 0).sum(axis=0)
        told.append((present.sum(), every, loss, error))
    counts, sums, losses, errors = zip(*told, strict=True)
    cross = lambda values: (values - values[:, :1]).T @ (values - values[:, :1])
    total = lambda values: jnp.stack([each.sum(axis=0) for each in values])
    return Told(jnp.stack(counts), jnp.stack(sums), total(losses), total(errors), cross(losses[0]), cross(errors[0]))


def _crossed(logs: jax.Array, present: jax.Array, pooled: jax.Array, kappa: float) -> jax.Array:
    """[examples, candidates]: the weights for every example, from the other half of examples."""
    if not np.isfinite(kappa):
        return jnp.broadcast_to(pooled, logs.shape)
    even = jnp.arange(len(present)) % 2 == 0
    of = lambda mine: own_weights(logs, jnp.where(mine, 0, present), pooled, 1 / kappa)
    return jnp.where(even[:, None], of(even), of(~even))


def _mixed(
    said: jax.Array, logs: jax.Array, weights: jax.Array, variance: Any, classes: bool
) -> tuple[jax.Array, jax.Array]:
    """([examples] losses, errors) of a mixture: probabilities of classes are mixed, or predicted numbers."""
    if classes:
        p = jnp.einsum("ekr,ek->er", jnp.exp(said), weights)
        wrong = p[:, 1:].max(axis=1, initial=0) > p[:, 0]
        return -jnp.log(jnp.maximum((jnp.exp(logs) * weights).sum(axis=1), 1e-13)), wrong.astype(jnp.float32)
    mixed = jnp.einsum("eko,ek->eo", said, weights)
    return -explain(mixed[:, None], variance, classes)[:, 0], (mixed * mixed).sum(axis=1)


def keep_scores(score: Score, classes: bool, folds: int) -> Method:
    """The method: clients keep what `score` finds, rounds weigh candidates, and a client's "model" is what it tells."""

    def flat(kept: Scores, settings: slice) -> tuple[jax.Array, jax.Array]:
        said, present = kept.said[settings], kept.present[settings]
        return said.reshape(-1, *said.shape[2:]), present.reshape(-1)

    def message(server: Server, i: Tree) -> Message:
        # The key by which `Engine.ask` lets the client deal its folds: they must be the same here.
        return server, jax.random.key_data(jax.random.fold_in(jax.random.key(0), i))

    def enroll(params: Params, said: Message, data: Data, key: Tree) -> Client:
        asked, own = said
        return score(asked.given, data, jax.random.wrap_key_data(own))

    def local(client: Client, said: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, expect_shares(*flat(client, slice(0, folds)), said[0], classes)

    def merge(server: Inquiry, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        shares, some = replies
        heard = jnp.where(cohort.weight > 0, some, 0)
        total = jnp.where(heard[:, None, None] > 0, shares, 0).sum(axis=0)
        return server._replace(weights=jnp.where(heard.sum() > 0, total / jnp.maximum(heard.sum(), 1), server.weights))

    def personal(client: Client, said: Message, data: Data, key: Tree) -> Told:
        parts = flat(client, slice(0, folds)), flat(client, slice(folds, None))
        return tell_sums(parts, said[0], classes)

    return Method(init=lambda params, key: params, message=message, merge=merge, enroll=enroll, local=local,
                  personal=personal)  # fmt: skip


class HeldOut:
    """Clients that keep their held-out scores, on an engine of their own: what they tell of them.

    `rows` are (x, y, offsets) of all clients, of whom the first `population` train. `score` makes the scores from
    `given`; it is run when something is asked for the first time.
    """

    def __init__(
        self, rows: tuple, population: int, remote: bool, score: Score, given: Tree, classes: int, folds: int
    ) -> None:
        self.rows, self.population, self.remote, self.score, self.given = rows, population, remote, score, given
        self.classes, self.folds = bool(classes), folds
        self._engine: Any = None
        self._run: Any = None

    def tell(self, chosen: list[int], weights: np.ndarray, variance: np.ndarray) -> Told:
        """Everybody's sums, a row a client, of these candidates and of their mixture by these pooled weights."""
        self._say(chosen, np.stack([weights, weights]), variance)
        return Told(*map(np.asarray, self._engine.personal(self._run, np.arange(self.population))))

    def weigh(self, chosen: list[int], variance: np.ndarray) -> np.ndarray:
        """[2, candidates]: pooled weights by EM, of all chosen ones and without the last of them."""
        start = np.stack([np.full(len(chosen), 1 / len(chosen)),
                          np.append(np.full(len(chosen) - 1, 1 / max(len(chosen) - 1, 1)), 0.0)])  # fmt: skip
        self._say(chosen, start, variance)
        self._run = self._engine.advance(self._run, STEPS)
        return np.asarray(self._run.server.weights, np.float64)[:, : len(chosen)]

    def _say(self, chosen: list[int], weights: np.ndarray, variance: np.ndarray) -> None:
        fill = WIDTH - len(chosen)
        asked = Inquiry(self.given, np.array(chosen + [chosen[0]] * fill, np.int32),
                        np.pad(weights, ((0, 0), (0, fill))).astype(np.float32), np.float32(variance))  # fmt: skip
        asked = jax.tree.map(jnp.asarray, asked)
        if self._engine is None:
            method = keep_scores(self.score, self.classes, self.folds)
            first = self._engine_of(method)
            self._run = first.advance(first.start(lambda key: asked, 0), 1)  # everybody enrolls
            # Whoever is known never enrolls again: programs without that are compiled sooner.
            blank = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), self._run.rows)
            self._engine = self._engine_of(method._replace(enroll=blank))
        self._run = dataclasses.replace(self._run, server=self._engine.take_in(asked))

    def _engine_of(self, method: Method) -> Engine:
        kind: Any = Remote if self.remote else Vectorized
        return kind(lambda hyper, round: method, *self.rows, population=self.population, weights="uniform")
