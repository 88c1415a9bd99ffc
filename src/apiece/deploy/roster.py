"""Who is who: from a node's key to a client's number, on the server alone. A site's own claim counts for nothing."""

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


def _entry(one: Any, path: Path) -> Entry:
    fits = isinstance(one, dict) and isinstance(one.get("number"), int) and isinstance(one.get("name"), str)
    if not fits or not isinstance(one.get("keys"), list) or not all(isinstance(key, str) for key in one["keys"]):
        raise UserError(f"{path}: a [[site]] has number, name and keys (texts of public keys); found {one!r:.80}")
    return Entry(one["name"], tuple(key.strip() for key in one["keys"]))
