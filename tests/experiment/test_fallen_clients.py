"""One client that diverges is named and has a poor model; it does not take the table along."""

import numpy as np
import pytest

from apiece import compare
from apiece.data import from_rows
from apiece.report import terminal, write_report


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Client "steep" cannot stand steps of 0.1; the others can."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(4), 20)
    x = rng.normal(size=(80, 3)) + 10 * (owner == 2)[:, None]
    y = x @ np.array([0.3, -0.2, 0.1]) + 0.1 * rng.normal(size=80)
    federation = from_rows(x.astype(np.float32), y.astype(np.float32), owner, ids=["a", "b", "steep", "d"])
    methods = {"local": {"lr": 0.1}, "ftfa": {"lr": 0.002, "tune_lr": 0.1, "tune_epochs": 40}, "fed_avg": {"lr": 0.1}}
    out = tmp_path_factory.mktemp("fallen") / "run"
    return compare(federation, methods, rounds=3, seeds=2, tune=1, out=out)


def test_a_diverged_client_is_named_and_nothing_in_the_table_is_lost(found):
    record = found.record
    assert record.methods["local"].fallen == record.methods["ftfa"].fallen == ["steep"]
    for name in ("local", "ftfa"):
        assert np.isfinite(record.methods[name].statistic("test", "error", "mean_weighted").mean)
    assert np.isfinite(found.personal("local", "steep")["w"]).all()
    assert record.methods["ftfa"].harm is not None
    note = "local diverged at 'steep': it uses the shared model, or the initial one, instead"
    assert note in record.notes
    assert note in write_report(found.folder).read_text(encoding="utf-8").replace("&#39;", "'")
    assert terminal.comparison(record)


def test_a_method_whose_shared_model_is_no_number_has_diverged_as_ever(found):
    assert found.record.ranking.diverged == ["fed_avg"]
    assert found.record.methods["fed_avg"].fallen == []
