"""One's own methods, models, metrics, objectives and optimizers in a comparison: named, hashed, resumed, refused."""

import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet as pq
import pytest

import apiece
from apiece.client.descend import descend
from apiece.client.optimize import OptimizedLoss, Tape, make_optimizer
from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import make_spec
from apiece.experiment.check import check_spec
from apiece.experiment.variant import variant_of
from apiece.methods import fed_avg
from apiece.models import Objective, mlp, objective, softmax
from apiece.protocol import Data
from apiece.testing import check_method

SMALL = dict(rounds=2, seeds=1, tune=1, evaluate_every=1, data_options={"clients": 6}, baselines=False)
MINE = """
    from apiece.methods import fed_avg

    def mine(loss, *, lr=0.1, steps=2):
        '''A method of mine.'''
        return fed_avg(loss, lr=lr, steps=steps, batch=4)

    def hits(outputs, labels):
        return (outputs.argmax(1) == labels).mean()

    def net(shape, outputs):
        from apiece.models import mlp
        return mlp(shape, outputs, hidden=(4,))
"""


@pytest.fixture
def own(tmp_path):
    """A file of one's own."""
    path = tmp_path / "of_mine.py"
    path.write_text(textwrap.dedent(MINE), encoding="utf-8")
    yield path
    for name in [name for name in sys.modules if name.endswith("_of_mine")]:
        del sys.modules[name]


def hits(outputs, labels):
    return (outputs.argmax(1) == labels).mean()


