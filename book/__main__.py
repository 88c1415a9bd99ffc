"""`python -m book`: the site from docs/, in a folder per version; strict: a broken link or a missing text ends it."""

import argparse
import html
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from book.api import api_pages
from book.check import check_offline
from book.stage import ROOT, stage

# The tabs, and how the names of their pages begin.
TABS = {"Tutorials": "tutorial-", "How to": "how-to-", "Explanation": "explanation-", "Reference": "ref-"}


def main() -> None:
    """Build the book."""
    asked = argparse.ArgumentParser(prog="python -m book", description=__doc__)
    asked.add_argument("--out", type=Path, default=ROOT / "site")
    asked.add_argument("--version", default=version("apiece"))
    given = asked.parse_args()
    from book.notebooks import notebook_pages  # the parts of Jupyter, which only this needs

    with tempfile.TemporaryDirectory() as place:
        pages, scratch = Path(place) / "pages", Path(place) / "scratch"
        scratch.mkdir()
        (pages / "assets").mkdir(parents=True)
        stage(pages, api_pages(), run=notebook_pages(scratch, pages))
        shutil.copyfile(ROOT / "book" / "iframe-worker.js", pages / "assets" / "iframe-worker.js")
        build(Path(place), given.version)
        check_offline(Path(place) / "site")
        put_version(Path(place) / "site", given.out, given.version)
    print(f"wrote {given.out / given.version / 'index.html'}")


def build(place: Path, name: str) -> None:
    """Build the pages in `place` into its folder site; a warning ends it."""
    config = yaml.safe_load((ROOT / "book" / "mkdocs.yml").read_text(encoding="utf-8"))
    config |= {"site_name": f"apiece {name}", "docs_dir": "pages", "site_dir": "site", "nav": nav(place / "pages")}
    (place / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "NO_COLOR": "1"}
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(zensical, cwd=place, env=found, timeout=600, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the book does not build:\n{done.stdout[-5000:]}{done.stderr[-2000:]}")


def nav(pages: Path) -> list[Any]:
    """The list of pages, from their names."""
    named = lambda prefix: sorted(path.name for path in pages.glob(f"{prefix}*.md"))
    names = lambda folder: sorted({path.name for path in (pages / folder).glob("*.md")} - {"index.md"})
    inside = lambda folder: [f"{folder}/index.md", *(f"{folder}/{name}" for name in names(folder))]
    tabs: dict[str, list[Any]] = {tab: named(prefix) for tab, prefix in TABS.items()}
    tabs["Tutorials"] += [{"Notebooks": inside("notebooks")}]
    tabs["Reference"] += ["glossary.md", {"API": inside("api")}]
    project = ["cite.md", "CONTRIBUTING.md", "CHANGELOG.md", {"Decisions": inside("decisions")}]
    return [
        "index.md",
        *({tab: found} for tab, found in tabs.items()),
        {"Gallery": inside("gallery")},
        {"Project": project},
    ]


def put_version(site: Path, out: Path, name: str) -> None:
    """Put a built book beside those of other versions, and write the page that lists them, newest first."""
    shutil.rmtree(out / name, ignore_errors=True)
    shutil.copytree(site, out / name)
    there = sorted((path.parent.name for path in out.glob("*/index.html")), key=_order, reverse=True)
    links = "".join(f'<li><a href="{html.escape(one)}/index.html">{html.escape(one)}</a></li>' for one in there)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>apiece, by version</title>'
    (out / "index.html").write_text(f"{head}<h1>apiece</h1><ul>{links}</ul></html>\n", encoding="utf-8")


def _order(name: str) -> list[tuple[bool, int, str]]:
    """Versions by their numbers, above all other names."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in name.split(".")]


if __name__ == "__main__":
    main()
