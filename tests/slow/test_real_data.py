"""Real federations through the ordinary importer: hospitals, schools, writers, sensors."""

import csv
import os
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from apiece import fit
from apiece.cli import app
from apiece.data import inspect, load
from apiece.errors import UserError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("APIECE_DATA" not in os.environ, reason="APIECE_DATA names no folder with the real data sets"),
]


@pytest.fixture(scope="module")
def place():
    folder = Path(os.environ["APIECE_DATA"]).resolve()
    assert folder.is_dir(), f"APIECE_DATA={folder} is no folder"
    return folder


def share_of_the_commonest(federation):
    """The accuracy of who always says the same."""
    counts = [(federation.test.y == c).mean() for c in range(len(federation.classes))]
    return max(counts)


def accuracy(federation, method, **how):
    return fit(method, federation=federation, **how).evaluate()["test"]["accuracy"]["mean_weighted"]


# Hospitals: missing values are filled by rule, or refused and told where.


def heart_columns(place):
    with (place / "heart_by_hospital.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    gaps = [name for name in rows[0] if any(row[name] == "" for row in rows)]
    return rows, gaps


def test_missing_values_of_the_hospitals_are_filled_and_told(place):
    _, gaps = heart_columns(place)
    seen = inspect(place / "heart_by_hospital.csv", client="hospital", label="num")
    assert seen.problems == [] and len(seen.found["filled"]) == len(gaps) == 10
    assert {f"{name} missing" for name in gaps} < set(seen.federation.features)


def test_missing_values_of_the_hospitals_are_refused_with_rows_and_columns_if_asked(place):
    rows, gaps = heart_columns(place)
    path = place / "heart_by_hospital.csv"
    seen = inspect(path, client="hospital", label="num", missing="refuse")
    assert seen.federation is None and gaps
    for column in gaps:
        first = next(i for i, row in enumerate(rows) if row[column] == "") + 2  # the header is row 1
        told = [p for p in seen.problems if f"column '{column}'" in p]
        assert len(told) == 1 and f"{first}" in told[0] and "missing" in told[0] and "fill" in told[0]
    asked = ["--client", "hospital", "--label", "num", "-D", "missing=refuse"]
    result = CliRunner().invoke(app, ["run", "ditto", "--data", str(path), *asked])
    assert result.exit_code == 2 and f"column '{gaps[0]}': missing (NaN)" in result.stderr
    with pytest.raises(UserError, match=r"more problems?: apiece data check shows all"):
        load(path, client="hospital", label="num", missing="refuse")


def test_hospitals_are_learned_once_columns_with_gaps_are_left_out(place, tmp_path):
    rows, gaps = heart_columns(place)
    kept = [name for name in rows[0] if name not in gaps]
    with (tmp_path / "heart.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, kept, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            # in tens of years; sick or not
            writer.writerow({**row, "age": float(row["age"]) / 10, "num": "sick" if float(row["num"]) > 0 else "well"})
    federation = load(tmp_path / "heart.csv", client="hospital", label="num")
    assert federation.clients == 4 and federation.classes == ("sick", "well") and federation.train.x.shape[1] >= 3
    found = accuracy(federation, "ftfa", rounds=40, options={"lr": 0.1})
    assert found > share_of_the_commonest(federation) + 0.05


# Schools: regression, 139 clients.


def test_exam_scores_of_schools_are_predicted_better_than_by_their_mean(place):
    federation = load(place / "school_by_school.npz", client="task", task="regression")
    assert (federation.task, federation.clients, federation.train.x.shape[1]) == ("regression", 139, 28)
    # Two of the columns go up to 90, the others to 1: a model of one's own brings them to one scale.
    largest = federation.train.x.max(0)

    def init(key):
        return {"w": jnp.zeros(28), "b": jnp.zeros(())}

    def apply(params, x):
        return x / largest @ params["w"] + params["b"]

    model = SimpleNamespace(init=init, apply=apply)
    found = fit("fed_avg", model, federation, rounds=40, cohort=30, options={"lr": 0.05})
    assert found.evaluate()["test"]["r2"] > 0.2


# Writers: images, 539 clients.


def test_digits_of_writers_are_read(place):
    federation = load(
        place / "mnist_by_writer.npz", client="writer_train", label="y_train", features="x_train", min_size=10
    )
    assert (
        federation.clients == 539 and federation.train.x.shape[1:] == (28, 28) and federation.train.x.dtype == "uint8"
    )
    assert len(federation.classes) == 10
    assert accuracy(federation, "fed_avg", rounds=30, cohort=50, options={"lr": 0.1}) > 0.8


# Sensors: two classes, 23 clients of 7 to 534 rows.


def test_vehicles_are_told_apart_by_sensors(place):
    federation = load(place / "vehicle_by_sensor.npz", client="task")
    assert federation.clients == 23 and federation.classes == ("-1", "1")
    found = accuracy(federation, "ditto", rounds=30, options={"lr": 0.05})
    assert found > share_of_the_commonest(federation) + 0.1
