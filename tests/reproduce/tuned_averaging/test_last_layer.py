"""The last-layer experiment on digits: other deals of the rows, passes of personalization, claims."""

import dataclasses

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.engines.costs import costs, visit_costs
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment.contest import Rival, contest, steps
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.models import mlp
from apiece.reproduce.tuned_averaging import last_layer
from apiece.reproduce.tuned_averaging.last_layer_data import frozen, parted
from apiece.reproduce.tuned_averaging.last_layer_rivals import (
    PASSES,
    by_passes,
    ftfa_in_passes,
    maml_in_passes,
    pooled,
    rivals,
)
from apiece.reproduce.tuned_averaging.redeal import redealt

PLAN = TrainSpec(rounds=2, evaluate_every=2)


@pytest.fixture(scope="module")
def place():
    federation = digits(clients=10).hold_out_clients(0.2)
    return setup.arena(federation, setup.model_of(ModelSpec(), federation))


def rows_of(place, i):
    """Client i's training and validation rows, in some order of their own."""
    x, _, held = place.splits["validation"]
    both = [np.asarray(place.x[slice(*place.offsets[i : i + 2])]), np.asarray(x[slice(*held[i : i + 2])])]
    return sorted(map(tuple, np.concatenate(both).tolist()))


def test_another_deal_has_the_same_rows_at_every_client_elsewhere(place):
    other = redealt(place, 1)
    assert all(rows_of(place, i) == rows_of(other, i) for i in range(place.population))
    own = slice(0, place.offsets[place.population])
    assert (np.asarray(other.x[own]) != np.asarray(place.x[own])).any()
    np.testing.assert_array_equal(other.x[own.stop :], place.x[own.stop :], "new clients keep theirs")
    assert other.splits["test"] is place.splits["test"] and len(other.new) == 0


def test_an_engine_on_other_rows_runs_as_one_made_for_them_and_refuses_other_shapes(place):
    other = redealt(place, 2)
    lent, _ = setup.engine_of(place, "fed_avg", dict(steps=2), PLAN)
    made, hyper = setup.engine_of(other, "fed_avg", dict(steps=2), PLAN)
    ends = [
        engine.personal(engine.advance(engine.start(place.model.init, 0, hyper), 2), np.arange(3))
        for engine in (lent.moved(other.x, other.y, other.offsets), made, lent)
    ]
    jax.tree.map(np.testing.assert_array_equal, ends[0], ends[1])
    assert not np.array_equal(ends[1]["w"], ends[2]["w"])
    with pytest.raises(UserError, match="shape"):
        lent.moved(other.x[1:], other.y[1:], other.offsets)


def test_costs_by_size_are_those_of_every_size(place):
    engine, hyper = setup.engine_of(place, "ftfa", {}, PLAN)
    run, method = engine.start(place.model.init, 0, hyper), engine.build(hyper, 0)
    sizes = np.array([5, 20, 32, 33, 40, 64, 65, 97])
    found = visit_costs(engine.build, hyper, run.params, (place.x, place.y), sizes, {})
    assert found == {int(n): costs(method, run.params, (place.x, place.y), int(n)) for n in sizes}


@pytest.mark.slow
def test_passes_are_traced_and_ten_of_them_are_the_catalogs_ftfa(place):
    ours, hyper = setup.engine_of(place, ftfa_in_passes, {}, PLAN)
    assert "passes" in hyper
    catalogs, theirs = setup.engine_of(place, "ftfa", {}, PLAN)
    run = ours.advance(ours.start(place.model.init, 0, hyper), 2)
    expected = catalogs.advance(catalogs.start(place.model.init, 0, theirs), 2)
    who = np.arange(place.population)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        ours.personal(run, who),
        catalogs.personal(expected, who),
    )
    none = ours.personal(dataclasses.replace(run, hyper={**hyper, "passes": 0.0}), who)
    np.testing.assert_allclose(none["w"][0], run.server["w"], atol=1e-7)
    assert len(by_passes(place)(ours, run)) == len(PASSES)


