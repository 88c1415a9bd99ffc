"""New clients by how many examples they bring: judged by every trial, kept with it, and told in the record."""

import io
import math

import numpy as np
import pytest
from experiment_runs import SMALL, federation, record_of, run
from rich.console import Console

from apiece.errors import UserError
from apiece.evaluate import Interval
from apiece.experiment import Spec, checkpoint, make_spec, read_record
from apiece.experiment.check import check_spec
from apiece.experiment.record import Newcomers
from apiece.report.terminal import comparison


@pytest.fixture(scope="module")
def record(small_run):
    return record_of(small_run)


def test_every_method_tells_how_newcomers_fare_up_to_all_their_examples(record):
    largest = int(federation().new.train.sizes.max())
    for name, method in record["methods"].items():
        found = method["newcomers"]
        assert found["clients"] == federation().new.clients
        assert found["examples"] == [*(n for n in (1, 3, 10, 30, 100, 300) if n < largest), largest]
        assert found["accuracy"][-1] == pytest.approx(
            method["summary"]["new_clients"]["accuracy"]["mean_weighted"], nan_ok=True
        ), f"{name}: with all of them the number is that of the table"


def test_who_is_given_one_model_by_all_does_not_depend_on_its_own_examples(record):
    points = [point["mean"] for point in record["methods"]["fed_avg"]["newcomers"]["accuracy"]]
    assert len(set(points)) == 1
    alone = [point["mean"] for point in record["methods"]["local"]["newcomers"]["accuracy"]]
    assert len(set(alone)) > 1, "who trains alone does"


def test_a_finished_trial_keeps_what_newcomers_did(small_run):
    kept = checkpoint.load_outcome(small_run / "checkpoints" / "ditto-0-done.safetensors").arrays
    place = check_spec(Spec.model_validate(SMALL))
    assert kept["newcomers"].tolist() == place.new.tolist()
    assert (
        len(kept["newcomers_examples"]) == len(kept["newcomers_error"]) and np.isfinite(kept["newcomers_error"]).all()
    )


def test_it_can_be_switched_off(tmp_path):
    spec = {**SMALL, "seeds": [0], "tune": 1, "baselines": False, "methods": {"fed_avg": {}}}
    run({**spec, "train": {**SMALL["train"], "newcomer_examples": []}}, tmp_path / "run")
    assert record_of(tmp_path / "run")["methods"]["fed_avg"]["newcomers"] is None


def test_numbers_of_examples_are_positive():
    with pytest.raises(UserError, match=r"train\.newcomer_examples\.0"):
        make_spec({"train": {"newcomer_examples": [0]}})


def test_the_terminal_shows_them_within_eighty_columns(small_run):
    found = read_record(small_run)
    many = Newcomers(examples=[*range(1, 8), 1000], clients=5, accuracy=[Interval(1.0, *[math.nan] * 3)] * 8)
    methods = {n: m.model_copy(update={"newcomers": many}) for n, m in found.methods.items()}
    methods["dynamic_lambda"] = methods["ditto"]
    ranking = found.ranking.model_copy(update={"order": [*found.ranking.order, "dynamic_lambda"]})
    wide = found.model_copy(update={"methods": methods, "ranking": ranking})
    for one, last in ((found, found.methods["local"].newcomers.examples[-1]), (wide, 1000)):
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(comparison(one))
        text = console.export_text()
        assert "…" not in text and max(map(len, text.splitlines())) <= 80
        assert any(line.split()[0] == "method" and line.split()[-1] == str(last)
                   for line in text.splitlines() if line.strip())  # fmt: skip
