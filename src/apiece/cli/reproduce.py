"""`apiece reproduce`: run a published experiment, and say which of its claims hold."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from apiece.cli.terminal import Json, err, plain_errors, progress, ready, say_written, show_result
from apiece.errors import UserError


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one (see --list).")] = None,
    list: Annotated[bool, typer.Option("--list", help="Show what can be reproduced.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A minute or two: fewer repetitions, smaller sizes.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for verdict and figure; default: a new one under runs/.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Folder for the parts of a long one, from which a stopped run goes on."),
    ] = None,
    json: Json = False,
) -> None:
    """Run a published experiment, and judge what it claims. Published, ours, verdict. Real data: see APIECE_DATA."""
    with plain_errors():
        from apiece import reproduce as published
        from apiece.files import find_free_path, make_folder
        from apiece.report import terminal as show

        ready()
        if list:
            rows = [{"name": known, "title": published.title_of(known)} for known in published.NAMES]
            table = show.grid(("name", "what it is"), [[row["name"], row["title"]] for row in rows], left=2)
            show_result({"reproductions": rows}, json, table)
            return
        if name is None:
            raise UserError(f"which one? {', '.join(published.NAMES)} (or --list)")
        published.module_of(name)
        folder = make_folder(out or find_free_path(Path("runs") / f"reproduce-{name}"))
        with _nothing_half_written(folder, keep):
            with progress() as watch:
                found = published.reproduce(name, quick=quick, watch=watch, keep=keep)
            files = published.write(found, folder)
        told = {key: value for key, value in found.items() if key != "figure"}
        show_result(told, json, _verdict(found))
        say_written(files)


@contextlib.contextmanager
def _nothing_half_written(folder: Path, keep: Path | None) -> Iterator[None]:
    """The folder was new and empty: whoever is stopped leaves none, but for the pieces in `keep`."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, KeyboardInterrupt):
            left = "" if keep is None else f" but what is done, in {keep}: the same command goes on from there"
            err.print(f"\nstopped; nothing was written{left}")
            raise typer.Exit(130) from None
        raise


def _verdict(found: dict[str, Any]) -> Any:
    from apiece import reproduce as published
    from apiece.report import terminal as show

    claims = [published.claim_of(claim) for claim in found["claims"]]
    count = ", ".join(f"{many} {verdict}" for verdict, many in published.counted(found["claims"]).items())
    notes = [f"Of {len(claims)} claims: {count}; {found['seconds']:.0f} s" + (" (quick)." if found["quick"] else ".")]
    notes.append("[could see]: the least effect that the run would tell from none in four of five cases.")
    notes.append("(theory): a proved formula, corrected where misprinted; (reference): an independent computation;")
    notes.append("(here): a claim that goes beyond the paper; all others are the paper's.")
    return show.verdicts(published.HEADS, [published.cells(claim) for claim in claims], [*notes, *found["notes"]])
