"""[train.private] and [train.compress]: what is refused, the promise in the record, costs."""

import math

import pytest

import apiece
from apiece.data import source
from apiece.errors import UserError
from apiece.experiment.bench import compiled_in
from apiece.experiment.extend import refuse_to_extend
from apiece.experiment.privacy import asked_for, draw_of, privacy_notes, privacy_of
from apiece.experiment.spec import make_spec
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.world import participation_of
from apiece.wrap.accountant import Draw, epsilon_of

PRIVATE = {"epsilon": 8.0, "delta": 0.001}


def plan(**how):
    return TrainSpec.model_validate({"rounds": 5, "private": PRIVATE, **how})


def test_the_promise_is_the_accountants():
    found = privacy_of(plan(probability=0.3), 60)
    draw = Draw("poisson", 60, 0.3)
    assert found.epsilon == epsilon_of(found.noise, 0.001, 5, draw) <= 8
    assert (found.sampling, found.rate, found.clients, found.rounds, found.delta) == ("poisson", 0.3, 60, 5, 0.001)
    assert found.slack < 1e-10
    assert "add or remove one client's replies" in privacy_notes(found)[0]
    assert "tuning" in privacy_notes(found)[2] and "seed" in found.assumptions[2]
    given = privacy_of(plan(cohort=6, private={"noise": 2.0, "delta": 0.001}), 60)
    assert given.noise == 2.0 and given.adjacency == "replace one client"
    assert given.epsilon == epsilon_of(2.0, 0.001, 5, Draw("fixed", 60, 0.1))
    assert privacy_of(TrainSpec(), 60) is None and privacy_notes(None) == []


def test_only_a_draw_by_lot_is_accounted_for_as_one():
    assert draw_of(plan(), 20) == Draw("everybody", 20)
    assert draw_of(plan(cohort=5, availability={"pattern": "daily"}), 20) == Draw("everybody", 20)
    assert draw_of(plan(cohort=2, participation="apiece.engines:take_turns"), 20) == Draw("everybody", 20)


def test_coins_decide_alone_under_privacy_so_that_a_round_may_have_nobody():
    drawn = [len(participation_of(plan(probability=0.05)).draw(0, round, 20)) for round in range(200)]
    assert 0.2 < drawn.count(0) / 200 < 0.5  # 0.95^20 = 0.36
    assert min(len(participation_of(TrainSpec(probability=0.05)).draw(0, round, 20)) for round in range(200)) == 1


def test_an_epsilon_is_for_a_number_of_rounds():
    assert compiled_in(plan()) != compiled_in(plan(rounds=6))
    noise = {"noise": 1.0}
    assert compiled_in(plan(private=noise)) == compiled_in(plan(rounds=6, private=noise))


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(arrivals={}), "goes with rounds"),
        (dict(defence={"rule": "median"}), "exclude each other"),
        (dict(attack={"name": "sign_flip", "share": 0.2}), "sees what all others"),
        (dict(private={"noise": 1.0, "delta": 0.1}), "no promise to 20 clients"),
        (dict(private={**PRIVATE, "at": "clients"}, compress={}), "less noise than was accounted for"),
    ],
)
def test_what_would_break_the_promise_is_refused(wrong, says):
    with pytest.raises(UserError, match=says):
        asked_for(plan(**wrong), 20)


def test_epsilon_or_noise_and_not_both():
    for table in ({}, {"epsilon": 1.0, "noise": 1.0}):
        with pytest.raises(UserError, match="either epsilon"):
            make_spec({"train": {"private": table}})


@pytest.fixture(scope="module")
def federation():
    return source("linear", clients=12, examples=8, features=3)


@pytest.mark.parametrize("method, says", [("all_for_all", "no average of the replies"), ("l2gd", "counts who is new")])
def test_methods_that_need_single_replies_are_refused_by_name(federation, method, says):
    with pytest.raises(UserError, match=f"method '{method}' under .*{says}"):
        apiece.fit(method, federation=federation, rounds=1, private=PRIVATE)


def test_a_private_and_compressed_fit_tells_its_promise_and_counts_its_bytes(federation):
    how = dict(federation=federation, rounds=3, options={"steps": 1, "lr": 0.05}, evaluate_every=3)
    plain = apiece.fit("fed_avg", **how)
    fitted = apiece.fit("fed_avg", **how, private=PRIVATE, compress={"kind": "bfloat16"})
    assert fitted.privacy.epsilon <= 8 and any(note.startswith("privacy: epsilon") for note in fitted.notes)
    assert fitted.costs["bytes_up"] == plain.costs["bytes_up"] / 2
    with pytest.raises(UserError, match="spent its epsilon"):
        fitted.advance(1)


def test_a_run_that_spent_its_epsilon_does_not_go_on(tmp_path):
    with pytest.raises(UserError, match="spent its epsilon = 8 in 5 rounds"):
        refuse_to_extend(tmp_path, make_spec({"train": {"rounds": 5, "private": PRIVATE}}), 9)


@pytest.mark.thorough
def test_a_record_and_its_page_tell_the_promise_on_both_engines(federation, tmp_path):
    from apiece.report.page import write_report

    errors = {}
    for engine in ("vectorized", "remote"):
        out = tmp_path / engine
        found = apiece.compare(federation, ["fed_avg"], rounds=2, seeds=1, tune=1, out=out, baselines=False,
                               engine=engine, probability=0.6, private={**PRIVATE, "quantile": 0.5})  # fmt: skip
        record = found.record
        assert record.privacy.epsilon <= 8 and record.privacy.quantile == 0.5
        assert record.plain()["privacy"]["sampling"] == "poisson"
        errors[engine] = record.methods["fed_avg"].seeds[0].metrics["test"]["error"]["mean"]
    assert math.isclose(*errors.values(), rel_tol=1e-4)
    assert "privacy: epsilon" in write_report(tmp_path / "remote").read_text()
