"""Every key of the spec: on its page, with a type, a default, a meaning, and an example that runs."""

import re
import tomllib
from pathlib import Path

import pytest

from apiece.experiment import make_spec
from apiece.experiment.check import check_spec
from apiece.report.reference import spec as reference

PAGE = (Path(__file__).parents[2] / "docs/ref-spec.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_is_current():
    assert reference.page() == PAGE, "run: make docs"


def test_every_key_is_told_with_type_and_meaning_and_has_an_example():
    for name, table in reference.tables():
        part = PAGE.partition(f"## `[{name}]`\n" if name else "## The top")[2].partition("\n## ")[0]
        shown = [line for block in re.findall(r"```toml\n(.*?)```", part, re.DOTALL) for line in block.splitlines()]
        for key, field in table.model_fields.items():
            row = re.search(rf"^\| `{key}` \| (.+?) \| (.*?) \| (.+?) \|$", part, re.MULTILINE)
            assert row is not None and row[1] and row[3], f"{name}.{key}"
            if reference.table_type(field.annotation) is None:
                assert any(line.startswith(f"{key} = ") for line in shown), f"no example of {name}.{key}"


@pytest.mark.parametrize("text", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_an_example_runs(text, tmp_path, monkeypatch):
    """Everything that a spec names is made and fitted together, but for the training itself."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("client,began,ended\n0,0.0,1.0\n1,0.5,2.0\n", encoding="utf-8")
    values = tomllib.loads(text)
    values.setdefault("data", {}).setdefault("options", {"clients": 6})
    model = values.setdefault("model", {})
    if "adapter" in model or model.get("name") == "auto":
        model.setdefault("name", "mlp")
    if "stages" in str(values.get("methods")):
        model["name"] = "mlp"  # a network that has a last layer
    values.setdefault("methods", {"fed_avg": {}})
    arrivals = values.get("train", {}).get("arrivals", {})
    if "pace" in arrivals:
        arrivals.setdefault("active", 4)  # of six clients
    check_spec(make_spec({"baselines": False, **values}))


def test_a_printed_spec_says_what_no_spec_says():
    given = make_spec(tomllib.loads(reference.commented()))
    assert given.model_dump() == make_spec({}).model_dump()
    assert max(map(len, reference.commented().splitlines())) <= 110
