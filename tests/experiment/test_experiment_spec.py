"""The spec: what may stand in it, what is said about a mistake, and TOML there and back."""

import math

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import Spec, fit, make_spec, read_values
from apiece.experiment.spec import BASELINES
from apiece.files import write_toml


def message_of(values, where="the spec"):
    with pytest.raises(UserError) as caught:
        make_spec(values, where)
    return str(caught.value)


def test_an_empty_spec_has_every_default():
    spec = make_spec({})
    assert (spec.data.source, spec.train.rounds, spec.seeds, spec.tune) == ("digits", 100, [0, 1, 2], 8)


@pytest.mark.parametrize(
    ("values", "key", "nearest"),
    [
        ({"train": {"round": 5}}, "train.round", "rounds"),
        ({"train": {"cohorts": 5}}, "train.cohorts", "cohort"),
        ({"data": {"sources": "digits"}}, "data.sources", "source"),
        ({"model": {"hiden": [3]}}, "model.hiden", "hidden"),
        ({"method": {}}, "method", "methods"),
        ({"seed": [1]}, "seed", "seeds"),
    ],
)
def test_an_unknown_key_is_an_error_that_suggests_the_nearest(values, key, nearest):
    assert message_of(values, "a.toml") == f"a.toml: unknown key '{key}': did you mean '{nearest}'?"


def test_an_unknown_key_like_no_other_lists_the_known_ones():
    text = message_of({"train": {"zzzz": 5}})
    assert "unknown key 'train.zzzz'" in text and "known: " in text and "rounds" in text


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"train": {"rounds": "5"}}, "train.rounds"),
        ({"train": {"rounds": 2.5}}, "train.rounds"),
        ({"train": {"rounds": True}}, "train.rounds"),
        ({"train": {"rounds": 0}}, "train.rounds"),
        ({"train": {"cohort": 0}}, "train.cohort"),
        ({"train": {"probability": 0.0}}, "train.probability"),
        ({"train": {"probability": 1.5}}, "train.probability"),
        ({"train": {"weights": "sizes"}}, "train.weights"),
        ({"train": {"stateless": "yes"}}, "train.stateless"),
        ({"train": {"schedule": "cosinus"}}, "train.schedule"),
        ({"train": {"evaluate_every": 0}}, "train.evaluate_every"),
        ({"train": {"checkpoint_seconds": -1}}, "train.checkpoint_seconds"),
        ({"train": 5}, "train"),
        ({"model": {"name": "tree"}}, "model.name"),
        ({"model": {"hidden": 64}}, "model.hidden"),
        ({"model": {"hidden": [64, 0]}}, "model.hidden.1"),
        ({"data": {"source": 3}}, "data.source"),
        ({"data": {"new_clients": 1.0}}, "data.new_clients"),
        ({"data": {"seed": -1}}, "data.seed"),
        ({"data": {"options": [1]}}, "data.options"),
        ({"seeds": 3}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [0, -1]}, "seeds.1"),
        ({"seeds": [2**32]}, "seeds.0"),
        ({"tune": 0}, "tune"),
        ({"methods": ["ditto"]}, "methods"),
        ({"methods": {"ditto": 0.5}}, "methods.ditto"),
    ],
)
def test_a_wrong_value_names_its_key_and_is_never_guessed(values, key):
    text = message_of(values)
    assert text.startswith(f"the spec: '{key}' = ") and " is wrong: " in text
    assert "\n" not in text


def test_whole_numbers_are_good_enough_where_fractions_are_meant():
    assert make_spec({"train": {"checkpoint_seconds": 0, "probability": 1}}).train.probability == 1.0


def test_a_cohort_and_a_probability_exclude_each_other():
    assert "train.cohort and train.probability exclude each other" in message_of(
        {"train": {"cohort": 3, "probability": 0.5}}
    )


def test_the_same_seed_twice_is_refused():
    assert "[1, 1]" in message_of({"seeds": [1, 1]})


def test_baselines_always_stand_beside_the_methods():
    assert tuple(make_spec({"methods": {"scaffold": {}}}).methods) == (*BASELINES, "scaffold")
    assert tuple(make_spec({}).methods) == BASELINES


def test_options_of_a_baseline_are_kept():
    assert make_spec({"methods": {"fed_avg": {"lr": 0.5}}}).methods["fed_avg"] == {"lr": 0.5}


def test_only_who_asks_for_it_runs_without_baselines():
    assert list(make_spec({"methods": {"ditto": {}}, "baselines": False}).methods) == ["ditto"]


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"dito": {}}, "unknown method 'dito': did you mean 'ditto'?"),
        ({"ditto": {"lamda": 1.0}}, "method 'ditto' has no option 'lamda': did you mean 'lam'?"),
        ({"ditto": {"lam": "big"}}, "option 'lam' of method 'ditto' is a finite number, not 'big'"),
        ({"ditto": {"lam": math.nan}}, "is a finite number, not nan"),
        ({"ditto": {"lam": -1.0}}, "must be at least 0, not -1.0"),
        ({"ditto": {"lr": 0.0}}, "must be above 0, not 0.0"),
        ({"ditto": {"steps": 0}}, "is a whole number of at least 1, not 0"),
        ({"ditto": {"steps": 1.5}}, "is a whole number of at least 1, not 1.5"),
        ({"ditto": {"batch": -1}}, "is a whole number of at least 0, not -1"),
        ({"pfedme": {"warm": 1}}, "is true or false, not 1"),
        ({"ditto": {"lam": True}}, "is a finite number, not True"),
    ],
)
def test_methods_and_their_options_are_checked_with_the_spec(methods, said):
    assert said in message_of({"methods": methods})


