"""Three stages: shared training, a private part, its tuning."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.experiment import build as setup
from apiece.experiment import contest
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import train
from apiece.models import mlp
from apiece.reproduce.ffgg.partial import as_long
from apiece.reproduce.ffgg.partial_claims import Trained
from apiece.reproduce.ffgg.three_stages import Course, Variant, followed, steps

FIRST, SECOND = TrainSpec(rounds=8, cohort=4, weights="uniform", evaluate_every=4), TrainSpec(
    rounds=4, cohort=4, weights="uniform", evaluate_every=4
)  # fmt: skip
COURSE = Course(FIRST, SECOND, (0, 1), (0.5, 0.1), tune_lrs=(1e-6, 0.1), newcomers=(1, 8), inner_steps=2)
VARIANTS = {"FedAvg": Variant(), "adapter": Variant("adapter")}


@pytest.fixture(scope="module")
def place():
    federation = digits(clients=20).hold_out_clients(0.2)
    return setup.arena(federation, mlp(federation.train.x.shape[1:], 10, hidden=(8,)))


@pytest.fixture(scope="module")
def finished(place):
    said = []
    found = followed(place, COURSE, VARIANTS, said.append)
    assert len(said) == steps(COURSE, VARIANTS)
    return found


@pytest.mark.thorough
def test_fedavg_goes_on_from_the_model_of_the_first_stage(place, finished):
    for seed, outcome in finished["FedAvg"].before.outcomes.items():
        options = dict(epochs=1, lr=0.5)
        engine, hyper = setup.engine_of(place, "fed_avg", options, FIRST)
        run, _, _ = train(engine, place, hyper, seed, FIRST)
        model = jax.tree.map(np.asarray, run.server)
        there = place._replace(model=place.model._replace(init=lambda key, model=model: model))
        run, _, _ = train(engine, there, hyper | dict(lr=0.1), seed, SECOND)
        loss, _ = engine.outcomes(run, outcome.judged, place.objective.outcomes, ("test",))["test"]
        np.testing.assert_allclose(outcome.scores("test", "loss")[0], loss, rtol=1e-4, atol=1e-5)
        break  # one seed tells


@pytest.mark.thorough
def test_the_step_of_the_last_stage_is_the_best_on_validation(finished):
    for each in finished.values():
        assert len(each.after.tried) == 2
        best = min(each.after.tried, key=lambda row: (row[2], row[1]))[0]
        assert each.after.options["tune_lr"] == best["tune_lr"]
        assert each.before.options["passes"] == 0 and each.after.options["passes"] == 5


def test_tuning_helps_clients_and_newcomers_and_adapters_start_as_no_change(place, finished):
    mistakes = lambda result: contest.errors(place, result).mean()
    for each in finished.values():
        assert mistakes(each.after) <= mistakes(each.before) + 0.01
        assert [len(seeds) for seeds in each.after.newcomers.values()] == [2, 2]
        assert len({tuple(seeds) for seeds in each.before.newcomers.values()}) == 1, "untuned, examples do not matter"
    adapter = finished["adapter"].diagnosis
    assert adapter.private == 2 * (64 + 8) + 2 * (8 + 10) and adapter.shared == 64 * 8 + 8 + 90
    assert finished["FedAvg"].diagnosis is None and (adapter.left < adapter.before).mean() > 0.5


def test_a_split_is_chosen_on_validation_whatever_the_test_says(place, finished):
    mine = finished["adapter"].after
    lucky = {
        seed: replace(one, arrays=one.arrays | {"test_error": 0 * one.arrays["test_error"],
                                                "validation_error": 1 + 0 * one.arrays["validation_error"]})
        for seed, one in mine.outcomes.items()
    }  # fmt: skip
    other = finished["adapter"]._replace(after=mine._replace(outcomes=lucky))
    trained = Trained("images", place, COURSE, finished | {"output": other}, {})
    assert trained.above("output", "adapter").value > 0 and trained.chosen == "adapter"


def test_training_alone_takes_as_many_epochs_as_the_average_client_of_both_stages(place):
    assert as_long(place, COURSE).rounds == (8 + 4) * 4 // place.population == 3
