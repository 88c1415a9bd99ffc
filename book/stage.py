"""The pages of the book, gathered in one folder: docs/, the files that they link to, the API, run notebooks."""

import shutil
from pathlib import Path, PurePosixPath

from book.links import place_of, rewrite_links

ROOT = Path(__file__).parents[1]
FIRST = [PurePosixPath(name) for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml", "": "text", ".cff": "yaml"}


def stage(into: Path, pages: dict[str, str], run: dict[str, str], root: Path = ROOT) -> None:
    """Gather the book in a folder.

    `pages`: those that stand in no file, by their path in the book. `run`: of files that hold programs, the text with
    what they print.
    """
    docs = [PurePosixPath(path.relative_to(root)) for path in sorted((root / "docs").rglob("*")) if path.is_file()]
    waiting = [*FIRST, *(path for path in docs if path.suffix == ".md")]
    seen = set(waiting)
    for path in docs:
        if path.suffix != ".md":
            _copy(root / path, into / path.relative_to("docs"))
    while waiting:
        path = waiting.pop()
        text, linked = _page(path, root, run.get(str(path)))
        _write(into / place_of(path, (root / path).is_dir()), text)
        new = {one for one in linked - seen if not (one.is_relative_to("docs") and (root / one).is_file())}
        seen |= new
        waiting += new
    for name, text in pages.items():
        _write(into / name, text)


def _page(path: PurePosixPath, root: Path, run: str | None) -> tuple[str, set[PurePosixPath]]:
    """A file of the repository as a page, and what it links to; of a folder, the list of what is in it."""
    file = root / path
    if file.is_dir():
        inside = sorted(one for one in file.iterdir() if one.suffix in (".md", ".py"))
        link = path.is_relative_to("docs")  # of a room of the code, the names will do
        listed = [f"- [{_title(one)}]({one.name})" if link else f"- `{one.name}`: {_title(one)}" for one in inside]
        return "\n".join([f"# {path}", "", *listed]), set()
    text = run or file.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return rewrite_links(text, path, root)
    unsearched = "---\nsearch:\n  exclude: true\n---\n\n"
    return f"{unsearched}# {path}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n", set()


def _title(file: Path) -> str:
    """The first line that says what a file is."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(("# ", '"""')):
            return line.removeprefix("# ").strip('"')
    return file.name


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
