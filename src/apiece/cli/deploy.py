"""`apiece deploy`: a run on real sites, from the folder that sets it up to its end."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.terminal import Json, err, out, plain_errors, show_result
from apiece.errors import UserError

app = typer.Typer(help="Run on real sites, through Flower.", no_args_is_help=True, rich_markup_mode=None)
Place = Annotated[
    Path | None,
    typer.Option("--place", help="Where the folders will lie on their machines, for units and proxy; default: here."),
]
Folder = Annotated[Path, typer.Argument(help="The folder that apiece deploy init wrote.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The new folder.")],
    spec: Annotated[Path, typer.Option("--spec", help="A spec, as of runs/advice/spec.toml.")],
    sites: Annotated[Path, typer.Option("--sites", help="A table [[site]] for each site: name, data, label, server.")],
    method: Annotated[
        str | None, typer.Option("--method", help="Which method; default: all that [methods] names.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the run; default: the folder's.")] = None,
    address: Annotated[str, typer.Option("--address", help="Where SuperLink listens.")] = "127.0.0.1:8443",
    host: Annotated[str, typer.Option("--host", help="The server's name as sites reach it.")] = "localhost",
    place: Place = None,
    json: Json = False,
) -> None:
    """Write a project: keys, and a folder for each party. With authority, certificates and roster."""
    with plain_errors():
        from apiece.deploy.config import read_sites
        from apiece.deploy.project import make_project, spec_of

        plan, listed = spec_of(spec, method), read_sites(sites)
        made = make_project(folder, plan, listed, name=name or folder.resolve().name, address=address, host=host,
                            place=place)  # fmt: skip
        told = {"folder": str(made), "sites": [site.name for site in listed], "methods": list(plan.rows)}
        text = (f"wrote {made}/ for {len(listed)} sites ({', '.join(plan.rows)})\n"
                f"  server:  apiece deploy server {made}/server\n"
                f"  site:    copy {made}/sites/NAME there, then: apiece deploy node NAME\n"
                f"  keep {made}/authority to yourself: it signs certificates")  # fmt: skip
        show_result(told, json, escape(text))


@app.command()
def add(
    folder: Folder,
    sites: Annotated[Path, typer.Option("--sites", help="A list with the new site, as for init.")],
    place: Place = None,
    json: Json = False,
) -> None:
    """Add sites to a project that exists. Also while its run goes on: they get a model by each of its methods."""
    with plain_errors():
        from apiece.deploy.config import read_sites
        from apiece.deploy.project import add_site

        made = [str(add_site(folder, site, place)) for site in read_sites(sites)]
        text = (
            "wrote " + ", ".join(made) + "\na server that runs lets their keys in; if its run is over, start it again"
        )
        show_result({"folders": made}, json, escape(text))


@app.command()
def renew(folder: Folder, json: Json = False) -> None:
    """Make a new key and certificate for the server. By the project's authority: sites need nothing new."""
    with plain_errors():
        from apiece.deploy.keys import days_left
        from apiece.deploy.project import renew_certificate

        made = renew_certificate(folder)
        told = {"file": str(made), "days": round(days_left(made))}
        show_result(told, json, escape(f"wrote {made}; start the server again"))


@app.command()
def local(
    clients: Annotated[int, typer.Option("--clients", min=2, max=64, help="Sites.")] = 4,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of training.")] = 3,
    method: Annotated[str, typer.Option("--method", help="A method of the catalog.")] = "ditto",
    data: Annotated[str, typer.Option("--data", help="A source by name, or a path.")] = "digits",
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="The project's folder; default: runs/local-N.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="The longest it may take.")] = 600.0,
    database: Annotated[bool, typer.Option("--database", help="Have SuperLink keep its state on disk.")] = False,
    json: Json = False,
) -> None:
    """Run server and sites on this machine. With TLS and keys, from agreement to models; leaves no process."""
    with plain_errors():
        import statistics

        from apiece.deploy.local import run_local, seconds_per_round
        from apiece.deploy.project import deployed_spec
        from apiece.experiment.build import federation_of
        from apiece.experiment.folder import read_record
        from apiece.experiment.spec_tables import DataSpec
        from apiece.files import find_free_path

        plan: dict[str, Any] = {"methods": {method: {}}, "train": {"rounds": rounds}}
        spec = deployed_spec(plan, "deploy local")
        options = {"clients": clients} if data in ("digits", "linear") else {}
        federation = federation_of(DataSpec(source=data, options=options, new_clients=0.0))
        if federation.clients > clients:
            federation = federation.take(list(range(clients)))
        made = folder or find_free_path(Path("runs/local"))
        err.print(f"[dim]{federation.clients} sites on loopback, {rounds} rounds of {escape(method)} ...[/]")
        run_local(made, federation, spec, seconds, database=database)
        record, took = read_record(made / "server" / "run"), seconds_per_round(made)
        score = record.methods[method].statistic("test", record.ranking.metric, "mean_weighted")
        middle = statistics.median(took) if took else None
        told = {"folder": str(made), "method": method, "sites": federation.clients, "rounds": rounds,
                record.ranking.metric: None if score is None else score.mean, "seconds_per_round": middle}  # fmt: skip
        speed = "" if middle is None else f", {middle:.2f} s a round"
        value = "" if score is None else f", test {record.ranking.metric} {score.mean:.3f}"
        text = (f"{method}: {federation.clients} sites, {rounds} rounds{speed}{value}\n"
                f"  run:    {made}/server/run/report.html\n"
                f"  a site: apiece site predict {made}/sites/site-0 rows.csv")  # fmt: skip
        show_result(told, json, escape(text))


