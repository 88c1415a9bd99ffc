"""The generated page is current, and the pages' links lead somewhere."""

import re
from pathlib import Path

import pytest

from apiece.experiment.page import page

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_catalog_page_is_what_the_catalog_says():
    assert (ROOT / "docs/ref-methods.md").read_text(encoding="utf-8") == page(), "run: make docs"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    text = file.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    broken = [link for link in links if "://" not in link and not (file.parent / link).exists()]
    assert not broken
