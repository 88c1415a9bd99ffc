"""`apiece deploy init`: from a spec and a list of sites to a folder that holds all a deployment needs."""

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from apiece.deploy import templates
from apiece.deploy.config import ServerConfig, SiteTable, read_server
from apiece.deploy.keys import make_authority, make_certificate, make_site_key, write_secret
from apiece.deploy.roster import Entry, Roster, read_roster, write_roster
from apiece.deploy.server import refuse_unfit
from apiece.errors import UserError
from apiece.experiment.spec import BASELINES, Spec, make_spec, read_values
from apiece.experiment.written import written_spec
from apiece.files import as_plain, fill_folder, replace_file, write_toml


def spec_of(path: Path, method: str | None = None) -> Spec:
    """The spec of a file as it is deployed: the methods that it names (or the one asked for), and training alone beside
    them; nothing is tuned, one seed."""
    values = read_values(path)
    named = _table_of(values, "methods", str(path))
    chosen = [name for name in named if name not in BASELINES] or list(named)
    if method is not None:
        chosen = [method]
    if not chosen:
        raise UserError(f"{path} names no method under [methods]; name one with --method")
    return deployed_spec({**values, "methods": {name: named.get(name, {}) for name in chosen}}, str(path), named)


def deployed_spec(values: dict[str, Any], where: str, known: dict[str, Any] | None = None) -> Spec:
    """Any values of a spec as they are deployed."""
    rows = {"local": (known or {}).get("local", {}), **_table_of(values, "methods", where)}
    data = {key: one for key, one in _table_of(values, "data", where).items() if key == "standardize"}
    seeds = values.get("seeds", [0])
    seeds = seeds[:1] if isinstance(seeds, list) else seeds
    spec = make_spec({**values, "data": data, "methods": rows, "baselines": False, "tune": 1, "seeds": seeds}, where)
    refuse_unfit(spec)
    return spec


def _table_of(values: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise UserError(f"{where}: '{name}' is a table, [{name}], not {found!r:.40}")
    return found


def make_project(
    folder: Path,
    spec: Spec,
    sites: Sequence[SiteTable],
    *,
    name: str,
    address: str,
    host: str,
    place: Path | None = None,
    **server: Any,
) -> Path:
    """Write a project into a new folder: whole or not at all.

    Args:
        name: of the run. address: where SuperLink listens. host: the server's name as sites reach it.
        place: where on their machines the folders of server and sites will lie, by name; without it, here.
        server: other keys of server.toml.
    """
    config = ServerConfig(run=name, address=address, name=host, **server)
    with fill_folder(folder) as made:
        (made / "authority").mkdir()
        make_authority(made / "authority", name)
        shutil.copy(made / "authority" / "ca.crt", made / "ca.crt")
        entries = []
        for number, site in enumerate(sites):
            entries.append(_write_site(made, _there(folder, place, site.name), site, number, name))
        write_roster(made / "roster.toml", Roster(tuple(entries), len(entries)))
        write_toml(made / "run.toml", as_plain(written_spec(spec)))
        _write_server(made, _there(folder, place, ""), config)
        services = [_service("server", "server", "server")]
        services += [_service(site.name, "node", f"sites/{site.name}", _data(site)) for site in sites]
        (made / "image").mkdir()
        _text(made / "image" / "Dockerfile", templates.IMAGE.format(version=version("apiece")))
        _text(made / "compose.yaml", templates.COMPOSE.format(services="".join(services)))
        os.chmod(made, 0o700)
    return folder


def add_site(project: Path, site: SiteTable, place: Path | None = None) -> Path:
    """Another site for a project that exists: its folder, its key, its line in the roster. It is a newcomer."""
    roster = read_roster(project / "roster.toml")
    if site.name in roster.names:
        raise UserError(
            f"{project} has a site '{site.name}' already; a new key goes into roster.toml beside its old one"
        )
    entry = _write_site(project, _there(project, place, site.name), site, len(roster.sites), _run_of(project))
    write_roster(project / "roster.toml", Roster((*roster.sites, entry), roster.population))
    return project / "sites" / site.name


def renew_certificate(project: Path) -> Path:
    """A new key and certificate for a project's server; where it is."""
    config = read_server(project / "server")
    make_certificate(project / "authority", project / "server", _hosts(config))
    return project / "server" / "server.crt"


def _hosts(config: ServerConfig) -> list[str]:
    return [config.name, config.address.rpartition(":")[0].strip("[]"), "localhost", "127.0.0.1"]


def _run_of(project: Path) -> str:
    return read_server(project / "server").run


def _there(project: Path, place: Path | None, site: str) -> Path:
    """Where the folder of a site will lie, or ("") that of the server: in the project, or on a machine of its own."""
    if place is not None:
        if not place.is_absolute():
            raise UserError(f"--place {place} is a path on other machines: give it from the root on, as /srv/apiece")
        return place / (site or "server")
    return project.resolve() / "sites" / site if site else project.resolve() / "server"


def _data(site: SiteTable) -> str | None:
    """The absolute path of a site's data, if they are on this machine; else it is a path at the site."""
    data = Path(site.data).expanduser()
    return str(data.resolve()) if data.exists() else None


def _write_site(made: Path, there: Path, site: SiteTable, number: int, run: str) -> Entry:
    here = made / "sites" / site.name
    here.mkdir(parents=True)
    public = make_site_key(here / "site.key")
    shutil.copy(made / "ca.crt", here / "ca.crt")
    table = site.model_dump(exclude_none=True)
    table["data"] = _data(site) or site.data
    write_toml(here / "site.toml", {"run": run, "number": number, **table})
    _text(here / "start.sh", templates.START.format(command="node"), executable=True)
    what, names = f"the site {site.name} of {run}", dict(name=site.name, command="node", folder=there)
    _text(here / f"apiece-{site.name}.service", templates.UNIT.format(what=what, program=_program(), **names))
    return Entry(site.name, (public,))


def _write_server(made: Path, there: Path, config: ServerConfig) -> None:
    here = made / "server"
    (here / "app" / "apiece_run").mkdir(parents=True)
    make_certificate(made / "authority", here, _hosts(config))
    write_secret(here / "superexec.secret", secrets.token_bytes(32))
    write_toml(here / "server.toml", config.model_dump())
    _text(here / "app" / "pyproject.toml", templates.APP.format(folder=json.dumps(str(there))))
    _text(here / "app" / "apiece_run" / "__init__.py", '"""A run of apiece."""\n')
    _text(here / "app" / "apiece_run" / "server_app.py", templates.SERVER_APP)
    _text(here / "app" / "apiece_run" / "client_app.py", templates.CLIENT_APP)
    _text(here / "start.sh", templates.START.format(command="server"), executable=True)
    names = dict(what=f"the server of {config.run}", program=_program(), folder=there)
    _text(here / "apiece-server.service", templates.UNIT.format(name="server", command="server", **names))
    proxy = dict(address=config.address, name=config.name, folder=there, ca=there.parent / "ca.crt")
    _text(here / "proxy.conf", templates.PROXY.format(**proxy))


def _service(name: str, command: str, path: str, data: str | None = None) -> str:
    volumes = json.dumps(["./:/apiece", *([f"{data}:{data}:ro"] if data else [])])
    return templates.SERVICE.format(name=name, command=command, path=path, version=version("apiece"), volumes=volumes)


def _program() -> str:
    return shutil.which("apiece") or "/usr/local/bin/apiece"


def _text(path: Path, text: str, executable: bool = False) -> None:
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    if executable:
        path.chmod(0o755)
