"""States and models too large to hold at once go into files, and come back, in pieces."""

import dataclasses

import jax
import numpy as np

from apiece import files
from apiece.data import digits
from apiece.engines import states
from apiece.engines.row_store import RowsOnDisk
from apiece.experiment import build as setup
from apiece.experiment import checkpoint
from apiece.experiment.spec_tables import ModelSpec, TrainSpec


def test_a_checkpoint_in_pieces_of_states_on_disk_restores_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "memory", lambda: 0)
    monkeypatch.setattr(states, "AT_ONCE", 1000)
    place = setup.arena(federation := digits(clients=6), setup.model_of(ModelSpec(), federation))
    engine, hyper = setup.engine_of(place, "ditto", {}, TrainSpec(cohort=4))
    run = engine.start(place.model.init, 0, hyper)
    rows = jax.tree.map(lambda leaf: np.random.default_rng(0).normal(size=leaf.shape).astype(leaf.dtype), run.rows)
    jax.tree.map(lambda leaf, new: leaf.__setitem__([0, 2, 5], new[[0, 2, 5]]), run.rows, rows)
    run.known[[0, 2, 5]] = True
    engine.save(dataclasses.replace(run, round=7), tmp_path / "kept", {"seconds": 1.5})
    again, about = engine.restore(tmp_path / "kept", engine.start(place.model.init, 0, hyper))
    assert again.round == 7 and about == {"seconds": 1.5} and again.known.tolist() == run.known.tolist()
    for new, old in zip(jax.tree.leaves(again.rows), jax.tree.leaves(run.rows), strict=True):
        assert isinstance(new, RowsOnDisk)
        np.testing.assert_array_equal(new, old)


def test_models_saved_in_pieces_are_those_of_the_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "AT_ONCE", 12_000)  # two models at once
    place = setup.arena(federation := digits(clients=5), setup.model_of(ModelSpec(), federation))
    engine, hyper = setup.engine_of(place, "local", {"steps": 1}, TrainSpec())
    run = engine.start(place.model.init, 0, hyper)
    assert checkpoint.save_models(tmp_path / "models", engine, place, run, most=0.1) is None
    arrays, about = files.read_arrays(tmp_path / "models")
    expected = engine.personal(run, np.arange(5))
    np.testing.assert_array_equal(arrays["personal/w"], expected["w"])
    assert arrays["personal/w"].any() and about["clients"] == list("01234")
    note = checkpoint.save_models(tmp_path / "models", engine, place, run, most=1e-6)
    assert note.endswith(
        "GB are more than train.models_gb = 1e-06; to keep them: models_gb = 1 under [train] in a spec"
    )
