"""Who is who: from a node's key to a client's number, on the server alone. A site's own claim counts for nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from apiece.errors import UserError
from apiece.files import read_toml, write_toml


class Entry(NamedTuple):
    """A site: its name, and the keys it may come with (several: an old one and its successor)."""

    name: str
    keys: tuple[str, ...]


class Roster(NamedTuple):
    """The sites by client number; the first `population` of them train, others came later.

    >>> Roster((Entry("north", ("ecdsa-sha2-nistp384 AAAA",)),), 1).names
    ['north']
    """

    sites: tuple[Entry, ...]
    population: int

    @property
    def names(self) -> list[str]:
        """The sites' names, by number."""
        return [site.name for site in self.sites]

    def keys(self) -> dict[str, int]:
        """From the text of a public key to the client's number."""
        return {key: i for i, site in enumerate(self.sites) for key in site.keys}


def write_roster(path: Path, roster: Roster) -> None:
    """Write roster.toml."""
    sites = [{"number": i, "name": site.name, "keys": list(site.keys)} for i, site in enumerate(roster.sites)]
    write_toml(path, {"population": roster.population, "site": sites})


def read_roster(path: Path) -> Roster:
    """The roster of a file; a `UserError` names what is wrong in it."""
    values = read_toml(path, "roster")
    tables = values.get("site")
    if not isinstance(tables, list) or not tables:
        raise UserError(f"{path} names no [[site]]")
    entries: dict[int, Entry] = {}
    for one in tables:
        entry = _entry(one, path)
        if one["number"] in entries:
            raise UserError(f"{path} has the number {one['number']} twice")
        entries[one["number"]] = entry
    if sorted(entries) != list(range(len(entries))):
        raise UserError(f"{path}: the numbers of the sites are 0 to {len(entries) - 1}, each once; it has "
                        f"{sorted(entries)}")  # fmt: skip
    roster = Roster(tuple(entries[i] for i in range(len(entries))), values.get("population", len(entries)))
    if not isinstance(roster.population, int) or not 0 < roster.population <= len(entries):
        raise UserError(f"{path}: population is {roster.population!r}; it is how many of the sites train")
    twice = [key for site in roster.sites for key in site.keys]
    if len(set(twice)) < len(twice):
        raise UserError(f"{path}: two sites have the same key; every site has its own")
    return roster


class RosterFile:
    """A roster that is read again when its file changes: sites join, and keys come and go, while a run goes on.

    Who trains is settled before the first round; a file that says otherwise, or cannot be read, is not followed.

    Args:
        path: of roster.toml. read_key: from a key's text to the bytes by which nodes are known. tell: the log.
    """

    def __init__(self, path: Path, read_key: Callable[[bytes], bytes], tell: Callable[..., None]) -> None:
        self.path, self.read_key, self.tell = path, read_key, tell
        self._seen = self._stamp()
        self._take(read_roster(path))

    def now(self) -> Roster:
        """The roster as the file has it now."""
        if (stamp := self._stamp()) != self._seen:
            self._seen, before = stamp, self._roster
            try:
                found = read_roster(self.path)
                who = slice(before.population)
                if found.population != before.population or found.names[who] != before.names[who]:
                    raise UserError(f"{self.path}: who trains cannot change in a run; newcomers stand behind them")
                self._take(found)
            except UserError as error:
                self.tell("roster_refused", why=str(error))
        return self._roster

    def clients(self) -> dict[bytes, int]:
        """From a node's key to the client's number, now."""
        self.now()
        return self._keys

    def _take(self, roster: Roster) -> None:
        keys = {self.read_key(text.encode()): i for text, i in roster.keys().items()}
        self._roster, self._keys = roster, keys

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


def _entry(one: Any, path: Path) -> Entry:
    fits = isinstance(one, dict) and isinstance(one.get("number"), int) and isinstance(one.get("name"), str)
    if not fits or not isinstance(one.get("keys"), list) or not all(isinstance(key, str) for key in one["keys"]):
        raise UserError(f"{path}: a [[site]] has number, name and keys (texts of public keys); found {one!r:.80}")
    return Entry(one["name"], tuple(key.strip() for key in one["keys"]))
