"""Sites that join late: each gets a model by every method that was trained, as any newcomer does."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from apiece import files
from apiece.deploy.journal import Tell
from apiece.deploy.roster import Roster
from apiece.engines.remote.post import Post

Row = tuple[str, int]  # a method and a seed
Bring = Callable[[str, int, list[int]], Sequence[int]]  # (method, seed, newcomers) -> who has its model now


class Welcome:
    """Who of the newcomers has which model; in a file, so that nobody is brought in twice.

    Args:
        file: where that is kept. roster: who is who, now. post: who is there. bring: gives newcomers a row's model.

    >>> import tempfile
    >>> from apiece.deploy.roster import Entry
    >>> from apiece.engines.remote.post import InProcess
    >>> roster = Roster((Entry("north", ("k",)), Entry("late", ("l",))), 1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     post = InProcess({1: lambda letter: letter})
    ...     told = lambda event, **about: print(event, about["sites"])
    ...     welcome = Welcome(Path(place, "w.json"), lambda: roster, post, told, lambda name, seed, who: who)
    ...     welcome.trained("ditto", 0)
    ...     welcome.lacking()
    onboarded ['late']
    {}
    """

    def __init__(self, file: Path, roster: Callable[[], Roster], post: Post, tell: Tell, bring: Bring) -> None:
        self.file, self.roster, self.post, self.tell, self.bring = file, roster, post, tell, bring
        self.rows: list[Row] = []
        known = files.read_json(file) if file.exists() else {}
        self.done: dict[str, list[str]] = {name: list(rows) for name, rows in known.items()}

    def trained(self, name: str, seed: int) -> None:
        """Another row is trained: whoever is there gets its model, and those of rows before."""
        self.rows.append((name, seed))
        self._bring_in()

    def wait(self, seconds: float) -> None:
        """At the end of a run: so long for newcomers of the roster that were not there yet."""
        end = time.monotonic() + seconds
        self._bring_in()
        while self.lacking() and time.monotonic() < end:
            time.sleep(min(1.0, seconds))
            self._bring_in()

    def lacking(self) -> dict[int, list[Row]]:
        """Which models newcomers have not got yet, by the client's number."""
        roster = self.roster()
        late = {i: roster.names[i] for i in range(roster.population, len(roster.names))}
        lacks = {i: [row for row in self.rows if _text(row) not in self.done.get(name, [])] for i, name in late.items()}
        return {i: rows for i, rows in lacks.items() if rows}

    def _bring_in(self) -> None:
        there, lacks = self.post.present(), self.lacking()
        for name, seed in self.rows:
            late = [i for i, rows in lacks.items() if (name, seed) in rows and i in there]
            names = self.roster().names
            found = [names[i] for i in self.bring(name, seed, late)] if late else []
            for site in found:
                self.done.setdefault(site, []).append(_text((name, seed)))
            if found:
                files.write_json(self.file, self.done)
                self.tell("onboarded", row=_text((name, seed)), sites=found)


def _text(row: Row) -> str:
    return f"{row[0]}~{row[1]}"
