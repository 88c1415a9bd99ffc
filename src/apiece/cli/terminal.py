"""What every command shares: where results and errors are printed, progress, and a user's mistakes."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from apiece.errors import UserError

out, err = Console(highlight=False), Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def ready() -> None:
    """Every core, and compiled programs kept between runs."""
    from apiece.engines.devices import remember_compiled, use_all_cores

    remember_compiled()
    use_all_cores()


def show_result(result: dict[str, Any], as_json: bool, text: Any) -> None:
    """Print the result: as JSON, or as text (anything that rich can print)."""
    from apiece.files import as_plain

    if as_json:
        sys.stdout.write(json.dumps(as_plain(result), indent=1, allow_nan=False) + "\n")
    else:
        out.print(text)


def say_written(files: list[Path]) -> None:
    """Name the files of a figure, and what is missing for a PNG."""
    names = ", ".join(file.name for file in files)
    err.print(f"[dim]wrote[/] {escape(str(files[0].parent))}/  [dim]({escape(names)})[/]", soft_wrap=True)
    if not any(file.suffix == ".png" for file in files):
        err.print("[dim]no PNG: it is drawn by Matplotlib; pip install 'apiece\\[figures]'[/]", soft_wrap=True)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """A user's mistake: one paragraph on stderr, exit code 2."""
    try:
        yield
    except UserError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


@contextlib.contextmanager
def progress() -> Iterator[Any]:
    """A bar with the time left, on stderr; plain lines where stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    if not err.is_terminal:
        said = ""

        def tell(what: str, done: int, total: int) -> None:
            nonlocal said
            if what != said:
                said = what
                err.print(f"{done / total:4.0%} {what}", soft_wrap=True)

        yield tell
        return
    columns = (TextColumn("{task.description:28}"), BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
