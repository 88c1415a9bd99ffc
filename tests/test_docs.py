"""The generated page is current, and the pages' links lead somewhere."""

import dataclasses
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import apiece
from apiece.aggregate import RULES
from apiece.client.schedule import SCHEDULES
from apiece.data import PARTITIONS, SOURCES
from apiece.engines.engine import Engine, RunState
from apiece.experiment.metric import METRICS
from apiece.methods import CATALOG
from apiece.models import MODELS
from apiece.report.catalog import FACTS, facts
from apiece.report.reference.api import page as api_page
from apiece.report.reference.methods import page
from apiece.report.reference.models import page as models_page
from apiece.report.reference.record import schema
from apiece.testing.case import Case
from apiece.wrap import ATTACKS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CURRENT = [page for page in PAGES if page.parent.name != "decisions" and page.name != "CHANGELOG.md"]  # not of the past


def test_the_catalog_page_is_what_the_catalog_says():
    assert (ROOT / "docs/ref-methods.md").read_text(encoding="utf-8") == page(), "run: make docs"


def test_the_page_of_models_is_what_their_factories_say():
    assert (ROOT / "docs/ref-models.md").read_text(encoding="utf-8") == models_page(), "run: make docs"


def test_the_page_of_the_interface_is_what_the_modules_say():
    assert (ROOT / "docs/ref-api.md").read_text(encoding="utf-8") == api_page(), "run: make docs"


@pytest.mark.parametrize("file", ["record", "product", "advice"])
def test_the_schema_of_a_file_is_what_its_types_say(file):
    written = json.loads((ROOT / f"docs/{file}.schema.json").read_text(encoding="utf-8"))
    assert written == schema(file), "run: make docs"


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


def made_here(value):
    """A function or class of ours, and no alias of a type."""
    return callable(value) and getattr(value, "__module__", "").startswith("apiece")


@pytest.mark.parametrize(("name", "value"), [pytest.param(n, v, id=n) for n, v in public() if made_here(v)])
def test_everything_public_has_an_example_that_runs(name, value):
    assert ">>>" in (inspect.getdoc(value) or ""), f"{name} has no example"


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    text = file.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    broken = [link for link in links if "://" not in link and not (file.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("file", CURRENT, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_of_the_house_that_a_page_names_are_there(file):
    to_be_written = "src/apiece/methods/mixture.py"  # by the reader of how-to-add-a-method.md
    text = file.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src/apiece/|tests/)?[a-z_]+/[a-z_/]*[a-z_]+\.py|tests/[a-z_/]+)`", text)
    there = lambda name: any((base / name).exists() for base in (ROOT, ROOT / "src/apiece"))
    assert not [name for name in named if not there(name) and name != to_be_written]


# What pages and examples use is public: it can be imported, and stands in an `__all__`.

REGISTRIES = (CATALOG, METRICS, MODELS, SOURCES, PARTITIONS, RULES, ATTACKS, SCHEDULES)
GROUPS = {registry.group for registry in REGISTRIES}  # of entry points: written like modules, but none
USERS = [*CURRENT, *sorted((ROOT / "examples").iterdir())]


def used(text):
    """Every `apiece.x.y` of a text, written out or imported by `from apiece.x import y`."""
    yield from re.findall(r"(?<![\w./-])apiece(?:\.[A-Za-z]\w*)+", re.sub(r"from apiece\S* import", "", text))
    for module, listed in re.findall(r"from (apiece[\w.]*) import (\([^)]*\)|[^\n#`]*)", text):
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", re.sub(r" as \w+", "", listed)))


def offered(module):
    """A module's public names: `__all__` or, of a public module that has none, what it defines itself."""
    own = lambda name: not name.startswith("_") and getattr(vars(module)[name], "__module__", None) == module.__name__
    return getattr(module, "__all__", [name for name in vars(module) if own(name)])


def is_public(name):
    value = apiece
    for part in name.split(".")[1:]:
        if inspect.ismodule(value) and part not in offered(value):
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")
            except ImportError:
                return False
            if not hasattr(value, "__all__"):
                return False
        elif not hasattr(value, part):
            return False
        else:
            value = getattr(value, part)
    return True


@pytest.mark.parametrize("file", USERS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_page_or_an_example_uses_is_public(file):
    names = set(used(file.read_text(encoding="utf-8"))) - GROUPS
    if file.name == "CONTRIBUTING.md":
        names -= {"apiece.methods.fed_avg.fed_avg"}  # as one method of the catalog imports another
    assert not [name for name in sorted(names) if not is_public(name)]


def test_the_walk_names_all_that_an_engine_does_and_all_that_a_run_is():
    text = (ROOT / "docs/explanation-architecture.md").read_text(encoding="utf-8")
    names = [*Engine.__abstractmethods__, *(field.name for field in dataclasses.fields(RunState))]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_method_of_contributing_is_ditto():
    """The program of both is the same, line by line; so it also runs."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    written = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], written)
    ours, theirs = (Case(factory).program()[0] for factory in (CATALOG["ditto"], written["ditto"]))
    assert ours == theirs
    mine, theirs = (make(lambda *given: 0.0).keep for make in (CATALOG["ditto"], written["ditto"]))
    assert mine is theirs


def test_private_and_missing_names_are_told_from_public_ones():
    text = (
        "from apiece.wrap import (\n    staged,\n    pipeline as p,\n)\n`apiece.Federation.load(x)` apiece.data.digits"
    )
    found = ["apiece.Federation.load", "apiece.data.digits", "apiece.wrap.pipeline", "apiece.wrap.staged"]
    assert sorted(used(text)) == found and all(map(is_public, found))
    private = ["apiece.nothing", "apiece.files.write_json", "apiece.wrap.inside.Guarded", "apiece.Federation.nothing"]
    assert not any(map(is_public, private))