def test_a_file_of_ones_own_goes_through_a_whole_comparison(own, tmp_path):
    out = tmp_path / "run"
    how = dict(model=f"{own}:net", metrics={"hits": f"{own}:hits"}, choose="hits", optimizer={"name": "adamw"})
    found = apiece.compare("digits", {"mine": {"method": f"{own}:mine"}}, **SMALL, **how, out=out)
    assert found.record.metrics == {"hits": True}
    for row in found.record.methods.values():
        assert row.summary["test"]["hits"]["mean"].mean == pytest.approx(row.summary["test"]["accuracy"]["mean"].mean)
    assert found.record.methods["mine"].method == f"{own}:mine"
    assert "validation_hits" in pq.read_table(out / "rounds.parquet").column_names
    assert "test_hits" in pq.read_table(out / "clients.parquet").column_names
    assert list(found.personal("mine", "3")) == ["hidden0", "out"]
    # Finished, it is only read; not finished, its code must be what it was.
    own.write_text(own.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert list(apiece.resume(out).record.methods) == list(found.record.methods)
    (out / "record.json").unlink()
    with pytest.raises(UserError, match=r"the code of methods\.mine changed since the run"):
        apiece.resume(out)


def test_what_no_file_can_hold_is_given_again(tmp_path):
    out, mine = tmp_path / "run", lambda loss, *, lr=0.1: fed_avg(loss, lr=lr, steps=2, batch=4)
    found = apiece.compare("digits", {"mine": mine}, **SMALL, model=softmax((64,), 10), out=out)
    assert found.record.methods["mine"].method == "given:mine"
    (out / "record.json").unlink()
    with pytest.raises(UserError, match=r"'mine' was given as an object.*given=\{'mine'"):
        apiece.resume(out)
    again = apiece.resume(out, given={"mine": mine, "model": softmax((64,), 10)})
    assert str(again.record.methods["mine"].summary) == str(found.record.methods["mine"].summary)  # NaN and all


def test_two_variants_of_one_method_stand_in_one_table(tmp_path):
    rows = {
        "weak": {"method": "ditto", "lam": 0.01, "lr": {"grid": [0.05, 0.1]}},
        "strong": {"method": "ditto", "lam": {"range": [1, 10]}},
    }
    found = apiece.compare("digits", rows, **SMALL | {"tune": 2}, out=tmp_path / "run").record
    assert [row.options["lam"] for row in (found.methods["weak"], *found.methods["strong"].tuning)] == [
        0.01,
        3.16,
        1.78,
    ]
    assert [one.options for one in found.methods["weak"].tuning] == [{"lr": 0.05}, {"lr": 0.1}]
    assert found.spec["methods"]["weak"]["lr"] == {"grid": [0.05, 0.1]}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"methods": {"weak": {"method": "dito"}}}, "unknown method 'dito': did you mean 'ditto'"),
        ({"methods": {"ditto": {"method": "fed_avg"}}}, "name of a method of the catalog, and is another"),
        ({"methods": {"ditto": {"lam": {"grid": 3}}}}, "methods.ditto.lam: a grid is a list"),
        ({"methods": {"ditto": {"lam": {"grid": ["a"]}}}}, "option 'lam' of method 'ditto' is a finite number"),
        ({"methods": {"ditto": {"lam": {"range": [0, 1]}}}}, "methods.ditto.lam: a range is"),
        ({"methods": {"ditto": {"steps": {"range": [1, 2]}}}}, "methods.ditto.steps is no fraction"),
        ({"methods": {"ditto": {"lam": {"grd": [1]}}}}, "methods.ditto.lam is a value"),
        ({"methods": {"fed_avg": {"lr": {"grid": [0.1] * 40}, "server_lr": {"grid": [1.0] * 40}}}}, "more than 1000"),
        ({"methods": {"a.py:x": {}, "b.py:x": {}}}, "two rows of the comparison are called 'x'"),
        ({"every": {"lamb": 1}}, "every.lamb: no method of this comparison has an option 'lamb'"),
        ({"metrics": {"loss": "a:b"}}, "metrics.loss: that name is taken"),
        ({"metrics": {"a b": hits}}, "metrics.a b: a name has letters"),
        ({"metrics": {"f1": "nowhere:f1"}}, "metric 'nowhere:f1': there is no module 'nowhere'"),
        ({"metrics": {"f1": {"function": hits, "higher": True}}}, "metrics.f1 is a function, or a table"),
        ({"choose": "f2"}, "choose = 'f2'"),
        ({"train": {"optimizer": {"name": "adamm"}}}, "unknown optimizer 'adamm': did you mean 'adam'"),
        ({"train": {"optimizer": {"name": "adam", "options": {"b3": 1}}}}, "optimizer 'adam' has no option 'b3'"),
        ({"train": {"optimizer": {"name": "math:sqrt"}}}, "sqrt"),
        ({"train": {"optimizer": {}}, "methods": {"maml_fl": {}}}, "'maml_fl' takes steps of its own"),
        ({"train": {"schedule": "cosin"}}, "there is no such schedule; did you mean 'cosine'"),
        ({"model": {"name": "nowhere.py:net"}}, "there is no file"),
        ({"model": {"objective": "math:pi"}}, "model.objective is an apiece.models.Objective"),
    ],
)
def test_a_mistake_is_named(values, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        check_spec(make_spec({"data": {"options": {"clients": 6}}, "tune": 1, **values}))


def breaks_shapes(loss, *, lr=0.1):
    base = fed_avg(loss, lr=lr, steps=1, batch=4)
    return base._replace(merge=lambda x, replies, cohort, key: (x, x))


def raises(loss, *, lr=0.1):
    raise ValueError("not today")


def raises_later(loss, *, lr=0.1):
    def init(params, key):
        if not isinstance(params["w"], jnp.ndarray) or (params["w"].ndim == 2 and not hasattr(params["w"], "aval")):
            return params
        return params

    def merge(x, replies, cohort, key):
        if cohort.ids.shape[0] > 2:  # not in a trial round of two
            raise RuntimeError("too many clients")
        return x

    return fed_avg(loss, lr=lr, steps=1, batch=4)._replace(merge=merge)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (breaks_shapes, "method 'mine' breaks line 1 of the contract.*the server's state after merge"),
        (raises, r"method 'mine' fails before its first round: ValueError: not today \(test_own_things.py, line"),
        (lambda loss: 3, "its factory gives no apiece.Method, but 3"),
    ],
)
def test_a_broken_method_is_named_before_anything_is_written(method, said, tmp_path):
    with pytest.raises(UserError, match=said):
        apiece.compare("digits", {"mine": method}, **SMALL, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_method_that_fails_on_the_way_leaves_the_others_results(tmp_path):
    found = apiece.compare("digits", {"local": {}, "mine": raises_later}, **SMALL, out=tmp_path / "run")
    assert list(found.record.methods) == ["local"] and "too many clients" in found.failed["mine"]
    assert any("mine failed and is left out" in note for note in found.record.notes)


def test_a_metric_that_fails_names_itself_and_the_client():
    with pytest.raises(UserError, match=r"metric 'bad' failed on client '0' \(.*ZeroDivisionError"):
        apiece.fit("local", federation=digits(clients=4), rounds=1, metrics={"bad": lambda outputs, labels: 1 / 0})


def test_an_objective_of_ones_own_keeps_the_name_of_its_error(tmp_path):
    def brier(model):
        def outcomes(params, batch):
            gap = jnp.square(jnp.exp(model.apply(params, batch.x)) - jnp.eye(10)[batch.y]).sum(-1)
            return base.outcomes(params, batch)[0], gap

        base = objective(model, "classification")
        return Objective(base.loss, outcomes, error="brier")

    found = apiece.compare("digits", ["fed_avg"], **SMALL, objective=brier, out=tmp_path / "run").record
    assert found.ranking.metric == "brier" and not found.ranking.higher
    assert "brier" in found.methods["fed_avg"].summary["test"] and "accuracy" not in found.methods["fed_avg"].summary
    assert "test_brier" in pq.read_table(tmp_path / "run" / "clients.parquet").column_names
    assert "brier" in apiece.report.write_report(tmp_path / "run").read_text(encoding="utf-8")


def squares():
    loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    return loss, Data(x=jnp.zeros(3), y=jnp.array([0.0, 1.0, 2.0]), start=0, size=3, capacity=3)


def test_an_optimizer_that_travels_with_the_loss_is_the_one_that_is_given():
    loss, data = squares()
    optimizer = make_optimizer("adamw", {"weight_decay": 0.1}, clip=0.5)
    train = dict(steps=5, lr=0.1, batch=0)
    key = apiece.engines.contact.keys(0).client
    given = descend(loss, jnp.array(5.0), data, key, optimizer=optimizer, **train)
    travels = descend(OptimizedLoss(loss, optimizer, Tape()), jnp.array(5.0), data, key, **train)
    # By hand: optax's own AdamW, whose learning rate is the step size.
    by_hand = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1, weight_decay=0.1))
    w, memory = jnp.array(5.0), by_hand.init(jnp.array(5.0))
    for _ in range(5):
        update, memory = by_hand.update(w - 1.0, memory, w)
        w = optax.apply_updates(w, update)
    assert float(given) == float(travels) == pytest.approx(float(w), rel=1e-6)