@app.command()
def node(folder: Annotated[Path, typer.Argument(help="A site's folder, with site.toml.")], json: Json = False) -> None:
    """A site's process, until the run is over. Logs go to log.jsonl, and to stderr. Exit: 0 over, 2 a mistake or a
    refusal, 3 the server was not there."""
    with plain_errors():
        _quiet(folder)
        from apiece.deploy.journal import Journal
        from apiece.deploy.node import run_node
        from apiece.engines.devices import remember_compiled

        remember_compiled()
        journal = Journal(folder, who=folder.resolve().name)
        try:
            code = run_node(folder, journal)
        except UserError as error:
            journal.tell("failed", why=str(error))
            raise
        if json:
            show_result({"site": folder.resolve().name, "code": code}, json, "")
        if code:
            raise typer.Exit(code)


@app.command()
def server(
    folder: Annotated[Path, typer.Argument(help="The server's folder, with server.toml.")], json: Json = False
) -> None:
    """The server's processes, until the run is over. What dies is started again. Exit: 0 over, 2 a mistake."""
    with plain_errors():
        _quiet(folder)
        from apiece.deploy.journal import SUPERVISOR, Journal
        from apiece.deploy.link import run_server
        from apiece.experiment.claim import claim_folder

        journal = Journal(folder, who="supervisor", numbers=SUPERVISOR)
        with claim_folder(folder, "A run has one server: stop the other one first"), _ended_by_signals():
            run_server(folder, journal.tell)
        show_result({"folder": str(folder / "run")}, json, escape(f"the run is over: {folder}/run/report.html"))


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """How a run stands: who is there, its round, late, refused, bytes."""
    with plain_errors():
        from apiece.deploy.status import server_status

        found = server_status(folder)
        show_result(found, json, _status_text(found))


@app.command()
def doctor(
    folder: Annotated[Path, typer.Argument(help="A site's folder, or the server's.")], json: Json = False
) -> None:
    """Look at versions, disk, keys, certificates, ports, clock and data. Exit: 0 all is well, 1 something is not."""
    with plain_errors():
        from apiece.deploy.status import examine

        found = examine(folder)
        lines = [f"{'[green]ok  [/]' if one.good else '[red]FAIL[/]'} {one.what}: {escape(one.said)}" for one in found]
        show_result({"checks": [one._asdict() for one in found]}, json, "\n".join(lines))
        if not all(one.good for one in found):
            raise typer.Exit(1)


def _status_text(found: dict[str, Any]) -> str:
    why = f": {found['why']}" if found["why"] else ""
    lines = [f"{found['run']} is {found['state']}{why}"]
    if found["round"] is not None:
        up, down = (found[name] / 1e6 for name in ("bytes_up", "bytes_down"))
        lines.append(f"{found['row']}, round {found['round']}: {found['answers']} answers in {found['seconds']} s, "
                     f"{up:.2f} MB up and {down:.2f} down so far; last event {found['last_event']}")  # fmt: skip
    for site in found["sites"]:
        odd = [f"{site[name]} {name}" for name in ("late", "refused") if site[name]]
        what = "newcomer" if site["newcomer"] else "trains"
        there = {True: ["there"], False: ["away"], None: []}[site["there"]]
        lines.append(f"  {site['name']}: {', '.join([what, *there, *odd])}")
    return escape("\n".join(lines))


def _quiet(folder: Path) -> None:
    """Before Flower is imported: it tells nobody of this run."""
    import os

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    os.environ.setdefault("FLWR_HOME", str(folder.resolve() / "flower"))


def _ended_by_signals() -> Any:
    """SIGTERM ends the supervisor as Ctrl-C does, so that its children end with it."""
    import contextlib
    import signal

    def leave(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    return contextlib.nullcontext(out)
