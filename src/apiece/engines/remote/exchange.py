"""Letters to many clients and their answers: sent again until these come, or the deadline; what is wrong is refused."""

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from apiece.engines.remote.letter import Terms, read_letter, reason, write_letter
from apiece.engines.remote.post import Post
from apiece.engines.remote.station import NeedsTerms
from apiece.errors import UserError

EARLY = ("visit", "keys", "shares", "unmask")  # what ends when enough have answered
Tell = Callable[..., None]  # called with an event and what there is to say of it: a line of the log


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long a server waits. Seconds; shares of the clients that are asked.

    >>> Pace(deadline=5).enough(4, of=4)
    True
    """

    deadline: float = 600.0  # of a round: then it is merged with whoever answered, or abandoned
    goal: float = 1.0  # the share of answers that ends a round early
    least: float = 0.5  # the share without which a round is abandoned: nothing of it counts
    again: float = 120.0  # after which a letter without an answer is sent again
    patience: float = 3600.0  # that a run waits for the least share to be there at all
    buffer: int = 0  # above 0: nobody waits, and so many replies are merged at a time
    tries: int = 3  # answers of a client to one letter that may be refused; then nobody waits for it any more

    def enough(self, answers: int, of: int) -> bool:
        """Whether a round may end now."""
        return answers >= max(1, math.ceil(self.goal * of - 1e-9))


class Introduced(UserError):
    """The answer of a site that was told the terms in between."""


class Exchange:
    """Questions to clients over a post, as one party of a run.

    >>> from apiece.engines.remote.post import InProcess
    >>> terms = Terms("0.1", "wards", "")
    >>> echo = lambda wire: write_letter(read_letter(wire).head, b"yes")
    >>> Exchange(InProcess({0: echo}), terms).ask("survey", "", {0: b""}, {0: {}})[0][1]
    b'yes'
    """

    def __init__(
        self,
        post: Post,
        terms: Terms,
        pace: Pace | None = None,
        tell: Tell = lambda event, **about: None,
        limit: int = 1 << 25,  # before the sizes of replies are known: of surveys
    ) -> None:
        self.post, self.terms, self.pace, self.tell = post, terms, pace or Pace(), tell
        self.introduction: bytes | None = None  # what was agreed, for a site that does not know it
        self.limit = limit
        self._there: set[int] | None = None

    @property
    def limit(self) -> int:
        """The bytes that an answer may have: the post fetches no more."""
        return self.post.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self.post.limit = limit

    def there(self) -> set[int]:
        """The clients that can be reached now; the log is told when they change."""
        found = self.post.present()
        if found != self._there:
            self._there = set(found)
            self.tell("present", clients=sorted(found))
        return found

    def ask(
        self,
        task: str,
        row: str,
        bodies: Mapping[int, bytes],
        about: Mapping[int, dict[str, Any]],
        strict: bool = False,
        read: Callable[[int, dict[str, Any], bytes], Any] = lambda i, head, body: (head, body),
    ) -> dict[int, Any]:
        """What these clients answer, until the deadline, of each that did: (head, body), or what `read` makes of it,
        which may refuse it. `strict`: a no is an answer."""
        found: dict[int, Any] = {}

        def accept(i: int, head: dict[str, Any], body: bytes) -> None:
            found[i] = read(i, head, body)

        self.wait_for(row, list(bodies))
        self.run(task, row, bodies, about, accept, 0, len(bodies), strict)
        return found

    def run(
        self,
        task: str,
        row: str,
        bodies: Mapping[int, bytes],
        about: Mapping[int, dict[str, Any]],
        accept: Callable[[int, dict[str, Any], bytes], None],
        already: int,
        of: int,
        strict: bool = False,
    ) -> int:
        """Send, collect, send again, until enough or the deadline; how many answers were refused.

        A client whose answers were refused `tries` times is waited for no longer: one that sends nonsense does not
        hold up the others.
        """
        letters = {i: self.letter(task, row, i, body, about[i]) for i, body in bodies.items()}
        last: dict[int, float] = {}
        done: set[int] = set()
        given_up: set[int] = set()
        bad, introduced = Counter[int](), Counter[int]()
        began = time.monotonic()
        while len(done) + len(given_up) < len(letters):
            if done and task in EARLY and self.pace.enough(already + len(done), of):
                break
            now = time.monotonic()
            if now - began > self.pace.deadline:
                self.tell(
                    "late", row=row, task=task, clients=sorted(set(letters) - done - given_up), **_round_of(about)
                )
                break
            there = self.there()
            open_with = [i for i in letters if i in there and i not in done and i not in given_up]
            due = [i for i in open_with if now - last.get(i, -1e9) > self.pace.again]
            last |= dict.fromkeys(due, now)
            if due:
                self.post.send({i: letters[i] for i in due})
            for i, wire in self.post.collect(max(0.05, min(1.0, began + self.pace.deadline - now))):
                if wire is None:
                    last.pop(i, None)  # lost: send it again at once
                    time.sleep(0.05)
                    continue
                if i not in letters or i in done or i in given_up:
                    self.tell("ignored", row=row, client=i, task=task, why="nothing was open with this client")
                    continue
                try:
                    accept(i, *self.open(task, row, i, wire, about[i]))
                    done.add(i)
                    continue
                except (Introduced, NeedsTerms) as error:
                    introduced[i] += 1
                    if isinstance(error, NeedsTerms):
                        self.introduce(row, i)
                        time.sleep(0.05)
                except UserError as error:
                    bad[i] += 1
                    self.tell("refused", row=row, client=i, task=task, why=reason(error), **_round_of(about))
                    if strict:
                        done.add(i)
                        continue
                last.pop(i, None)  # at once again: it may have been damaged on its way, or did not know the terms
                if bad[i] >= self.pace.tries or introduced[i] > 2 * self.pace.tries:
                    given_up.add(i)
                    self.tell("given_up", row=row, client=i, task=task, tries=bad[i], **_round_of(about))
        return bad.total()

    def introduce(self, row: str, i: int) -> None:
        """Tell a client what was agreed: it is new, or lost its disk."""
        if self.introduction is not None:
            self.tell("introduced", row=row, client=i)
            self.post.send({i: self.letter("propose", "", i, self.introduction, {})})

    def letter(self, task: str, row: str, i: int, body: bytes, about: dict[str, Any]) -> bytes:
        """A letter to client i, as bytes."""
        return write_letter(self.terms.head(task=task, row=row, client=i, **about), body)

    def open(self, task: str, row: str, i: int, wire: bytes, about: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """(head, body) of an answer; a `UserError` if it is not one to this letter."""
        letter = read_letter(wire, self.limit)
        head = letter.head
        if head.get("task") == "propose" != task:
            raise Introduced(f"client {i} knows the terms now")
        if head.get("needs") == "terms":
            raise NeedsTerms(f"client {i} does not know the terms")
        if head.get("task") == "refusal":
            raise UserError(f"the site refuses: {head.get('why')}")
        self.terms.check(head, f"client {i}")
        wanted = {"task": task, "row": row, "client": i}
        wanted |= {"round": about["round"]} if "round" in about else {}
        for name, value in wanted.items():
            if head.get(name) != value:
                raise UserError(f"client {i} answers {name} {head.get(name)!r}, and was asked of {value!r}")
        return head, letter.body

    def wait_for(self, row: str, cohort: list[int]) -> None:
        """Wait until the least share of these clients can be reached."""
        least, began, told = max(1, math.ceil(self.pace.least * len(cohort) - 1e-9)), time.monotonic(), False
        while len(there := self.there() & set(cohort)) < least:
            if not told:
                self.tell("waiting", row=row, there=sorted(there), least=least, of=len(cohort))
                told = True
            if time.monotonic() - began > self.pace.patience:
                raise UserError(f"only {len(there)} of {len(cohort)} sites were there within {self.pace.patience:g} s, "
                                f"and a round needs {least}; start the sites, or lower 'least'")  # fmt: skip
            time.sleep(0.2)


def _round_of(about: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    found = next(iter(about.values()), {})
    return {"round": found["round"]} if "round" in found else {}