@pytest.mark.thorough
def test_memories_that_are_kept_go_on_where_they_stopped():
    """One client, full batches: rounds of two steps with kept moments are one run of Adam; reset ones are not."""
    federation = digits(clients=2)
    run = lambda steps, rounds, keep: apiece.fit(
        "local", federation=federation, rounds=rounds, options={"steps": steps, "batch": 0, "lr": 0.01},
        optimizer={"name": "adam", "keep": keep})  # fmt: skip
    whole, kept, reset = run(4, 1, False), run(2, 2, True), run(2, 2, False)
    model = lambda fit: fit.personal("0")["w"]
    np.testing.assert_allclose(model(kept), model(whole), rtol=2e-5, atol=1e-7)
    assert np.abs(model(reset) - model(whole)).max() > 1e-4


@pytest.mark.thorough
def test_a_method_keeps_the_contract_with_memories_kept():
    from apiece.methods.bind import bind

    def ditto_with_adam(loss, *, lr=0.1, lam=0.1, steps=2):
        build, hyper = bind("ditto", loss, {"steps": steps, "batch": 4}, optimizer=make_optimizer("adam"), keep=True)
        return build(hyper | {"lr": lr, "lam": lam}, 0)

    checks = ["states_keep_their_shapes", "states_are_committed_when_replies_counted"]
    assert len(check_method(ditto_with_adam, engines=["remote"], checks=checks)) == 2


def test_a_schedule_scales_whatever_the_step_size_is_called():
    from apiece.methods.bind import bind

    half = lambda round: 0.5
    seen = {}

    def mine(loss, *, inner_lr=1.0, outer_lr=2.0):
        seen.update(inner_lr=inner_lr, outer_lr=outer_lr)
        return fed_avg(loss)

    for scheduled, expected in (((), (0.5, 1.0)), (("outer_lr",), (1.0, 1.0))):
        build, hyper = bind(mine, lambda p, b, k: 0.0, {}, half, scheduled=scheduled)
        build(hyper, 0)
        assert (seen["inner_lr"], seen["outer_lr"]) == expected
    with pytest.raises(UserError, match="has no step size 'lr'"):
        bind(lambda loss, *, lam=0.1: fed_avg(loss), lambda p, b, k: 0.0, {}, half)


def test_a_model_may_know_its_own_sizes(tmp_path):
    model = lambda: mlp((64,), 10, hidden=(3,))
    fit = apiece.fit("local", model, digits(clients=3), rounds=1, options={"steps": 1})
    assert fit.personal("0")["hidden0"]["w"].shape == (3, 64)


def test_the_rows_of_a_grid_are_all_tried_and_a_range_as_often_as_others():
    both = {"method": "ditto", "lam": {"range": [0.1, 10]}, "steps": {"grid": [1, 5]}}
    points = variant_of("both", both).points(4)
    assert len(points) == 4 and {point["steps"] for point in points} == {1, 5}
    assert len(variant_of("grid", {"method": "ditto", "lam": {"grid": [1, 2, 3]}}).points(1)) == 3
