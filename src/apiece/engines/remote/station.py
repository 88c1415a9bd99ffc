"""A client as the network sees it: bytes in, bytes out, whatever comes in. What is wrong is answered with a refusal."""

from collections.abc import Callable, Mapping
from typing import Any

from apiece.engines.remote.codec import UNREADABLE
from apiece.engines.remote.desk import Desk, Handle, Reply
from apiece.engines.remote.letter import WORDS, Letter, Terms, read_letter, reason, write_letter
from apiece.errors import UserError

Tell = Callable[..., None]
# What a desk does for which task.
TASKS = {"visit": "visit", "judge": "judge", "ask": "ask", "keys": "hide", "shares": "hide", "unmask": "hide"}


class NeedsTerms(UserError):
    """The site does not know what was agreed: it is new, or lost its disk. The server tells it, and asks again."""


class Station:
    """Reads letters, checks whom and what they are for, and hands them on.

    Args:
        terms: of which run it is. i: the client's number. desk: from a row's name to this client's desk for it.
        handles: other tasks by name. tell: the log.

    >>> station = Station(Terms("0.1", "wards", ""), 2, handles={"survey": lambda letter: ({}, b"two rows")})
    >>> head = Terms("0.1", "wards", "").head(task="survey", client=2, row="")
    >>> read_letter(station.answer(write_letter(head))).body
    b'two rows'
    >>> read_letter(station.answer(b"nonsense")).head["why"]
    '8 bytes are no letter of apiece'
    """

    def __init__(
        self,
        terms: Terms,
        i: int,
        desk: Callable[[str], Desk] | None = None,
        handles: Mapping[str, Handle] | None = None,
        tell: Tell = lambda event, **about: None,
    ) -> None:
        self.terms, self.i, self.desk, self.tell = terms, i, desk, tell
        self.handles = dict(handles or {})

    def answer(self, wire: bytes) -> bytes:
        """The letter back: an answer or, to what cannot be answered, a refusal that says why."""
        head: dict[str, Any] = {}
        try:
            letter = read_letter(wire)
            head = letter.head
            about, body = self._handled(letter)
            kept = {name: head[name] for name in ("task", "row", "round") if name in head}
            return write_letter(self.terms.head(client=self.i, **kept, **about), body)
        except (UserError, *UNREADABLE) as error:
            why = reason(error)
            told = {name: str(head[name])[:WORDS] for name in ("task", "row", "round") if name in head}
            needs = {"needs": "terms"} if isinstance(error, NeedsTerms) else {}
            self.tell("refused", why=why, **told)
            return write_letter(self.terms.head(task="refusal", client=self.i, why=why, **needs))

    def _handled(self, letter: Letter) -> Reply:
        head = letter.head
        task = str(head.get("task"))
        own = task in self.handles  # what is asked before, and after, anything is agreed
        (self.terms._replace(spec="") if own else self.terms).check(head, "the server")
        if head.get("client") != self.i:
            raise UserError(f"this letter is for client {head.get('client')}, and this is {self.i}: the server's "
                            "roster names another key for this site")  # fmt: skip
        if own:
            return self.handles[task](letter)
        if task not in TASKS or self.desk is None:
            raise UserError(f"this site knows no task '{task}'; both sides run the same version")
        desk = self.desk(str(head.get("row")))
        return getattr(desk, TASKS[task])(letter)