def test_those_who_pretrain_are_not_federated():
    others, mine = parted(digits(clients=10), 4)
    assert not set(others.ids) & set(mine.ids) and others.clients + mine.clients == 10


def test_every_grid_is_one_of_the_methods_options():
    for rival in rivals().values():
        for point in rival.points:
            setup.bind(rival.method, lambda p, b, k: 0.0, {**rival.options, **point})


@pytest.fixture(scope="module")
def played():
    others, mine = parted(digits(clients=14), 4)
    model = mlp((64,), 10, hidden=(8,))
    make = lambda: frozen(model, others, mine.hold_out_clients(0.2), epochs=3, batch=32)
    names = ("local", "fed_avg", "ftfa", "maml_fl (first)", "pfedme")
    few = {name: rivals()[name]._replace(grid={}) for name in names}
    few["ftfa"] = few["ftfa"]._replace(grid=dict(lr=(1e-6, 0.1), tune_lr=(1e-4, 1e-3, 0.01, 0.1)))
    said = []
    one = last_layer.play("digits", make, few, last_layer.Size(2, 2, 2, (1, 8)), said.append)
    assert len(said) == steps(few, range(2), 2, halve=True) + 1
    return one


@pytest.mark.slow
def test_claims_tables_and_figure_come_from_the_trials(played):
    for name, of in played.methods.items():
        assert len(of["seeds"]) == len(of["deals"]) == 2, name
    claims = last_layer.claims_of(played, quick=False)
    quick = {claim.name for claim in last_layer.claims_of(played, quick=True)}
    assert quick < {claim.name for claim in claims} and len(claims) == 11
    gap = np.mean(last_layer.points(played, "ftfa") - last_layer.points(played, "local"))
    assert next(c for c in claims if c.name == "digits: FTFA above training alone, in points").ours == pytest.approx(
        gap
    )
    spent = {name: of["gradients"] for name, of in played.methods.items()}
    assert np.divide(spent["pfedme"], spent["fed_avg"]) == pytest.approx(5)
    assert last_layer.seconds_of_pfedme(played).ours > 0
    tables = last_layer.tables(played)
    assert len(tables["digits, test error by client"]) == 8
    assert last_layer.figure([played]).panels[0].title == "digits"
    ends = np.array([curve[-1] for curve in played.methods["ftfa"]["test"]])
    np.testing.assert_allclose(100 * ends, played.methods["ftfa"]["seeds"], atol=1e-4, err_msg="pooled, as is judged")


@pytest.mark.slow
def test_settings_that_differ_in_tuning_alone_share_one_training_and_are_judged_as_if_trained_each(place):
    grid, judged = dict(lr=(1e-6, 0.1), tune_lr=(1e-4, 0.1)), pooled(place, "validation")
    found = {}
    for late in ((), ("tune_lr",)):
        told = []
        rival = Rival(ftfa_in_passes, grid=grid, late=late)
        asked = dict(tune_rounds=2, tune_on=judged, step=told.append)
        found[late] = contest(place, {"ftfa": rival}, PLAN, (0,), **asked)["ftfa"]
        assert sum("tuning" in what for what in told) == (2 if late else 4)
    assert found[()].options == found["tune_lr",].options
    for (options, loss, error), other in zip(found[()].tried, found["tune_lr",].tried, strict=True):
        assert options == other[0] and (loss, error) == pytest.approx(other[1:], rel=1e-4)


@pytest.mark.slow
def test_the_passes_of_maml_are_traced_and_ten_of_them_are_the_catalogs(place):
    ours, hyper = setup.engine_of(place, maml_in_passes, {}, PLAN)
    catalogs, theirs = setup.engine_of(place, "maml_fl", {}, PLAN)
    ends = [
        engine.personal(engine.advance(engine.start(place.model.init, 0, values), 2), np.arange(place.population))
        for engine, values in ((ours, hyper), (catalogs, theirs))
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *ends)
