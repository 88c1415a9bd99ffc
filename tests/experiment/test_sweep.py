"""Settings and seeds: trained in one program or one by one, the numbers are the same."""

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.engines.simulation import together
from apiece.errors import UserError
from apiece.experiment.fit import fit, open_bench, spec_of
from apiece.experiment.sweep import sweep

OPTIONS = {"steps": 2}
LAMS = [0.1, 0.5, 2.0]


def bench_of(method="ditto", **how):
    spec = spec_of(None, 3, [0], None, None, {"evaluate_every": 2, **how})
    return open_bench(method, digits(clients=4), spec, dict(OPTIONS))


@pytest.fixture
def worth_it(monkeypatch):
    """However little there is to do, it is done together."""
    monkeypatch.setattr(together, "WORTH", 0)


@pytest.mark.thorough
def test_runs_in_one_program_are_the_runs_one_by_one(worth_it):
    bench = bench_of()
    engine, hyper = bench.engine({})
    fresh = lambda: [engine.start(bench.place.model.init, 7, hyper | {"lam": lam}) for lam in LAMS]
    alone = [engine.advance(run, 3) for run in fresh()]
    both = together.advance_together(engine, together.advance_together(engine, fresh(), 2, 4), 1, 4)
    for one, other in zip(alone, both, strict=True):
        assert (one.round, one.clock, one.hyper) == (other.round, other.clock, other.hyper)
        np.testing.assert_array_equal(one.known, other.known)
        close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
        jax.tree.map(close, (one.server, one.rows), (other.server, other.rows))


def test_settings_that_run_together_compile_one_program_for_all_their_blocks(worth_it):
    bench = bench_of()
    engine, hyper = bench.engine({})
    before = engine.block_of_runs._cache_size()
    runs = [engine.start(bench.place.model.init, 7, hyper | {"lam": lam}) for lam in LAMS]
    runs = together.advance_together(engine, runs, 2 * engine.block + 1, 5)
    together.advance_together(engine, runs, 1, 5)
    assert engine.block_of_runs._cache_size() == before + 1


def test_a_sweep_has_the_numbers_of_fits_in_the_order_of_the_grid(worth_it):
    federation = digits(clients=4)
    found = sweep("ditto", {"lam": LAMS}, [3, 5], federation=federation, rounds=3, options=OPTIONS, evaluate_every=2)
    assert [(row["lam"], row["seed"]) for row in found.rows] == [(lam, seed) for lam in LAMS for seed in (3, 5)]
    one = fit("ditto", federation=federation, rounds=3, seed=5, options=OPTIONS | {"lam": 0.5}, evaluate_every=2)
    row = found.rows[3]
    assert row["validation_loss"] == pytest.approx(one.curve[-1]["validation_loss"], abs=1e-6)
    assert row["validation_error"] == pytest.approx(one.curve[-1]["validation_error"])
    assert row["test_error"] == pytest.approx(1 - one.evaluate()["test"]["accuracy"]["mean"])
    assert found.settings == [{"lam": lam} for lam in LAMS] and found.best in found.settings
    lines = str(found).splitlines()
    assert len(lines) == 7 and lines[0].split()[:3] == ["lam", "seed", "validation_loss"]


def test_settings_that_were_looked_at_before_change_nothing_for_the_others(worth_it):
    bench, rounds = bench_of(), []
    looks = lambda done, tick: [
        curve[-1] for *_, curve in bench.looks([{"lam": lam} for lam in LAMS], 0, done=done, tick=tick)
    ]
    numbers = lambda curves: [(look["validation_loss"], look["validation_error"]) for look in curves]
    assert numbers(looks(1, rounds.append)) == numbers(looks(0, lambda rounds: None))[1:]
    assert sum(rounds) == 2 * 3, "only what is new is told of"


@pytest.mark.parametrize(
    "how",
    [{"faults": {"dropout": 0.5}}, {"defence": {"most": 1.0}}, {"arrivals": {"active": 2}}, {"engine": "remote"}],
    ids=["faults", "guard", "arrivals", "remote"],
)
def test_where_replies_may_not_count_or_there_are_no_rounds_runs_go_one_by_one(worth_it, how):
    engine, hyper = bench_of("fed_avg", **how).engine({})
    run = engine.start(lambda key: {"w": np.zeros((10, 64), np.float32), "b": np.zeros(10, np.float32)}, 0, hyper)
    assert together.runs_at_once(engine, run, 8, 100) == 1


def test_how_many_runs_share_a_program_depends_on_the_model_and_on_how_much_there_is_to_do():
    bench = bench_of("fed_avg")
    engine, hyper = bench.engine({})
    run = engine.start(bench.place.model.init, 0, hyper)
    assert [together.runs_at_once(engine, run, wanted, 10**5) for wanted in (1, 2, 25, 40)] == [1, 2, 25, 20]
    assert together.runs_at_once(engine, run, 8, 100) == 1, "too little to do"
    run.params["w"] = np.zeros((10, 5000), np.float32)
    assert together.runs_at_once(engine, run, 8, 10**5) == 1, "a model that fills a core by itself"


def test_a_grid_that_is_none_is_refused():
    for grid in ({}, {"lr": []}, {"lr": "0.1"}):
        with pytest.raises(UserError, match="grid is a table"):
            sweep("fed_avg", grid)
    with pytest.raises(UserError, match="'lr' is in the grid and among the options"):
        sweep("fed_avg", {"lr": [0.1]}, options={"lr": 0.2})
    with pytest.raises(UserError, match="no option 'lrr'"):
        sweep("fed_avg", {"lrr": [0.1]})
    with pytest.raises(UserError, match="at least one seed"):
        sweep("fed_avg", {"lr": [0.1]}, seeds=[])
