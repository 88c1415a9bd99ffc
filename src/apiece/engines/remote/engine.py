"""Rounds in which every message and reply is bytes, client by client, in one process.

What a network engine does, without a network: slower than a simulation, and the same run.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.client.draw import whole
from apiece.engines.contact import Build, keys, mix_rows, model_shapes
from apiece.engines.engine import Engine, Outcomes, RunState, check_part, given_weights, join_outcomes
from apiece.engines.fallback import mend_model, mend_models
from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.engines.remote.halves import (
    NEVER,
    Agreement,
    ClientHalf,
    Memory,
    Refusal,
    ServerHalf,
    agree_from,
    compile_programs,
    data_of,
)
from apiece.engines.remote.secure import Secure, SecureClient, SecureRound, run_here
from apiece.engines.states import blank_rows
from apiece.engines.world.cohort import Participation
from apiece.engines.world.faults import Faults
from apiece.errors import UserError
from apiece.protocol import Data, Message, Params, Personal, Question, Tree

log = logging.getLogger(__name__)
GROUP = 64  # clients whose models are handed over together


class Remote(Engine):
    """Runs a method in rounds, every message and reply through bytes.

    Args:
        build, x, y, offsets, held_out, population, weights, stateless, states: as for a simulation.
        participation: who takes part. faults: who then fails to.
        secure: replies are masked, and the server sees their sum alone (`masks.py`).

    >>> import jax.numpy as jnp
    >>> from apiece.methods import fed_avg
    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum() / 2
    >>> y = np.array([0.0, 3.0, 3.0], np.float32)  # a client of one example, and one of two
    >>> engine = Remote(lambda hyper, round: fed_avg(loss, batch=0), y, y, np.array([0, 1, 3]))
    >>> run = engine.advance(engine.start(lambda key: jnp.zeros(()), seed=0), rounds=10)
    >>> round(float(run.server), 3), run.refused
    (2.0, 0)
    """

    def __init__(
        self,
        build: Build,
        x: Tree,
        y: Tree,
        offsets: np.ndarray,
        *,
        held_out: Mapping[str, tuple[Tree, Tree, np.ndarray]] | None = None,
        population: int | None = None,
        weights: str | Sequence[float] = "examples",
        stateless: bool = False,
        states: str = "auto",
        participation: Participation | None = None,
        faults: Faults | None = None,
        secure: Secure | None = None,
    ) -> None:
        self.build = build
        self.sizes = np.diff(offsets).astype(np.int32)
        self.example = jax.tree.map(lambda leaf: np.asarray(leaf[:1]), (x, y))
        self.data = {"train": _own_rows(x, y, offsets)}
        self.data |= {part: _own_rows(*arrays) for part, arrays in (held_out or {}).items()}
        self.population = len(self.sizes) if population is None else population
        self.stateless, self.states = stateless, states
        given = given_weights(weights, self.population)
        self.weights = dict.fromkeys(range(self.population), 1.0) if given is None and weights == "uniform" else None
        self.weights = self.weights if given is None else dict(enumerate(given.tolist()))
        self.participation, self.faults = participation or Participation(), faults or Faults()
        self.participation.places(self.population)  # refuses a cohort that is too large
        self.secure, self.abandoned = secure, 0
        self._programs = compile_programs(build)
        self._agreed: dict[tuple, Agreement] = {}
        self._judges: dict[Outcomes, Callable] = {}

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> RunState:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""
        hyper = dict(hyper or {})
        params = init(keys(seed).model)
        terms = self._terms(seed, hyper, params)
        server = ServerHalf(terms, self.population).server
        rows = blank_rows(terms.client, 0 if self.stateless else self.population, self.states)
        return RunState(seed, hyper, 0, params, server, rows, np.zeros(self.population, bool))

    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""
        server, took = self._server(run), 0.0
        clients: dict[int, ClientHalf] = {}
        for _ in range(rounds):
            cohort = self.participation.draw(run.seed, server.round, self.population)
            fate = self.faults.draw(run.seed, server.round, cohort, self.population)
            working = [int(i) for i in cohort[fate.works] if self.sizes[i]]
            clients |= {i: self._client(run, i) for i in working if i not in clients or self.stateless}
            heard = [i for i in map(int, cohort[fate.counts]) if i in working]
            if self.secure is not None and server.terms.reply.leaves:
                there = {i: clients[i] for i in working}
                self._secure_round(server, there, [int(i) for i in cohort if self.sizes[i]], heard)
            else:
                replies = {i: clients[i].answer(server.message(i)) for i in working}
                server.merge({i: replies[i] for i in heard}, self.weights)
            took += fate.duration
        # Before the run is looked at, or saved, everybody is told which of its replies was the last that counted.
        for i, client in clients.items() if not self.stateless else ():
            client.settle(server.heard.get(i, NEVER))
            if client.client is not None:
                run.known[i] = True
                _write(run.rows, i, client.client)
        refused = run.refused + len(server.refusals)
        clock = run.clock + took
        return dataclasses.replace(run, server=server.server, round=server.round, clock=clock, refused=refused)

    def _secure_round(
        self, server: ServerHalf, clients: Mapping[int, ClientHalf], cohort: list[int], heard: list[int]
    ) -> None:
        """A round in which the server sees a sum alone, of these clients out of a cohort; those who work and are not
        heard drop out after they have shared their secrets, and others are not there at all."""
        assert self.secure is not None
        how, reply, round = self.secure, server.terms.reply, server.round
        masking = {i: SecureClient(how, i, reply) for i in clients}
        asked = SecureRound(how, round, cohort, reply)

        def ask(stage: str, i: int, head: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
            if i not in masking:
                return None
            if stage == "visit":
                plain = clients[i].answer(server.message(i))
                return ({}, masking[i].mask(round, head, plain)) if i in heard else None
            if stage == "keys":
                return masking[i].keys(round), b""
            return (masking[i].shares if stage == "shares" else masking[i].unmask)(round, head), b""

        try:
            refused = run_here(asked, ask)
            server.refusals += [Refusal(i, round, why) for i, why in refused.items()]
            server.merge_mean(*asked.mean(), sorted(asked.masked))
        except UserError as error:  # too few are left
            log.warning("%s", error)
            self.abandoned += 1
            server.merge({})

    def ask(
        self, question: Question, message: Message = (), ids: Sequence[int] | None = None, part: str = "train"
    ) -> Tree:
        """The answers of these clients (default: all that train) on a part of their data, summed or stacked."""
        check_part(part, self.data)
        asked = schema_of("question", jax.tree.map(jnp.asarray, message))
        wire = encode(asked, jax.tree.map(jnp.asarray, message), {})
        answer = jax.jit(question.answer)
        answers = []
        for i in range(self.population) if ids is None else ids:
            data, key = self.data[part][i], jax.random.fold_in(jax.random.key(0), i)
            said = jax.tree.map(np.asarray, answer(decode(asked, wire)[0], data, key))
            if not data.size:
                said = jax.tree.map(np.zeros_like, said)
            answers.append(decode(schema_of("answer", said), encode(schema_of("answer", said), said, {}))[0])
        if question.stacked:
            return jax.tree.map(lambda *leaves: np.stack(leaves), *answers)
        return jax.tree.map(lambda *leaves: np.stack(leaves).sum(axis=0), *answers)

    def personal_groups(
        self, run: RunState, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """The models these clients use, some clients after others: (stacked models, who they are)."""
        server, visits, step = self._server(run), self.visits(run), group or GROUP
        for first in range(0, len(ids), step):
            who = np.asarray(ids[first : first + step])
            models = [self._client(run, int(i)).personal(server.message(int(i)), visits) for i in who]
            own = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *models)
            yield mend_models(self.build, run, own, who, lambda i: self.data["train"][i]), who

    def outcomes(
        self, run: RunState, ids: np.ndarray, outcomes: Outcomes, parts: Any, most: int | None = None
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Per part of the held-out data: what every client finds for each of its examples by its own model."""
        server, visits = self._server(run), self.visits(run)
        if outcomes not in self._judges:
            everything = lambda model, data: outcomes(model, whole(data))
            self._judges[outcomes] = jax.jit(everything)
        judge = self._judges[outcomes]
        found: dict[str, list] = {part: [] for part in parts}
        for i in map(int, ids):
            fewer = None if most is None else _first_of_mixed(self.data["train"][i], i, most)
            model = self._client(run, i).personal(server.message(i), visits, fewer)
            model = mend_model(self.build, run, model, i, self.data["train"][i])
            for part in parts:
                data = self.data[part][i]
                found[part].append(tuple(np.asarray(each)[: int(data.size)] for each in judge(model, data)))
        return join_outcomes(found)

    def onboard(self, run: RunState, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen, from its own training data; the run stays as it is."""
        like = lambda given, ours: np.asarray(given, ours.dtype)
        data = data_of(like(x, self.example[0]), like(y, self.example[1]))
        newcomer = ClientHalf(self._terms(run.seed, run.hyper, run.params), self.population, data)
        model = newcomer.personal(self._server(run).message(self.population), self.visits(run))
        return mend_model(self.build, run, model, self.population, data)

    def model_shapes(self, run: RunState) -> Personal:
        """The shapes of one client's personal model."""
        return model_shapes(self.build(run.hyper, 0), run.params, self.example, int(self.sizes.max(initial=1)))

    def visits(self, run: RunState) -> int:
        """How many visits a client has made on average so far; at least one."""
        return self.participation.visits_each(run.round, self.population)

    def visited(self, run: RunState) -> np.ndarray:
        """How many visits each client has made so far."""
        return self.faults.visited(self.participation, run.seed, run.round, self.population)

    def take_in(self, values: Tree) -> Tree:
        """Values from a file where this engine keeps a server's state."""
        return jax.tree.map(jnp.asarray, values)

    # Both parties of a run, as it stands.

    def _terms(self, seed: int, hyper: dict[str, float], params: Params) -> Agreement:
        name = (seed, *sorted(hyper.items()))
        if name not in self._agreed:
            self._agreed = {name: agree_from(self.build, params, self.example, seed, hyper, self._programs)}
        return self._agreed[name]

    def _server(self, run: RunState) -> ServerHalf:
        server = ServerHalf(self._terms(run.seed, run.hyper, run.params), self.population)
        server.server, server.round = run.server, run.round
        return server

    def _client(self, run: RunState, i: int) -> ClientHalf:
        """Client i as it remembers; new ones, and everybody when nothing is kept, remember nothing."""
        known = not self.stateless and i < self.population and run.known[i]
        memory = Memory(tree.take(run.rows, i) if known else None)
        return ClientHalf(self._terms(run.seed, run.hyper, run.params), i, self.data["train"][i], memory)


def _own_rows(x: Tree, y: Tree, offsets: np.ndarray) -> list[Data]:
    """Every client's own rows, apart."""
    x, y = jax.tree.map(np.asarray, (x, y))
    capacity = max(int(np.diff(offsets).max(initial=1)), 1)
    cut = lambda rows, i: jax.tree.map(lambda leaf: leaf[offsets[i] : offsets[i + 1]], rows)
    return [data_of(cut(x, i), cut(y, i), capacity) for i in range(len(offsets) - 1)]


def _first_of_mixed(data: Data, i: int, most: int) -> Data:
    """As if the client had `most` examples: the first ones in a random order, the same as in a simulation."""
    count = int(data.size)
    places = np.concatenate([mix_rows(i, count), np.arange(count, int(data.capacity or count))])
    pick = lambda leaf: leaf[places]
    size = np.int32(min(count, most))
    return dataclasses.replace(data, x=jax.tree.map(pick, data.x), y=jax.tree.map(pick, data.y), size=size)


def _write(rows: Tree, i: int, values: Tree) -> None:
    jax.tree.map(lambda leaf, value: leaf.__setitem__(i, np.asarray(value)), rows, values)
