"""The files that people write and read: sites.toml, and the config of a site, of a server, and of a run."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pydantic

from apiece.errors import UserError, suggest
from apiece.files import read_toml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(\d{1,5})")


class _Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class SiteTable(_Table):
    """One site, as sites.toml names it.

    >>> SiteTable(name="north", data="north.csv", label="sick").server
    '127.0.0.1:8443'
    """

    name: str
    """What the site is called: letters, digits, - and _."""
    data: str
    """The path of its data, at the site: a CSV, Parquet or NPZ file, or a folder that `apiece data save` wrote."""
    label: str = "label"
    """The column of the target."""
    client: str | None = None
    """If the file holds rows of several sites: the column that names them; only rows of this site's name are used."""
    split: str | None = None
    """A column with train, validation or test; without it rows are dealt by chance."""
    exclude: list[str] = []
    """Columns that are no features."""
    categorical: list[str] = []
    """Columns of numbers that are levels."""
    server: str = "127.0.0.1:8443"
    """host:port where the site reaches the server."""
    seed: int = 0
    """Of the deal into train, validation and test."""

    @pydantic.field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name for a folder: letters, digits, - and _, at most 64")
        if name.lower() == "server":
            raise ValueError("'server' is the name of the server's own folder; call the site otherwise")
        return name

    @pydantic.field_validator("server")
    @classmethod
    def _address(cls, address: str) -> str:
        found = ADDRESS.fullmatch(address)
        if not found or not 0 < int(found[2]) < 65536:
            raise ValueError(f"'{address}' is no address: host:port")
        return address


class SiteConfig(SiteTable):
    """site.toml: the same, and what the project knows of it."""

    run: str
    """The name of the run."""
    number: int = pydantic.Field(ge=0)
    """The client's number in it."""
    key: str = "site.key"
    """The site's private key, beside this file."""
    ca: str = "ca.crt"
    """The certificate of the authority that signed the server's."""
    patience: float = 3600.0
    """Seconds that the site tries to reach its server before it gives up."""


class ServerConfig(_Table):
    """server.toml: where the server listens, and how long it waits."""

    run: str
    address: str = "127.0.0.1:8443"
    """Where SuperLink listens. Keep it on loopback, behind the proxy of proxy.conf: its control side has no
    authentication."""
    name: str = "localhost"
    """The host's name as sites reach it: it is in the certificate."""
    database: bool = False
    """Whether SuperLink keeps its own state on disk; apiece's own is there in any case, and goes on without it."""
    deadline: float = pydantic.Field(600.0, gt=0)
    """Seconds of a round; then it is merged with whoever answered."""
    goal: float = pydantic.Field(1.0, gt=0, le=1)
    """The share of answers that ends a round early."""
    least: float = pydantic.Field(0.5, gt=0, le=1)
    """The share without which a round is abandoned."""
    again: float = pydantic.Field(120.0, gt=0)
    """Seconds after which a letter without an answer is sent again."""
    patience: float = pydantic.Field(3600.0, gt=0)
    """Seconds that the run waits for sites to be there."""
    buffer: int = pydantic.Field(0, ge=0)
    """Above 0: nobody waits for anybody, and so many replies are merged at a time."""
    welcome: float = pydantic.Field(60.0, ge=0)
    """Seconds that the end of a run waits for sites that were added and have no model yet."""
    memory_mb: int = pydantic.Field(4096, ge=256)
    """MB that SuperLink may take; above, it is started again, and the run goes on from apiece's own disk."""


def read_sites(path: Path) -> list[SiteTable]:
    """The sites of a sites.toml: one table each, `[[site]]`, or `[site.NAME]`.

    >>> try: read_sites(Path("no-such.toml"))
    ... except UserError as error: print(error)
    there is no list of sites 'no-such.toml'
    """
    values = read_toml(path, "list of sites")
    tables = values.get("site")
    if isinstance(tables, dict):
        tables = [{"name": name, **one} if isinstance(one, dict) else one for name, one in tables.items()]
    if not isinstance(tables, list) or not tables or set(values) != {"site"}:
        raise UserError(f"{path} holds a table [[site]] for each site, and nothing else; each has name, data and label")
    sites = [_valid(SiteTable, one, f"{path}, site {number + 1}") for number, one in enumerate(tables)]
    names = [site.name.lower() for site in sites]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path} names the site '{twice[0]}' twice; names differ in more than capitals")
    return sites


def read_site(folder: Path) -> SiteConfig:
    """The config of a site's folder."""
    return _valid(SiteConfig, read_toml(folder / "site.toml", "config of a site"), str(folder / "site.toml"))


def read_server(folder: Path) -> ServerConfig:
    """The config of a server's folder."""
    return _valid(ServerConfig, read_toml(folder / "server.toml", "config of a server"), str(folder / "server.toml"))


def hash_of(values: Any) -> str:
    """A fingerprint of plain values, whatever their order.

    >>> hash_of({"a": 1, "b": 2}) == hash_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def _valid(kind: Any, values: Any, where: str) -> Any:
    try:
        return kind.model_validate(values)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            raise UserError(f"{where}: there is no key '{key}'; {suggest(key, list(kind.model_fields))}") from None
        said = problem["msg"].removeprefix("Value error, ")
        raise UserError(f"{where}: '{key}': {said[:1].lower()}{said[1:]}") from None
