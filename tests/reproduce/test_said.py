"""What pages say of reproductions follows from rows of verdicts."""

import re
from pathlib import Path

import pytest

from apiece.reproduce import NAMES, read_verdict
from apiece.reproduce.papers import PAPERS
from apiece.reproduce.verdict import VERDICTS

DOCS = Path(__file__).parents[2] / "docs"
MARK = re.compile(r"<!-- ([a-z-]+): (holds|does not hold|undecided): (.*?) -->")


@pytest.fixture(scope="module")
def rows():
    """(reproduction, claim) -> verdict."""
    return {(name, c["name"]): c["verdict"] for name in NAMES
            for c in read_verdict(DOCS / f"reproduction/{name}.json")["claims"]}  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_every_sentence_about_a_paper_rests_on_a_row(rows, paper):
    for said in PAPERS[paper]:
        assert said.verdict in VERDICTS
        assert rows.get((said.reproduction, said.claim)) == said.verdict, said


def test_marks_on_pages_name_rows_and_their_verdicts(rows):
    marks = [(page.name, *found) for page in DOCS.glob("*.md") for found in MARK.findall(page.read_text("utf-8"))]
    assert len(marks) > 10
    for page, name, verdict, claim in marks:
        assert rows.get((name, claim)) == verdict, (page, name, claim)


def test_every_finding_on_real_data_is_marked():
    """A bullet that says who is better names the row that shows it."""
    text = (DOCS / "explanation-how-much-to-personalize.md").read_text("utf-8")
    section = text.partition("## What real data say")[2].partition("\n## ")[0]
    bullets = section.split("\n- **")[1:]
    assert len(bullets) == 5
    for bullet in bullets:
        assert MARK.search(bullet), bullet
        linked = set(re.findall(r"ref-reproduction.md#([a-z-]+)", bullet))
        assert linked == {name for name, _, _ in MARK.findall(bullet)}, "what is linked to is what is marked"
