"""Options of the catalog's methods: their bounds, which of them are tuned and over what, and which are traced."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.costs import costs
from apiece.errors import UserError
from apiece.methods import CATALOG, fed_avg
from apiece.methods.bind import bind
from apiece.models import softmax
from apiece.registry import Number, Whole

LOSS = lambda p, batch, key: (p["b"] * batch.weight.sum()).sum() + p["w"].sum()
MODEL = softmax((3,), 2)

STEP, PULL, TOLERANCE, SHARE = (0.01, 3.0), (0.01, 10.0), (0.1, 10.0), (0.1, 0.9)
# What tuning chooses, in this order: the points that it tries depend on the order.
TUNED = {
    "local": {"lr": STEP, "ridge": (0.0, 10.0)},
    "fed_avg": {"lr": STEP},
    "fed_prox": {"lam": PULL, "lr": STEP},
    "ftfa": {"lr": STEP, "tune_lr": STEP},
    "rtfa": {"lam": PULL, "lr": STEP, "tune_lr": STEP},
    "ditto": {"lam": PULL, "lr": STEP},
    "pfedme": {"lam": PULL, "lr": STEP},
    "scaffold": {"lr": STEP},
    "fed_clup": {"lam": PULL, "lr": STEP},
    "dynamic_lambda": {"lr": STEP},
    "l2gd": {"lam": PULL, "lr": STEP},
    "al2sgd": {"lam": PULL, "lr": STEP},
    "chen_two_stage": {"lam": PULL, "lr": STEP, "tune_lr": STEP},
    "apfl": {"lr": STEP},
    "self_fl": {"lr": STEP, "tune_lr": STEP},
    "all_for_one": {"eps": TOLERANCE, "lr": STEP},
    "all_for_all": {"lr": STEP, "eps": TOLERANCE},
    "ffgg": {"inner_lr": STEP, "lr": STEP, "tune_lr": STEP},
    "local_ffgg": {"inner_lr": STEP, "lr": STEP, "tune_lr": STEP},
    "partial": {"lr": STEP},
    "fed_per": {"lr": STEP},
    "fed_rep": {"lr": STEP, "inner_lr": STEP},
    "lg_fed_avg": {"lr": STEP},
    "fed_bn": {"lr": STEP},
    "maml_fl": {"lr": STEP, "tune_lr": STEP},
    "fed_adam": {"lr": STEP},
    "ifca": {"lr": STEP},
    "knn_per": {"mix": SHARE, "lr": STEP},
    "fed_em": {"lr": STEP},
    "fed_dyn": {"lam": PULL, "lr": STEP},
    "fed_babu": {"lr": STEP, "tune_lr": STEP},
    "fed_proto": {"lam": PULL, "lr": STEP},
    "fed_rod": {"lr": STEP},
    "fed_ala": {"lr": STEP},
    "local_ridge": {"ridge": (0.0, 10.0)},
    "stack": {"lam": PULL, "ridge": (0.0, 10.0), "lr": STEP},
    "stack_tuned": {"lam": PULL, "tune_lr": STEP, "lr": STEP},
}
# An option means the same, and has the same bounds, in every method that has it.
BOUNDS = {
    "a whole number from 1": "ala_steps alone_steps components epochs groups inner_epochs l_default l_max neighbours "
    "patience pi_steps prox_steps refits steps tune_epochs tune_steps warmup",
    "a whole number from 0": "agent batch candidates halve_every inner_steps population",
    "above 0": "apart beta bound convexity delta distance eps gamma lr noise p prox_lr scale server_lr smoothness "
    "tune_lr",
    "at least 0": "ala_lr beta1 beta2 decay head_lr improvement inner_lr lam members nearer on_groups on_local "
    "on_nearer on_path on_shared on_tuned radius ridge spread tau trust tune_lam validation",
    "from 0 to 1": "ala_share alone mix",
    "no number": "adapt adapt_init adapt_steps adapt_weights adaptive augmented averaged bias by by_size clusters "
    "coins grid mixture nearest order printed private rule smoothing solver start summed tune_part variance "
    "variances warm weighted",
}


def test_every_method_is_tuned_over_its_options_and_ranges():
    assert {name: list(CATALOG.ranges(name).items()) for name in CATALOG.own} == {
        name: list(ranges.items()) for name, ranges in TUNED.items()
    }


def test_an_option_has_the_same_bounds_in_every_method():
    words = {
        Whole(1): "a whole number from 1",
        Whole(0): "a whole number from 0",
        (True, False, None): "above 0",
        (False, False, None): "at least 0",
        (False, False, 1): "from 0 to 1",
        None: "no number",
    }
    found = {words: set() for words in BOUNDS}
    for name in CATALOG.own:
        for option in CATALOG.options(name).values():
            rule = option.rule
            found[words[(rule.above_zero, rule.signed, rule.most) if isinstance(rule, Number) else rule]].add(
                option.name
            )
    assert {words: sorted(names) for words, names in found.items()} == {w: names.split() for w, names in BOUNDS.items()}


def test_all_options_of_the_catalog_pass_their_own_check():
    plain = lambda options: {name: np.asarray(value).tolist() for name, value in options.items()}
    for name in CATALOG:
        assert plain(CATALOG.check(name, CATALOG.defaults(name))) == plain(CATALOG.complete(name, {}))


def test_counts_are_whole_numbers_even_when_written_as_fractions():
    steps = CATALOG.check("fed_avg", {"steps": 3.0})["steps"]
    assert steps == 3 and isinstance(steps, int)


def test_what_the_user_sets_is_not_tuned_and_the_rest_is():
    assert CATALOG.ranges("ditto", fixed={"lam": 1.0}) == {"lr": STEP}
    for name in CATALOG:
        assert CATALOG.ranges(name) and CATALOG.ranges(name, fixed=CATALOG.ranges(name)) == {}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("all_for_all", {"bias": "near"}, "list of numbers"),
        ("all_for_all", {"clusters": [[0, 1], [2]]}, "equally long"),
        ("all_for_all", {"halve_every": -1}, "at least 0"),
        ("self_fl", {"l_max": 0}, "at least 1"),
        ("self_fl", {"augmented": 1}, "true or false"),
        ("self_fl", {"rule": 1}, "a word"),
        ("l2gd", {"p": 0}, "above 0"),
        ("ditto", {"lr": None}, "option 'lr' of method 'ditto' is a finite number, not None"),
        ("ditto", {"lambda": 1.0}, "method 'ditto' has no option 'lambda': did you mean 'lam'?"),
        ("dito", {}, "unknown method 'dito': did you mean 'ditto'?"),
    ],
)
def test_names_lists_counts_and_switches_are_checked(name, options, words):
    with pytest.raises(UserError, match=words.replace("?", "[?]")):
        CATALOG.check(name, options)


@pytest.mark.parametrize(("name", "more"), [("ffgg", 1), ("local_ffgg", 2 * 3), ("fed_rep", 3), ("partial", 3)])
def test_inner_work_may_be_given_by_passes_over_the_clients_data(name, more):
    params, example = {"w": jnp.zeros(3), "b": jnp.zeros(2)}, (jnp.zeros((1, 3)), jnp.zeros(1))
    order = {"order": "private_first"} if name == "partial" else {}
    options = {"private": "b", "inner_epochs": 2, "batch": 10, **order} | ({} if name == "ffgg" else {"steps": 3})
    for size, batches in ((35, 4), (5, 1)):
        assert costs(CATALOG[name](LOSS, **options), params, example, size).gradients == 2 * batches + more
    assert CATALOG.check(name, {"inner_lr": 0})["inner_lr"] == 0, "a private part may stand still"


def test_passes_may_be_none_in_favour_of_steps():
    assert CATALOG.check("ftfa", {"tune_epochs": None}) == {"tune_epochs": None}


# Bound to a loss.


def test_only_fractions_are_traced():
    for name in CATALOG:
        build, hyper = bind(name, LOSS, {}, population=3, model=MODEL)
        assert hyper and all(isinstance(value, float) for value in hyper.values())
        assert not {"steps", "epochs", "batch", "tune_steps"} & set(hyper)
        assert build(hyper, 0)._fields[0] == "init"


def test_a_constant_of_the_theory_is_fixed_because_its_default_is_none():
    assert "smoothness" not in bind("fed_clup", LOSS, {"smoothness": 1.0, "convexity": 0.1})[1]


def test_a_schedule_touches_the_clients_step_size_and_nothing_else():
    seen = {}

    def spy(loss, *, lr: float = 0.5, server_lr: float = 1.0):
        seen.update(lr=lr, server_lr=server_lr)
        return fed_avg(loss)

    build, hyper = bind(spy, LOSS, {}, schedule=lambda r: 0.1 * r)
    build(hyper, 2)
    assert seen == {"lr": pytest.approx(0.1), "server_lr": 1.0}


def test_a_schedule_needs_a_step_size_to_scale():
    def still(loss, *, steps=3):
        return fed_avg(loss, steps=steps)

    with pytest.raises(UserError, match="method 'still' has no step size 'lr' for a schedule to scale"):
        bind(still, LOSS, {}, schedule=lambda r: 1.0)


def test_a_matrix_may_be_written_as_lists_and_the_population_is_filled_in():
    assert CATALOG.check("all_for_all", {"bias": [[0, 1], [1, 0]]})["bias"].shape == (2, 2)
    seen = {}

    def spy(loss, *, lr: float = 0.5, population: int = 0):
        seen.update(population=population)
        return fed_avg(loss)

    build, hyper = bind(spy, LOSS, {}, population=7)
    build(hyper, 0)
    assert seen == {"population": 7}


def test_a_method_that_looks_into_the_model_is_given_it_and_its_user_cannot():
    def looking(loss, *, model, lr=0.1):
        return model, lr

    build, hyper = bind(looking, LOSS, {}, model="the model")
    assert hyper == {"lr": 0.1} and build(hyper, 0) == ("the model", 0.1)
    with pytest.raises(UserError, match="method 'looking' looks into the model, and none was given"):
        bind(looking, LOSS, {})
    with pytest.raises(UserError, match="method 'looking' has no option 'model'"):
        bind(looking, LOSS, {"model": "mine"}, model="the model")


def test_a_method_may_be_named_by_where_it_is():
    by_path, by_name = (bind(method, LOSS, {"lam": 0.5}) for method in ("apiece.methods.ditto:ditto", "ditto"))
    assert by_path[1] == by_name[1] == {"lam": 0.5, "lr": 0.1}
    with pytest.raises(UserError, match=r"method '.*:ditto' has no option 'lambda'"):
        bind("apiece.methods.ditto:ditto", LOSS, {"lambda": 0.5})


def test_a_stranger_needs_no_annotations():
    def mine(objective, *, lr=0.1, depth=0, warm=True, name="a"):
        return lr, depth, warm, name

    build, hyper = bind(mine, LOSS, {"lr": 1, "depth": 0})
    assert hyper == {"lr": 1.0} and build(hyper, 0) == (1.0, 0, True, "a")
    with pytest.raises(UserError, match="option 'depth' of method 'mine' is a whole number of at least 0, not -1"):
        bind(mine, LOSS, {"depth": -1})
