"""The book's pages before they are built: links lead somewhere, and kept pages are current."""

import os
import re
from pathlib import Path, PurePosixPath

import pytest

from book import check, gallery, links, stage
from book.api import api_pages


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    into = tmp_path_factory.mktemp("book")
    stage.stage(into, api_pages(), {})
    return into


def test_every_link_of_every_page_leads_to_a_page_of_the_book(staged):
    broken = []
    for page in staged.rglob("*.md"):
        text = links.FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in links.LINK.finditer(text):
            target = found[1] or found[3]
            if target and not re.match(r"[a-z]+:", target) and not (page.parent / target).is_file():
                broken.append(f"{page.relative_to(staged)}: {target}")
    assert not broken
    assert all((staged / page).exists() for page in ("index.md", "glossary.md", "api/methods.md", "decisions/index.md"))


def test_files_of_the_code_that_a_page_links_to_are_pages_too(staged):
    text = (staged / "explanation-protocol.md").read_text(encoding="utf-8")
    assert "(files/src/apiece/protocol.py.md)" in text
    assert "class Method" in (staged / "files/src/apiece/protocol.py.md").read_text(encoding="utf-8")


def test_links_in_code_are_left_alone_and_broken_ones_stay_for_the_build_to_refuse(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").touch()
    (tmp_path / "code.py").touch()
    text = "[b](b.md#x) `[b](b.md)` [c](../code.py) [gone](gone.md) [out](https://a.org)\n\n    [b](b.md)\n[b](b.md)\n"
    written, linked = links.rewrite_links(text, PurePosixPath("docs/sub/a.md"), tmp_path)
    assert written == text, "from docs/sub these lead nowhere"
    written, linked = links.rewrite_links(text, PurePosixPath("docs/a.md"), tmp_path)
    assert written == text.replace("../code.py", "files/code.py.md")
    assert {str(path) for path in linked} == {"docs/b.md", "code.py"}


def test_the_pages_of_the_gallery_are_what_their_numbers_say():
    for path, text in gallery.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m book.gallery --pages"
    assert sorted(path.stem for path in gallery.FOLDER.glob("*.json")) == sorted(gallery.FEDERATIONS)


def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path):
    (tmp_path / "good.html").write_text('<a href="https://a.org">a</a><script src="b.js"></script>')
    check.check_offline(tmp_path)
    for bad in ('<link rel="stylesheet" href="//fonts.org/a.css">', "<img src=https://a.org/b.png>"):
        (tmp_path / "bad.html").write_text(bad)
        with pytest.raises(SystemExit, match=r"bad\.html loads"):
            check.check_offline(tmp_path)


def test_every_page_of_docs_is_in_the_contents(staged):
    from book.__main__ import nav

    def flat(entry):
        if isinstance(entry, str):
            return [entry]
        return [page for one in (entry.values() if isinstance(entry, dict) else entry) for page in flat(one)]

    listed = set(flat(nav(staged)))
    docs = Path(stage.ROOT / "docs")
    pages = {str(links.place_of(PurePosixPath(os.path.relpath(path, stage.ROOT)))) for path in docs.rglob("*.md")}
    assert not pages - listed
