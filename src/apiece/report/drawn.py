"""A run's pictures as files for papers and slides, drawn by Matplotlib (the extra `figures`)."""

from pathlib import Path

from apiece.errors import UserError
from apiece.report.figure_page import draw
from apiece.report.pictures import figures_of
from apiece.report.story import read_story

KINDS = (".png", ".svg")


def write_picture(run_folder: Path, path: Path, name: str = "gains") -> Path:
    """Write one picture of a run as a PNG or SVG file; by default every client's gain over training alone.

    >>> try: write_picture(Path("no-such-run"), Path("gains.svg"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    path = Path(path)
    figures = figures_of(read_story(Path(run_folder)))
    if path.suffix not in KINDS:
        raise UserError(f"'{path}': a picture is a file that ends in {' or '.join(KINDS)}")
    if name not in figures:
        has = ", ".join(figures) or "none"
        raise UserError(f"no {name} to draw: '{run_folder}' has no numbers for it; it has pictures of: {has}")
    return draw(figures[name], path)


def write_pictures(run_folder: Path, kind: str = "png") -> list[Path]:
    """Write every picture of a run into the folder `figures` of it, as PNG or SVG; the files written.

    >>> try: write_pictures(Path("no-such-run"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    figures = figures_of(read_story(Path(run_folder)))
    folder = Path(run_folder) / "figures"
    folder.mkdir(exist_ok=True)
    return [draw(figure, folder / f"{name}.{kind}") for name, figure in figures.items()]
