"""The generated page is current, and the pages' links lead somewhere."""

import inspect
import json
import re
from pathlib import Path

import pytest

import apiece
from apiece.methods import CATALOG
from apiece.report.catalog import FACTS, facts
from apiece.report.reference.methods import page
from apiece.report.reference.models import page as models_page
from apiece.report.reference.record import schema

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_catalog_page_is_what_the_catalog_says():
    assert (ROOT / "docs/ref-methods.md").read_text(encoding="utf-8") == page(), "run: make docs"


def test_the_page_of_models_is_what_their_factories_say():
    assert (ROOT / "docs/ref-models.md").read_text(encoding="utf-8") == models_page(), "run: make docs"


def test_the_schema_of_the_record_is_what_its_types_say():
    assert json.loads((ROOT / "docs/record.schema.json").read_text(encoding="utf-8")) == schema(), "run: make docs"


@pytest.mark.parametrize("name", CATALOG)
def test_every_method_says_what_it_solves_sends_keeps_and_proves(name):
    told = facts(inspect.getdoc(CATALOG[name]))
    assert [label for label in told if label != "Late"] == list(FACTS) and all(told.values())


def public():
    """What `import apiece` offers, and what its modules offer, by name."""
    for name in apiece.__all__:
        value = getattr(apiece, name)
        inner = {f"{name}.{n}": getattr(value, n) for n in getattr(value, "__all__", [])}
        yield from (inner or {name: value}).items()


@pytest.mark.parametrize(("name", "value"), [pytest.param(n, v, id=n) for n, v in public() if callable(v)])
def test_everything_public_has_an_example_that_runs(name, value):
    assert ">>>" in (inspect.getdoc(value) or ""), f"{name} has no example"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    text = file.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    broken = [link for link in links if "://" not in link and not (file.parent / link).exists()]
    assert not broken
