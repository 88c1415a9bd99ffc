"""Loggers get the curves while a run goes; one that is missing is said before anything is written."""

import struct

import pytest

from apiece import compare
from apiece.errors import UserError
from apiece.experiment import loggers

HOW = dict(rounds=3, seeds=1, tune=1, evaluate_every=1, data_options={"clients": 12}, baselines=False)


def test_a_logger_that_is_not_installed_or_not_known_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "PACKAGES", {"tensorboard": "no_such_package"})
    with pytest.raises(UserError, match=r"pip install 'apiece\[tensorboard\]'"):
        compare("digits", ["ditto"], out=tmp_path / "run", log=["tensorboard"], **HOW)
    with pytest.raises(UserError, match="there is no logger 'wandb'"):
        compare("digits", ["ditto"], out=tmp_path / "run", log=["wandb"], **HOW)
    with pytest.raises(UserError, match="a list of names"):
        compare("digits", ["ditto"], out=tmp_path / "run", log="tensorboard", **HOW)
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_a_curve_for_every_row_and_seed(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    found = compare("digits", ["ditto"], out=tmp_path / "run", log=["tensorboard"], **HOW)
    (file,) = (tmp_path / "run" / "tensorboard" / "ditto-0").iterdir()
    data, points = file.read_bytes(), []
    while data:  # a record: its length, a check of it, the event, a check of that
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        points += [(event.step, value.simple_value) for value in event.summary.value if value.tag == "validation_loss"]
        data = data[16 + size :]
    curve = next(iter(found.trials["ditto"].values())).curve
    assert points == [(look["round"], pytest.approx(look["validation_loss"], rel=1e-6)) for look in curve]


@pytest.mark.filterwarnings("ignore")  # of its own parts
def test_mlflow_gets_a_run_for_every_row_and_seed(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    found = compare("digits", ["ditto"], out=tmp_path / "run", log=["mlflow"], **HOW)
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/run/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("run").experiment_id])
    history = client.get_metric_history(run.info.run_id, "validation_loss")
    curve = next(iter(found.trials["ditto"].values())).curve
    assert [(one.step, one.value) for one in history] == [(look["round"], look["validation_loss"]) for look in curve]
    assert run.info.status == "FINISHED" and run.data.params == {"method": "ditto", "seed": "0"}
