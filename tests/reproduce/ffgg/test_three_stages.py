"""Three stages: shared training, a private part, its tuning."""

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.evaluate import per_client
from apiece.experiment import build as setup
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import train
from apiece.models import mlp, transformer
from apiece.reproduce.ffgg.partial_claims import FEDAVG, FRESH, TUNED, Trained, claims_of
from apiece.reproduce.ffgg.three_stages import Course, Variant, Work, followed, steps, with_fresh_part
from apiece.reproduce.kept import keeping
from apiece.split import divide, part_of, paths

FIRST, SECOND = TrainSpec(rounds=8, cohort=4, weights="uniform", evaluate_every=4), TrainSpec(
    rounds=4, cohort=4, weights="uniform", evaluate_every=4
)  # fmt: skip
COURSE = Course(FIRST, SECOND, (0, 1), (0.5, 0.1), tune_lrs=(1e-6, 0.1), newcomers=(1, 8), chosen_on=10)
VARIANTS = {
    "FedAvg": Variant(),
    "adapter": Variant("adapter"),
    f"output{FRESH}": Variant("output", "fresh", (Work(1.0, 0.3), Work(20.0, 0.3))),
}


@pytest.fixture(scope="module")
def place():
    federation = digits(clients=20).hold_out_clients(0.2)
    return setup.arena(federation, mlp(federation.train.x.shape[1:], 10, hidden=(8,)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def finished(place, folder):
    said = []
    with keeping(folder):
        found = followed(place, COURSE, VARIANTS, said.append)
    assert len(said) == steps(COURSE, VARIANTS)
    return found


@pytest.mark.thorough
def test_fedavg_goes_on_from_the_model_of_the_first_stage(place, finished):
    engine, hyper = setup.engine_of(place, "fed_avg", dict(epochs=1, lr=0.5), FIRST)
    run, _, _ = train(engine, place, hyper, 0, FIRST)
    model = jax.tree.map(np.asarray, run.server)
    there = place._replace(model=place.model._replace(init=lambda key, model=model: model))
    run, _, _ = train(engine, there, hyper | dict(lr=0.1), 0, SECOND)
    who = np.arange(place.population)
    _, error = engine.outcomes(run, who, place.objective.outcomes, ("test",))["test"]
    offsets = np.concatenate([[0], np.cumsum(place.sizes("test")[who])])
    np.testing.assert_allclose(finished[FEDAVG].before[0], per_client(error, offsets), atol=1e-6)


def test_inner_work_and_the_last_step_are_the_best_on_validation(finished):
    for each in finished.values():
        assert len(each.tried) == 2
        least = min(one.errors.mean() for one in each.tried)
        assert each.chosen.errors.mean() == least and each.chosen.errors.shape == (10,)
    assert finished[f"output{FRESH}"].chosen.work == Work(20.0, 0.3), "a part that starts at random needs its time"


def test_tuning_helps_clients_and_adapters_start_as_no_change(finished):
    for each in finished.values():
        assert each.after.shape == (2, 16) and each.after.mean() <= each.before.mean() + 0.01
        assert {most: errors.shape for most, errors in each.newcomers.items()} == dict.fromkeys((0, 1, 8), (2, 4))
    adapter = finished["adapter"].diagnosis
    assert adapter.private == 2 * (64 + 8) + 2 * (8 + 10) and adapter.shared == 64 * 8 + 8 + 90 and adapter.left < 1
    assert finished[FEDAVG].diagnosis is None


def test_what_was_kept_is_what_a_run_that_goes_on_finds(place, finished, folder, monkeypatch):
    monkeypatch.setattr("apiece.reproduce.ffgg.three_stages.train", lambda *a, **k: pytest.fail("trained again"))
    with keeping(folder):
        again = followed(place, COURSE, VARIANTS, lambda said: None)
    for name, each in finished.items():
        np.testing.assert_array_equal(again[name].after, each.after)
        assert again[name].chosen.work == each.chosen.work and again[name].diagnosis == each.diagnosis


def test_a_fresh_part_has_the_law_of_an_untrained_one_and_the_rest_is_kept(place):
    trained = jax.tree.map(lambda leaf: 7.0 + 0 * leaf, place.model.init(jax.random.key(0)))
    made = with_fresh_part(place.model, trained, "output", 0)
    shared, own = divide(made, part_of(made, "output"))
    assert all((np.asarray(leaf) == 7).all() for leaf in jax.tree.leaves(shared))
    spread = np.std(np.asarray(own["out"]["w"]))
    assert 0.5 < spread / np.std(np.asarray(place.model.init(jax.random.key(9))["out"]["w"])) < 2


def test_a_block_of_the_transformer_is_a_private_part():
    params = transformer(9, length=4, width=4, inner=8, heads=2, blocks=3).init(jax.random.key(0))
    mine = part_of(params, "block2")
    assert {path.split("/")[0] for path in paths(params) if mine(path)} == {"block2"}


def test_a_split_is_chosen_on_validation_whatever_the_test_says(place, finished):
    mine = finished["adapter"]
    other = mine._replace(after=0 * mine.after, validation=1 + 0 * mine.validation)
    trained = Trained("images", place, COURSE, finished | {"output": other})
    assert trained.above("output", "adapter").value > 0 and trained.chosen == "adapter"
    assert trained.above(TUNED, FEDAVG).value == pytest.approx(trained.accuracy(TUNED) - trained.accuracy(FEDAVG))


def test_rows_say_what_inner_work_is_worth(place, finished):
    claims = {claim.name: claim for claim in claims_of(Trained("images", place, COURSE, finished))}
    gain = next(claim for name, claim in claims.items() if "20 epochs of inner work gain over 1 epoch" in name)
    assert gain.ours > 0 and gain.source == "here"
    assert any("fresh every round: points above FedAvg" in name for name in claims)