def test_specs_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        make_spec({}).tune = 3


def test_a_spec_written_as_toml_is_the_same_spec(tmp_path):
    spec = make_spec(
        {
            "data": {"source": "a b/ü.csv", "options": {"features": ["x", 'the "y"'], "shares": [0.8, 0.1, 0.1]}},
            "model": {"name": "mlp", "hidden": [3, 4]},
            "train": {"probability": 0.25, "schedule": "linear", "schedule_options": {"warmup": 1e-7}},
            "methods": {"fed_clup": {"lam": 1e16, "epochs": 2}},
            "seeds": [5, 7],
        }
    )
    path = tmp_path / "spec.toml"
    write_toml(path, spec.model_dump())
    again = make_spec(read_values(path))
    assert isinstance(again, Spec) and again == spec
    assert list(again.methods) == list(spec.methods)


def test_a_spec_file_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "a.toml").write_text("rounds = = 3")
    with pytest.raises(UserError, match=r"a\.toml' cannot be read: .*line 1"):
        read_values(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(UserError, match=r"b\.toml' cannot be read"):
        read_values(tmp_path / "b.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read_values(tmp_path)


def test_a_spec_can_ask_for_late_replies_faults_and_availability(tmp_path):
    values = {"train": {"arrivals": {"active": 3, "pace": {"law": "zipf"}}}}
    spec = make_spec(values)
    assert spec.train.arrivals.pace.law == "zipf" and spec.train.arrivals.buffer == 1
    path = tmp_path / "spec.toml"
    write_toml(path, spec.model_dump())
    assert make_spec(read_values(path)) == spec


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"arrivals": {"activ": 3}}, "did you mean 'active'"),
        ({"arrivals": {"pace": {"low": "zipf"}}}, "did you mean 'law'"),
        ({"arrivals": {}, "cohort": 3}, "leave out train.cohort"),
        ({"arrivals": {}, "faults": {"dropout": 0.1}}, "leave out train.faults"),
        ({"faults": {"dropout": 1.5}}, "train.faults.dropout"),
        ({"availability": {"pattern": "weekly"}}, "train.availability.pattern"),
    ],
)
def test_a_wrong_table_of_unreliable_clients_is_refused_by_name(train, words):
    with pytest.raises(UserError, match=words):
        make_spec({"train": train})


def test_a_spec_can_ask_for_attacks_broken_replies_and_a_defence():
    train = {"attack": {"name": "sign_flip", "share": 0.2}, "faults": {"corrupt": 0.3, "corruption": "infinite"},
             "defence": {"rule": "median", "most": 10.0}}  # fmt: skip
    plan = {"rounds": 4, "evaluate_every": 4, **train}
    federation = digits(clients=10)
    result = fit("fed_avg", federation=federation, **plan)
    assert result.costs["not_finite"] > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.personal("3")))
    undefended = fit("fed_avg", federation=federation, **{**plan, "defence": None})
    assert not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(undefended.personal("3")))


ALONE = {"active": 4, "buffer": 1}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "train",
    [
        {"attack": {"name": "mimic", "clients": [0]}},
        {"defence": {"rule": "centered_clipping"}},
        {"arrivals": ALONE, "attack": {"name": "noise", "clients": [0]}, "defence": {"rule": "centered_clipping"}},
    ],
    ids=["mimic", "clipping", "alone"],
)
def test_attacks_and_rules_that_remember_replies_are_told_what_those_of_a_method_look_like(train):
    # FFGG's replies have no private part, and so are unlike the model.
    options = {"private": "b", "inner_steps": 1, "tune_epochs": 1}
    result = fit("ffgg", federation=digits(clients=6), options=options, rounds=2, evaluate_every=2, **train)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.personal("3")))


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"attack": {"name": "sign_flop", "share": 0.2}}, "sign_flip"),
        ({"attack": {"name": "sign_flip"}}, "say who attacks"),
        ({"attack": {"name": "sign_flip", "clients": [900]}}, "client 900"),
        ({"defence": {"rule": "medium"}}, "median"),
        ({"arrivals": ALONE, "defence": {"rule": "krum"}}, "rule = 'krum' is void with train.arrivals.buffer = 1"),
        ({"arrivals": ALONE, "defence": {"most": 5.0}}, "most = 5 is void"),
        ({"arrivals": ALONE, "attack": {"name": "alie", "share": 0.2}}, "'alie' is void"),
        ({"arrivals": ALONE, "attack": {"name": "sign_flip", "share": 0.2, "options": {"of": "honest"}}}, "is void"),
    ],
)
def test_a_wrong_attack_or_defence_is_refused_before_anything_runs(train, words):
    with pytest.raises(UserError, match=words):
        fit("fed_avg", federation=digits(clients=10), rounds=1, **train)
