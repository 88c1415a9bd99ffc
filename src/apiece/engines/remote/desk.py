"""A client's desk: letters in, letters out, its memory in one file between them.

The rules of exactly-once work (`seen` is the latest round of any letter that was answered):

- an earlier round than `seen`: refused. The server never goes back, unless somebody restored an old copy of it;
- the round of the last answer, and the same letter: the stored reply is sent again, nothing is computed;
- the same round, another letter: done again from the state before or, where each round may be answered only once
  (`once`: noise or masks that hide one answer do not hide two), refused;
- any later round: the work goes on, and the state is committed as the letter says (`heard`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.client.draw import whole
from apiece.engines.contact import Build
from apiece.engines.engine import Outcomes, RunState
from apiece.engines.fallback import mend_model
from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.engines.remote.halves import MOST, NEVER, Agreement, ClientHalf, Memory
from apiece.engines.remote.letter import Letter
from apiece.engines.remote.memory_file import Answered, load_memory, save_memory
from apiece.engines.remote.secure import Secure, SecureClient
from apiece.engines.remote.sums import Sums, sum_outcomes
from apiece.errors import UserError
from apiece.protocol import Data, Method, Personal, Question

Reply = tuple[dict[str, Any], bytes]  # what a letter back says of itself, and its content


class Desk:
    """One client's side of one method and seed.

    Args:
        terms: what both parties know. i: the client's number. parts: its data, "train" and held-out ones.
        file: where its memory lies. outcomes: what it judges its model by. questions: what may be asked, by name.
        rounds: of the run; a letter of later ones is refused. once: no round is answered by two different replies.
        secure: replies are masked (`secure.py`).
        alone: where outcomes of training alone are kept, to be compared with; and whether this is that method.
        spec: the hash of what was agreed. judged: told of the model whenever it was judged, and of the round.
    """

    def __init__(
        self,
        terms: Agreement,
        i: int,
        parts: Mapping[str, Data],
        file: Path,
        *,
        outcomes: Outcomes | None = None,
        questions: Mapping[str, Question] | None = None,
        alone: tuple[dict[str, tuple[np.ndarray, ...]], bool] | None = None,
        spec: str = "",
        rounds: int = MOST,
        once: bool = False,
        secure: Secure | None = None,
        judged: Callable[[Personal, int], None] = lambda model, round: None,
    ) -> None:
        self.terms, self.i, self.parts, self.file, self.spec, self.rounds = terms, i, parts, file, spec, rounds
        self.once = once or secure is not None
        self.masking = None if secure is None or not terms.reply.leaves else SecureClient(secure, i, terms.reply)
        memory, self.answered = load_memory(file, terms)
        self.half = ClientHalf(terms, i, parts["train"], memory)
        self.questions, self.alone, self.judged, self.fallen = dict(questions or {}), alone, judged, False
        self._judge = None if outcomes is None else jax.jit(lambda model, data: outcomes(model, whole(data)))
        self._asked = {name: jax.jit(question.answer) for name, question in self.questions.items()}

    def visit(self, letter: Letter) -> Reply:
        """The method's work on one letter, or on several rounds at once where the server has nothing to say."""
        first, many = _count(letter, "round", 0), _count(letter, "rounds", 1, least=1)
        last = first + many - 1
        if last >= self.rounds:
            raise UserError(f"the letter is of round {last}, and the run has {self.rounds}")
        if many > 1 and self.terms.message.leaves:
            raise UserError(f"the letter is of {many} rounds, and this method has a message for each")
        if last == self.answered.round and letter.digest == self.answered.digest:
            return {"again": True}, self.answered.reply
        if last == self.answered.round and self.once:
            raise UserError(f"round {last} was answered here, to another letter: what hides one answer does not hide "
                            "two; the server goes on with the next round")  # fmt: skip
        if last == self.answered.round and self.answered.seen == last:
            self.half.memory = Memory(self.half.memory.client)  # another letter: from the state before
        elif first < self.answered.seen or first <= self.answered.round:
            raise UserError(f"round {first} is over here, where round {self.answered.seen} was seen: the server went "
                            "back, or the letter is an old one")  # fmt: skip
        if self.masking is not None:
            self.masking.ready(last)
        reply = b""
        for later in range(many):
            reply = self.half.answer(self._renumbered(letter.body, first, later) if many > 1 else letter.body)
        if self.masking is not None:
            reply = self.masking.mask(last, letter.head, reply)  # what it was is nowhere any more
        self.answered = Answered(last, letter.digest, reply, last)
        self._save()
        return {}, reply

    def hide(self, letter: Letter) -> Reply:
        """What masks are made of, and taken away by, before and after a visit."""
        if self.masking is None:
            raise UserError("nothing was agreed about masks")
        round = _count(letter, "round", 0)
        if round >= self.rounds:
            raise UserError(f"the letter is of round {round}, and the run has {self.rounds}")
        if letter.head.get("task") == "keys":
            if round <= self.answered.round:
                raise UserError(f"round {round} was answered here: there are no more keys for it")
            return self.masking.keys(round), b""
        made = self.masking.shares if letter.head.get("task") == "shares" else self.masking.unmask
        return made(round, letter.head), b""

    def judge(self, letter: Letter) -> Reply:
        """This client's own model on its own held-out examples: counts and sums."""
        if self._judge is None:
            raise UserError("nothing was agreed that models are judged by")
        asked = letter.head.get("parts")
        if not isinstance(asked, list) or not all(isinstance(part, str) and part in self.parts for part in asked):
            raise UserError(f"the letter asks of the parts {asked!r:.80}; there are {', '.join(self.parts)}")
        model = self.personal(letter)
        found: dict[str, Sums] = {}
        for part in asked:
            data = self.parts[part]
            values = tuple(np.asarray(one)[: int(data.size)] for one in self._judge(model, data))
            beside = None
            if self.alone is not None:
                kept, mine = self.alone
                if mine:
                    kept[part] = values
                beside = kept.get(part)
            found[part] = sum_outcomes(values, beside)
        self.judged(model, _count(letter, "round", 0))
        return {"fallen": self.fallen}, encode(schema_of("sums", found), found, {})

    def personal(self, letter: Letter) -> Personal:
        """The model this client uses, by the server's message in a letter."""
        round, visits = _count(letter, "round", 0), _count(letter, "visits", 1)
        if round > self.rounds:
            raise UserError(f"the letter is of round {round}, and the run has {self.rounds}")
        if round < self.answered.seen:
            raise UserError(f"round {round} is over here, where round {self.answered.seen} was seen: the server went "
                            "back, or the letter is an old one")  # fmt: skip
        message, _ = decode(self.terms.message, letter.body)
        model = self.half.personal(letter.body, visits)
        # A client knows the server's state by its message alone: that is what stands in for a model that is no number.
        told = RunState(self.terms.seed, self.terms.hyper, round, self.terms.params, message, (), np.zeros(1, bool))
        mended = mend_model(_as_told(self.terms.build), told, model, self.i, self.parts["train"])
        self.fallen = bool(told.fallen)
        self.answered.seen = round
        self._save()
        return mended

    def ask(self, letter: Letter) -> Reply:
        """The answer to a question, of those that are known here by name: no code is ever sent."""
        name, part = str(letter.head.get("question")), str(letter.head.get("part", "train"))
        if name not in self.questions or part not in self.parts:
            raise UserError(f"there is no question '{name}' about '{part}' here; both sides run the same version")
        like = jax.tree.map(np.asarray, letter.head.get("message", ()))
        data, key = self.parts[part], jax.random.fold_in(jax.random.key(0), self.i)
        said = jax.tree.map(np.asarray, self._asked[name](like, data, key))
        if not data.size:
            said = jax.tree.map(np.zeros_like, said)
        return {}, encode(schema_of("answer", said), said, {})

    def _renumbered(self, body: bytes, first: int, later: int) -> bytes:
        message, header = decode(self.terms.message, body)
        heard = header.get("heard", NEVER) if later == 0 else first + later - 1
        return encode(self.terms.message, message, {**header, "round": first + later, "heard": heard})

    def _save(self) -> None:
        save_memory(self.file, self.half.memory, self.answered, {"client": self.i, "spec": self.spec})


def _count(letter: Letter, name: str, default: int, least: int = 0) -> int:
    """A whole number that a letter's head says."""
    value = letter.head.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise UserError(f"the letter has {name} {value!r:.40}; it is a whole number from {least}")
    return value


def _as_told(build: Build) -> Build:
    """The method whose server's state is the message itself: all that a client knows of it."""

    def made(hyper: dict[str, Any], round: Any) -> Method:
        return build(hyper, round)._replace(message=lambda server, i: server)

    return made


Handle = Callable[[Letter], Reply]
