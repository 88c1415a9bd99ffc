"""How letters get to clients and back: what a network engine asks of a network, and the shortest one.

A post promises nothing: letters may be lost, come twice, late or damaged. All that is exact is above it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Post(Protocol):
    """Letters by client number.

    `limit` is how many bytes an answer may have. Of one that has more, a post need not fetch the rest: any bytes above
    the limit stand for it, and are refused.
    """

    limit: int

    def present(self) -> set[int]:
        """The clients that can be reached now."""
        ...

    def send(self, letters: Mapping[int, bytes]) -> None:
        """Send each client its letter; one that cannot be reached gets none."""
        ...

    def collect(self, seconds: float) -> list[tuple[int, bytes | None]]:
        """What came back, waiting at most so long for the first; None: the client's letter got lost."""
        ...


class InProcess:
    """Clients in this process: `answer[i]` is client i.

    >>> post = InProcess({3: lambda letter: letter + b"!"})
    >>> post.send({3: b"hello"})
    >>> post.collect(1.0)
    [(3, b'hello!')]
    """

    def __init__(self, answer: Mapping[int, Callable[[bytes], bytes]]) -> None:
        self.answer, self.limit = dict(answer), 1 << 28
        self.waiting: list[tuple[int, bytes]] = []

    def present(self) -> set[int]:
        """Everybody."""
        return set(self.answer)

    def send(self, letters: Mapping[int, bytes]) -> None:
        """Put them where `collect` finds them."""
        self.waiting += [(i, letter) for i, letter in letters.items() if i in self.answer]

    def collect(self, seconds: float) -> list[tuple[int, bytes | None]]:
        """The answers to all that was sent."""
        asked, self.waiting = self.waiting, []
        if not asked:
            time.sleep(min(seconds, 0.01))
        return [(i, self.answer[i](letter)) for i, letter in asked]
