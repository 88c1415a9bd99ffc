"""Rounds over a network: one letter to each client, with deadlines, retries, and a ledger to go on from.

The same run as a simulated one wherever the same clients take part. States stay with the clients: what the server has
is its own state, who was heard, and counts. Its outcomes are stand-ins (`sums.py`): nobody sends an example.
"""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.contact import Build, model_shapes, newcomer_model
from apiece.engines.engine import Engine, Outcomes, RunState, check_part
from apiece.engines.remote.codec import decode, schema_of
from apiece.engines.remote.exchange import Exchange, Introduced
from apiece.engines.remote.halves import NEVER, ServerHalf, agree
from apiece.engines.remote.ledger import Ledger
from apiece.engines.remote.letter import ROOM, reason
from apiece.engines.remote.secure import STAGES, Secure, SecureRound
from apiece.engines.remote.station import NeedsTerms
from apiece.engines.remote.sums import Sums, check_sums, stand_ins
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.protocol import Data, Message, Params, Personal, Question, Tree
from apiece.tree import size_in_bytes


class Networked(Engine):
    """Runs a method with clients that a post reaches.

    Args:
        build: the method. example: (x, y) of a row, for shapes. sizes: everybody's number of training examples.
        exchange: how letters travel, and how long to wait. ledger: where the server's files are.
        row: which method and seed of the run this is.
        questions: what may be asked by name. parts: everybody's number of examples of each held-out part.
        secure: replies are masked, and the server sees their sum alone (`masks.py`).
    """

    def __init__(
        self,
        build: Build,
        example: tuple[Tree, Tree],
        sizes: np.ndarray,
        *,
        exchange: Exchange,
        ledger: Ledger,
        row: str,
        parts: Mapping[str, np.ndarray],
        population: int | None = None,
        participation: Participation | None = None,
        weights: Mapping[int, float] | None = None,
        questions: Mapping[str, Question] | None = None,
        secure: Secure | None = None,
    ) -> None:
        self.build, self.example, self.sizes, self.parts = build, example, np.asarray(sizes), dict(parts)
        self.exchange, self.ledger, self.row = exchange, ledger, row
        self.population = len(self.sizes) if population is None else population
        self.participation, self.weights = participation or Participation(), weights
        self.pace, self.tell, self.questions = exchange.pace, exchange.tell, dict(questions or {})
        self.participation.places(self.population)
        self.secure = secure
        self._half: ServerHalf | None = None

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> RunState:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""
        self._half = ServerHalf(agree(self.build, init, self.example, seed, hyper), self.population)
        self._flying: dict[int, tuple[int, bytes, float]] = {}  # where nobody waits: the letters that are out,
        self._arrived: dict[int, tuple[int, bytes]] = {}  # and the answers that wait for a merge
        self.exchange.limit = self._limit()
        half, nobody = self._half, np.full(self.population, NEVER, np.int32)
        flight = {"heard": nobody, "visited": np.zeros(self.population, np.int32)}
        known = np.zeros(self.population, bool)
        return RunState(seed, half.terms.hyper, 0, half.terms.params, half.server, (), known, flight=flight)

    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run so many rounds later; what a killed server had done of them is not done again."""
        goal = run.round + rounds
        if self.ledger.state.exists():
            fresh = dataclasses.replace(run, known=run.known.copy())
            kept, _ = self.restore(self.ledger.state, fresh)
            if run.round < kept.round <= goal:
                self.tell("continue", row=self.row, round=kept.round)
                run = dataclasses.replace(kept, fallen=run.fallen)
        half = self._server(run)
        silent = not half.terms.message.leaves and not half.terms.reply.leaves and self.participation == Participation()
        while run.round < goal:
            if self.pace.buffer:
                run = self._asynchronous_round(run, half)
            elif self.secure is not None and half.terms.reply.leaves:
                run = self._secure_round(run, half, self.secure)
            else:
                run = self._round(run, half, goal - run.round if silent else 1)
            self.save(run, self.ledger.state, {})
        return run

    def ask(
        self, question: Question, message: Message = (), ids: Sequence[int] | None = None, part: str = "train"
    ) -> Tree:
        """The answers of these clients (default: all that train), summed or stacked; only questions known by name."""
        check_part(part, self.parts)
        name = next((name for name, known in self.questions.items() if known is question), None)
        if name is None:
            raise UserError("over a network only questions that every site knows by name can be asked: no code is sent")
        plain = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), message)
        who = list(range(self.population)) if ids is None else list(ids)
        about = {"question": name, "message": plain, "part": part}
        like = jax.eval_shape(lambda m, d: question.answer(m, d, jax.random.key(0)), message, self._one_client())
        schema = schema_of("answer", jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like))
        read = lambda i, head, body: decode(schema, body)[0]
        found = self.exchange.ask("ask", self.row, dict.fromkeys(who, b""), dict.fromkeys(who, about), read=read)
        self._all_there("ask", who, found)
        answers = [found[i] for i in who]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *answers)
        return stacked if question.stacked else jax.tree.map(lambda leaf: leaf.sum(axis=0), stacked)

    def personal_groups(
        self, run: RunState, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """Nobody's: personal models stay with the clients."""
        raise UserError("personal models stay at the sites: apiece site export writes a site's own")

    def outcomes(
        self, run: RunState, ids: np.ndarray, outcomes: Outcomes, parts: Any, most: int | None = None
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Made-up outcomes with the sums that each of these clients finds by its own model; NaN of who is silent."""
        half, who = self._server(run), [int(i) for i in ids]
        about = {"round": half.round, "visits": self.visits(run), "parts": list(parts)}
        blank = np.zeros(2)
        schema = schema_of("sums", {part: Sums(np.array(0), *[blank] * 5) for part in parts})
        read = lambda i, head, body: (head, self._sums(i, schema, body, parts))
        messages = {i: half.message(i) for i in who}
        found = self.exchange.ask("judge", self.row, messages, dict.fromkeys(who, about), read=read)
        made: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {part: [] for part in parts}
        for i in who:
            head, told = found.get(i, ({}, None))
            if head.get("fallen"):
                run.fallen.add(i)
            for part in parts:
                lost = np.full(int(self.parts[part][i]), np.nan, np.float32)
                made[part].append((lost, lost) if told is None else stand_ins(told[part]))
        joined = {part: tuple(np.concatenate(each) for each in zip(*both, strict=True)) for part, both in made.items()}
        return joined if who else {part: (np.zeros(0, np.float32),) * 2 for part in parts}

    def onboard(self, run: RunState, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen, from examples that are here."""
        stands = dict(seed=run.seed, round=run.round, i=self.population, visits=self.visits(run))
        rows = jnp.asarray(x, self.example[0].dtype), jnp.asarray(y, self.example[1].dtype)
        return newcomer_model(self.build(run.hyper, run.round), run.params, run.server, *rows, **stands)

    def model_shapes(self, run: RunState) -> Personal:
        """The shapes of one client's personal model."""
        return model_shapes(self.build(run.hyper, 0), run.params, self.example, int(self.sizes.max(initial=1)))

    def visits(self, run: RunState) -> int:
        """How many visits a client has made on average so far; at least one."""
        return self.participation.visits_each(run.round, self.population)

    def visited(self, run: RunState) -> np.ndarray:
        """How many visits each client has made so far, as the server counts them."""
        return np.asarray(run.flight["visited"])

    def take_in(self, values: Tree) -> Tree:
        """Values from a file where this engine keeps a server's state."""
        return jax.tree.map(jnp.asarray, values)

    # One round.

    def _round(self, run: RunState, half: ServerHalf, many: int) -> RunState:
        """Ask a cohort, wait for its answers until the deadline, and merge them: or, with too few, nothing."""
        cohort = [int(i) for i in self.participation.draw(run.seed, half.round, self.population) if self.sizes[i]]
        self.exchange.wait_for(self.row, cohort)
        first, began = half.round, time.monotonic()
        got = self.ledger.replies(first + many - 1)
        bodies = {i: half.message(i) for i in cohort if i not in got}
        half.round += many - 1  # where nobody has anything to say, many rounds are one letter
        about = {i: {"round": first, **({"rounds": many} if many > 1 else {})} for i in bodies}

        def accept(i: int, head: dict[str, Any], body: bytes) -> None:
            if refusal := half.check(i, body):
                raise UserError(refusal.why)
            self.ledger.keep(half.round, i, body)
            got[i] = body

        refused = self.exchange.run("visit", self.row, bodies, about, accept, len(got), len(cohort))
        least = max(1, math.ceil(self.pace.least * len(cohort) - 1e-9))
        if len(got) < least:
            self.tell("abandoned", row=self.row, round=half.round, answers=len(got), of=len(cohort))
            got = {}
        down = sum(map(len, bodies.values()))
        return self._merged(run, half, got, None, refused, began, many, len(cohort), down)

    def _secure_round(self, run: RunState, half: ServerHalf, how: Secure) -> RunState:
        """The same with masked replies, in four exchanges: merged is their mean, or nothing if too few stay.

        What a killed server had of a round is lost with it: its clients answer no round twice, so that it is abandoned.
        """
        cohort = [int(i) for i in self.participation.draw(run.seed, half.round, self.population) if self.sizes[i]]
        self.exchange.wait_for(self.row, cohort)
        began, refused, down = time.monotonic(), 0, 0
        asked = SecureRound(how, half.round, cohort, half.terms.reply)
        try:
            for stage in STAGES:
                heads = {i: {"round": half.round, **head} for i, head in asked.asked(stage).items()}
                bodies = {i: half.message(i) if stage == "visit" else b"" for i in heads}
                down += sum(map(len, bodies.values()))
                accept = lambda i, head, body, stage=stage: asked.take(stage, i, head, body)
                refused += self.exchange.run(stage, self.row, bodies, heads, accept, 0, len(heads))
            mean, weight = asked.mean()
        except UserError as error:  # too few are left, or somebody lied about shares
            self.tell("abandoned", row=self.row, round=half.round, why=str(error), of=len(cohort))
            half.merge({})
            return self._counted(run, half, {}, refused, began, 1, len(cohort), down)
        half.merge_mean(mean, weight, sorted(asked.masked))
        sent = {i: 8 * len(row) for i, row in sorted(asked.masked.items())}
        return self._counted(run, half, sent, refused, began, 1, len(cohort), down)

    def _asynchronous_round(self, run: RunState, half: ServerHalf) -> RunState:
        """One merge of `buffer` replies, whoever they are of; everybody who is there and not in the buffer works."""
        everybody = [i for i in range(self.population) if self.sizes[i]]
        self.exchange.wait_for(self.row, everybody)
        began, bad, down = time.monotonic(), Counter[int](), 0
        need = min(self.pace.buffer, len(everybody))
        while len(self._arrived) < need and time.monotonic() - began < self.pace.deadline:
            now = time.monotonic()
            there = self.exchange.there().intersection(everybody)
            free = [i for i in sorted(there) if i not in self._arrived and i not in self._flying]
            free = [i for i in free if bad[i] < self.pace.tries]  # who sends nonsense waits for the next merge
            for i in free:
                letter = self.exchange.letter("visit", self.row, i, half.message(i), {"round": half.round})
                self._flying[i] = (half.round, letter, now)
            late = [i for i, (_, _, at) in self._flying.items() if now - at > self.pace.again]
            self._flying |= {i: (*self._flying[i][:2], now) for i in late}
            self.exchange.post.send({i: self._flying[i][1] for i in {*free, *late}})
            down += sum(len(self._flying[i][1]) for i in {*free, *late})
            for i, wire in self.exchange.post.collect(1.0):
                if i in self._flying and wire is not None:
                    self._land(i, wire, half, bad)
        first = list(self._arrived)[:need]
        taken = {i: self._arrived.pop(i) for i in first}
        got, sent = {i: one[1] for i, one in taken.items()}, {i: one[0] for i, one in taken.items()}
        return self._merged(run, half, got, sent, bad.total(), began, 1, need, down)

    def _land(self, i: int, wire: bytes, half: ServerHalf, bad: Counter[int]) -> None:
        """An answer of a client that somebody waits for: into the buffer, or refused."""
        asked, letter, _ = self._flying[i]
        try:
            _, body = self.exchange.open("visit", self.row, i, wire, {"round": asked})
            if refusal := half.check(i, body, asked):
                raise UserError(refusal.why)
        except NeedsTerms:
            self.exchange.introduce(self.row, i)
            self._flying[i] = (asked, letter, -math.inf)  # and once more, with the terms at hand
        except Introduced:
            return
        except UserError as error:
            bad[i] += 1
            del self._flying[i]
            self.tell("refused", row=self.row, client=i, task="visit", round=asked, why=reason(error))
        else:
            del self._flying[i]
            self._arrived[i] = (asked, body)

    def _merged(
        self,
        run: RunState,
        half: ServerHalf,
        got: Mapping[int, bytes],
        sent: Mapping[int, int] | None,
        refused: int,
        began: float,
        many: int,
        asked: int,
        down: int,
    ) -> RunState:
        ordered = {i: got[i] for i in sorted(got)}
        before = len(half.refusals)
        asked_in = dict.fromkeys(ordered, half.round) if sent is None else sent
        half.merge(ordered, self.weights, sent)
        refused += len(half.refusals) - before
        if uncounted := [i for i in ordered if half.heard.get(i, NEVER) != asked_in[i]]:
            self.tell("uncounted", row=self.row, round=half.round - 1, clients=uncounted)  # a guard's doing
        sizes = {i: len(reply) for i, reply in ordered.items()}
        return self._counted(run, half, sizes, refused, began, many, asked, down)

    def _counted(
        self,
        run: RunState,
        half: ServerHalf,
        sizes: Mapping[int, int],
        refused: int,
        began: float,
        many: int,
        asked: int,
        down: int,
    ) -> RunState:
        """The run after a merge of replies of these many bytes."""
        visited, heard = (np.array(run.flight[name]) for name in ("visited", "heard"))
        known = run.known.copy()
        for i in sizes:
            visited[i] += many
            known[i] = True
        for i, last in half.heard.items():
            heard[i] = last
        took = time.monotonic() - began
        self.tell("round", row=self.row, round=half.round, answers=len(sizes), of=asked, refused=refused,
                  seconds=round(took, 3), bytes_up=sum(sizes.values()), bytes_down=down)  # fmt: skip
        changed = dict(server=half.server, round=half.round, known=known, clock=run.clock + took)
        flight = {"heard": heard, "visited": visited}
        return dataclasses.replace(run, **changed, flight=flight, refused=run.refused + refused)

    # Letters.

    def _limit(self) -> int:
        """The bytes that an answer may have: twice what is expected, and some room."""
        assert self._half is not None
        reply = sum(
            int(np.prod(shape)) * jnp.dtype(dtype).itemsize for _, dtype, shape in self._half.terms.reply.leaves
        )
        hidden = 0 if self.secure is None else 4 * reply + 512 * self.population  # 64 bits a number, shares for all
        return 2 * max(reply, size_in_bytes(self._half.terms.params)) + hidden + 16 * ROOM

    def _all_there(self, task: str, who: list[int], found: Mapping[int, Any]) -> None:
        if lost := [i for i in who if i not in found]:
            raise UserError(f"client {lost[0]} did not answer ({task}) within {self.pace.deadline:g} s")

    def _sums(self, i: int, schema: Any, body: bytes, parts: Any) -> Any:
        """A client's sums, if they are what they can be."""
        told, _ = decode(schema, body)
        for part in parts:
            check_sums(told[part], int(self.parts[part][i]), f"what client {i} tells of its examples of '{part}'")
        return told

    def _one_client(self) -> Any:
        x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), self.example)
        return Data(x, y, np.int32(0), np.int32(1), 1)

    def _server(self, run: RunState) -> ServerHalf:
        assert self._half is not None, "start comes first"
        half = self._half
        half.server, half.round = run.server, run.round
        half.heard = {i: int(last) for i, last in enumerate(np.asarray(run.flight["heard"])) if last != NEVER}
        return half
