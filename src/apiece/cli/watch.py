"""`apiece watch`: follow a run that goes on in another process."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.terminal import Json, err, out, plain_errors, show_result
from apiece.errors import UserError


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that goes on.")],
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and do not wait.")] = False,
    json: Json = False,
) -> None:
    """Follow a run that goes on: curves, time left, who answers."""
    with plain_errors():
        from rich.live import Live

        from apiece.experiment import RunFolder
        from apiece.experiment.claim import is_claimed
        from apiece.report.live import show_live

        run = RunFolder(folder)
        if not run.spec.exists() and not is_claimed(folder):
            raise UserError(f"'{folder}' is not a run folder: it has no {run.spec.name}")
        if once or json or run.is_finished:
            told = _told(run)
            show_result(told, json, _ended(folder) if told["state"] == "finished" else show_live(told))
            return
        try:
            with Live(console=out, auto_refresh=False) as screen:
                while (told := _told(run))["state"] == "running":
                    screen.update(show_live(told), refresh=True)
                    time.sleep(every)
                if told["state"] == "stopped":
                    screen.update(show_live(told), refresh=True)
        except KeyboardInterrupt:
            err.print("[dim]the run goes on[/]")
            raise typer.Exit(130) from None
        if told["state"] == "stopped":
            err.print(f"it was stopped; continue with: apiece resume {escape(str(folder))}", soft_wrap=True)
            raise typer.Exit(1)
        out.print(_ended(folder))


def _told(run: Any) -> dict[str, Any]:
    """What the run says of itself, and whether it is running, stopped or finished."""
    from apiece.experiment.claim import is_claimed
    from apiece.files import read_json

    running = is_claimed(run.path)  # before the files: what ends meanwhile is seen at the next look
    nothing = {"what": "starting", "done": 0, "first": 0, "total": 0, "began": 0.0, "at": 0.0, "runs": []}
    if run.is_finished and not running:
        return {"state": "finished", **nothing}
    try:
        told = read_json(run.live) if run.live.exists() else nothing
    except UserError:
        told = nothing  # it was finished between the two
    return {"state": "running" if running else "stopped", **told}


def _ended(folder: Path) -> str:
    return f"finished: apiece report {folder}"
