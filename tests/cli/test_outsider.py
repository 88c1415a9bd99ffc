"""An outsider's afternoon: one's own file through the command line, killed and resumed; a package that plugs in."""

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli_process import apiece, environment, start, stop_when

from apiece.experiment import read_record

PAGE = (Path(__file__).parents[2] / "docs/how-to-your-method.md").read_text(encoding="utf-8")
MINE, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SPEC = """
tune = 2
seeds = [0]
baselines = false
choose = "surprise"
[data.options]
clients = 6
[train]
rounds = 6
evaluate_every = 2
optimizer = {name = "adamw", options = {weight_decay = 0.01}}
[every]
steps = 2
[methods.mixture]
method = "mine.py:mixture"
lr = {grid = [0.01, 0.05]}
[methods.mine-half]
method = "mine.py:mixture"
share = 0.5
lr = 0.01
[metrics]
surprise = "mine.py:surprise"
"""


@pytest.mark.thorough
def test_one_file_goes_from_the_page_through_kill_9_to_the_report(tmp_path):
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "s.toml").write_text(SPEC, encoding="utf-8")
    process = start("compare", "--spec", "s.toml", "--out", "run", cwd=tmp_path)
    stop_when(process, tmp_path / "run/checkpoints/mixture-tuning.json", signal.SIGKILL)
    assert not (tmp_path / "run/record.json").exists()
    (tmp_path / "elsewhere").mkdir()
    resumed = apiece("resume", "../run", cwd=tmp_path / "elsewhere")
    assert resumed.returncode == 0, resumed.stderr
    record = read_record(tmp_path / "run")
    assert list(record.methods) == ["mixture", "mine-half"] and record.metrics == {"surprise": False}
    assert [one.options["lr"] for one in record.methods["mixture"].tuning] == [0.01, 0.05]
    assert record.methods["mine-half"].options["share"] == 0.5
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert all(word in page for word in ("mixture", "mine-half", "surprise")) and "surprise" in resumed.stdout
    # The code changes, the run does not go on.
    (tmp_path / "run/record.json").unlink()
    (tmp_path / "mine.py").write_text(MINE + "\n", encoding="utf-8")
    refused = apiece("resume", "run", cwd=tmp_path)
    assert refused.returncode != 0 and "changed since the run" in " ".join(refused.stderr.split())


@pytest.mark.thorough
def test_the_method_of_the_page_keeps_the_contract(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert "check_method(mixture)" in CHECK
    from mine import mixture

    from apiece.testing import check_method

    assert len(check_method(mixture, engines=["remote"])) > 20


@pytest.fixture
def wheel(tmp_path):
    """A package that plugs a method in, as pip installs it."""
    path, info = tmp_path / "stranger-1.0-py3-none-any.whl", "stranger-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("stranger/__init__.py", MINE)
        files.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
        files.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files.writestr(f"{info}/entry_points.txt", "[apiece.methods]\nmixture = stranger:mixture\n")
        files.writestr(f"{info}/RECORD", "")
    return path


def test_a_package_installed_by_pip_is_in_the_catalog(wheel, tmp_path):
    there = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", there, wheel]
    subprocess.run([*map(str, pip)], check=True, timeout=120, capture_output=True)
    paths = os.pathsep.join([str(there), os.environ.get("PYTHONPATH", "")])
    program = "from apiece.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", program, "methods", "mixture"],
        env=environment() | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "the shared model x and its own v, mixed" in " ".join(shown.stdout.split())
