"""Tutorials as notebooks: docs/notebooks/*.md hold the text and the code; here they are run, by Jupyter's own parts."""

import re
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
SECONDS = 300  # for one cell


def run_notebook(file: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with what its cells print; a cell that fails ends the build. `folder`: where it may write."""
    notebook = jupytext.read(file)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return notebook


def notebook_pages(folder: Path, into: Path) -> dict[str, str]:
    """Every notebook, run: as a page of the book, and beside it as a file for Jupyter."""
    pages = {}
    for file in sorted(set(FOLDER.glob("*.md")) - {FOLDER / "README.md"}):
        notebook = run_notebook(file, folder)
        text, parts = MarkdownExporter().from_notebook_node(notebook)
        for name, content in parts["outputs"].items():
            text = text.replace(name, f"{file.stem}-{name}")
            _write(into / "notebooks" / f"{file.stem}-{name}", content)
        _write(into / "notebooks" / f"{file.stem}.ipynb", nbformat.writes(notebook).encode())
        title, _, rest = text.partition("\n")
        about = f"Run when the book was built; [as a notebook for Jupyter]({file.stem}.ipynb)."
        pages[f"docs/notebooks/{file.name}"] = f"{title}\n\n{about}\n{_without_styles(rest)}"
    return pages


def _without_styles(text: str) -> str:
    """Without colours of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
