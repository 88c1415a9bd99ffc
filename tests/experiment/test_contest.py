"""Rivals on one federation: tuned on validation, tested once."""

import numpy as np
import pytest

from apiece.data import digits
from apiece.experiment.build import arena, model_of
from apiece.experiment.contest import Rival, client_errors, contest, counter, errors, per_method, steps
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.reproduce.lines import curve, newcomer_lines


@pytest.fixture(scope="module")
def played():
    federation = digits(clients=20).hold_out_clients(0.2)
    place = arena(federation, model_of(ModelSpec(), federation))
    rivals = {
        "local": Rival("local", dict(steps=2), dict(lr=(0.01, 0.3))),
        "fed_avg": Rival("fed_avg", grid=dict(steps=(1, 4), lr=(1e-6, 0.1))),
        "ftfa": Rival("ftfa", dict(steps=2, tune_epochs=2), dict(lr=(0.3,))),
    }
    said = []
    watch = lambda what, done, total: said.append((done, total))
    plan = TrainSpec(rounds=4, evaluate_every=2)
    after = lambda engine, run: run.round
    found = contest(
        place, rivals, plan, (0, 1), newcomers=(1, 8), after=after, step=counter(watch, steps(rivals, (0, 1)))
    )
    return place, rivals, found, said


@pytest.mark.thorough
def test_every_setting_is_tried_and_the_best_on_validation_stands(played):
    _, rivals, found, said = played
    assert [len(found[name].tried) for name in rivals] == [2, 4, 0], "one setting needs no trial"
    for name in ("local", "fed_avg"):
        least = min(error for _, loss, error in found[name].tried if np.isfinite(loss))
        assert any(found[name].options.items() >= point.items() and error == least
                   for point, _, error in found[name].tried)  # fmt: skip
    assert found["fed_avg"].options["lr"] == 0.1, "a step size of a millionth learns nothing"
    assert found["local"].options["steps"] == 2
    assert said == [(at, len(said)) for at in range(len(said))], "progress counts to its total"


def test_results_are_told_by_seed_and_by_client(played):
    place, _, found, _ = played
    for result in found.values():
        assert errors(place, result).shape == (2,) and client_errors(place, result).shape == (2, place.population)
        assert result.after == [4, 4]
    sizes = np.diff(place.splits["test"][2])[: place.population]
    pooled = (client_errors(place, found["ftfa"]) * sizes).sum(1) / sizes.sum()
    np.testing.assert_allclose(pooled, errors(place, found["ftfa"]), rtol=1e-6)
    assert curve("ftfa", found["ftfa"]).x == [2, 4]


def test_newcomers_fare_better_with_more_examples_and_fed_avg_does_not_care(played):
    _, _, found, _ = played
    lines = {line.name: line for line in newcomer_lines(found)}
    assert list(lines["local"].x) == [1, 8]
    assert lines["local"].y[1] > lines["local"].y[0] + 0.1
    assert lines["fed_avg"].y[0] == lines["fed_avg"].y[1]


def test_the_table_has_who_gains_and_who_is_hurt(played):
    place, _, found, _ = played
    table = per_method(place, found)
    assert np.isnan(table["local"]["gain over local"]) and np.isfinite(table["ftfa"]["gain over local"])
    assert 0 <= table["ftfa"]["hurt proved"] <= 1


@pytest.mark.thorough
def test_by_halving_a_third_of_the_settings_goes_on_and_the_last_are_tried_for_all_rounds(played):
    place, *_ = played
    rival, told, seen = Rival("fed_avg", dict(steps=2), dict(lr=(1e-6, 1e-5, 1e-4, 0.1, 0.3))), [], []

    def tune_on(engine, run):
        seen.append((run.round, run.hyper["lr"]))
        return 0.0, -run.hyper["lr"]  # the largest is best

    plan = TrainSpec(rounds=3, evaluate_every=3)
    found = contest(place, {"fed_avg": rival}, plan, (0,), tune_rounds=3, tune_on=tune_on, halve=True, step=told.append)
    assert [rounds for rounds, _ in seen] == [1] * 5 + [3] * 2
    assert {round(lr, 3) for rounds, lr in seen if rounds == 3} == {0.1, 0.3} and found["fed_avg"].options["lr"] == 0.3
    assert len(told) == steps({"fed_avg": rival}, (0,), halve=True, rounds=3) == 5 + 2 + 1
