"""Methods in stages, whose options are those of their stages; and who takes part by a function of one's own."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import apiece
from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment.compare import run_spec
from apiece.experiment.spec import make_spec
from apiece.experiment.variant import variant_of
from apiece.methods import CATALOG

TWO = [{"method": "fed_avg", "rounds": 2, "steps": 2}, {"method": "ditto", "steps": 2}]
RUN = {"data": {"source": "digits", "options": {"clients": 4}, "new_clients": 0.0}, "seeds": [0], "baselines": False}


def table(**first):
    return {"stages": [{**TWO[0], **first}, TWO[1]]}


def test_the_options_of_stages_are_the_options_of_the_row():
    row = variant_of("warm", table(lr=0.2))
    assert row.options == {"stage1_lr": 0.2, "stage1_steps": 2, "stage2_steps": 2}
    ranges = CATALOG.ranges(row.method, fixed=row.options)
    assert "stage1_lr" not in ranges and {"stage2_lr", "stage2_lam"} <= set(ranges)
    assert ranges["stage2_lam"] == CATALOG.ranges("ditto")["lam"]


def test_grids_ranges_and_settings_for_everybody_reach_into_stages():
    assert variant_of("warm", table(lr={"grid": [0.1, 0.2]})).points(8) == [{"stage1_lr": 0.1}, {"stage1_lr": 0.2}]
    assert variant_of("warm", table(lr={"range": [0.1, 1]})).ranges == {"stage1_lr": (0.1, 1.0)}
    spec = make_spec({**RUN, "methods": {"warm": table(lr=0.2)}, "every": {"lr": 0.5, "lam": 0.3}})
    chosen = spec.rows["warm"].options
    assert (chosen["stage1_lr"], chosen["stage2_lr"], chosen["stage2_lam"]) == (0.2, 0.5, 0.3)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (table(lrr=1.0), "stage 1 of methods.warm.stages, has no option 'lrr': did you mean 'lr'?"),
        (table(lr=-1.0), "option 'stage1_lr' of method 'fed_avg, then ditto' must be above 0"),
        (table(lr={"grid": []}), "methods.warm.stage1_lr: a grid is a list"),
        ({**table(lr=1.0), "stage1_lr": 2.0}, "methods.warm.stage1_lr stands in the stage, too"),
        (
            {**table(), "fine_tune": {"epoch": 1}},
            "methods.warm.fine_tune has no option 'epoch': did you mean 'epochs'?",
        ),
    ],
)
def test_a_mistake_in_a_stage_is_named(wrong, words):
    with pytest.raises(UserError, match="(?s)" + words.replace("?", r"\?").replace(".", r"\.")):
        variant_of("warm", wrong)


def test_stages_are_tuned_written_down_and_opened_with_what_was_chosen(tmp_path):
    methods = {"warm": table(lr={"grid": [1e-6, 0.3]})}
    found = run_spec(make_spec({**RUN, "train": {"rounds": 4}, "methods": methods}), tmp_path / "run")
    told = found.record.methods["warm"]
    assert [tried.options["stage1_lr"] for tried in told.tuning] == [1e-6, 0.3] and told.options["stage1_lr"] == 0.3
    product = json.loads((tmp_path / "run" / "models" / "product.json").read_text())["methods"]["warm"]["table"]
    assert (
        product["stages"] == [{"method": "fed_avg", "rounds": 2}, {"method": "ditto"}] and product["stage1_lr"] == 0.3
    )
    x = np.ones((2, 64), np.uint8)
    expected = np.asarray(found.place.model.apply(found.personal("warm", "1"), jnp.asarray(x)))
    np.testing.assert_allclose(apiece.open(tmp_path / "run").predict("1", x).outputs, expected, atol=1e-6)


def two_by_two(seed, round, population):
    return [round % population, (round + 1) % population]


def test_who_takes_part_may_be_a_function_of_ones_own(tmp_path):
    here = f"{__file__}:two_by_two"
    options = {"steps": 1}
    given = dict(federation=digits(clients=4), rounds=2, options=options, seed=0)
    by_path, by_hand = (
        apiece.fit("fed_avg", participation=here, **given),
        apiece.fit("fed_avg", participation=two_by_two, **given),
    )
    same = apiece.fit("fed_avg", availability={"pattern": "given", "given": [[0, 1], [1, 2]]}, **given)
    everybody = apiece.fit("fed_avg", **given)
    model = lambda result: result.personal("3")["w"]
    assert np.array_equal(model(by_path), model(by_hand)) and np.array_equal(model(by_path), model(same))
    assert not np.array_equal(model(by_path), model(everybody))
    values = {**RUN, "train": {"rounds": 2, "participation": here}, "methods": {"fed_avg": {"lr": 0.1}}, "tune": 1}
    found = run_spec(make_spec(values), tmp_path / "run")
    assert "train.participation" in json.loads((tmp_path / "run/checkpoints/federation.json").read_text())["code"]
    assert found.record.spec["train"]["participation"] == here


@pytest.mark.parametrize(
    "named, words",
    [([0, 9], "named client 9; clients are numbered from 0 to 3"), ([1, 1], "named a client twice"),
     (["a"], "gives a list of clients' numbers"), ([0, 1, 2], "named 3 clients, and at most 2")],
)  # fmt: skip
def test_a_participation_that_names_nobody_there_is_refused(named, words):
    with pytest.raises(UserError, match=words):
        apiece.fit("fed_avg", federation=digits(clients=4), rounds=1, cohort=2, participation=lambda *given: named)


def test_a_participation_beside_another_is_refused():
    with pytest.raises(UserError, match=r"train\.participation says who takes part, and so does train\.probability"):
        make_spec({"train": {"participation": two_by_two, "probability": 0.5}})
    with pytest.raises(UserError, match="there is no file"):
        apiece.fit("fed_avg", federation=digits(clients=4), rounds=1, participation="nowhere.py:draw")
