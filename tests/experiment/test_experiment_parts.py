"""Small parts of experiments: schedules, costs, tuning points, atomic files."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece import fit, tree
from apiece.client.schedule import schedule
from apiece.data import from_rows
from apiece.engines.costs import costs
from apiece.engines.devices import remember_compiled, use_all_cores
from apiece.errors import UserError
from apiece.experiment import tune
from apiece.methods import fed_avg, ftfa, pfedme, scaffold
from apiece.report.catalog import sources

PARAMS = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
BYTES = 4 * 8
EXAMPLE = (jnp.zeros((1, 3)), jnp.zeros(1))
LOSS = lambda p, batch, key: (p["b"] * batch.weight.sum()).sum() + p["w"].sum()


# Schedules.


@given(st.integers(1, 300), st.floats(0, 1))
def test_a_linear_schedule_rises_to_one_falls_and_stays_above_zero(rounds, warmup):
    factor = schedule("linear", rounds, warmup=warmup)
    values = np.array([float(factor(r)) for r in (*range(min(rounds, 12)), rounds - 1)])
    assert (values > 0).all() and (values <= 1 + 1e-6).all()


def test_a_linear_schedule_has_the_values_computed_by_hand():
    assert [round(float(schedule("linear", 10, warmup=0.4)(r)), 4) for r in range(10)] == [
        0.25, 0.5, 0.75, 1.0, 1.0, 0.8333, 0.6667, 0.5, 0.3333, 0.1667,
    ]  # fmt: skip


@pytest.mark.parametrize("every", [1, 3, 500])
def test_an_exponential_schedule_is_an_exact_power_of_a_half(every):
    rounds = np.arange(120 * every)  # beyond 126 halvings, float32 has no such power
    found = jax.jit(jax.vmap(schedule("exponential", len(rounds), every=every)))(rounds)
    np.testing.assert_array_equal(found, np.float32(0.5) ** (rounds // every))


def test_schedules_take_traced_rounds():
    for name in ("constant", "linear", "exponential"):
        traced = jax.jit(lambda r, name=name: jnp.asarray(schedule(name, 20)(r)))(7)
        assert float(traced) == pytest.approx(float(schedule(name, 20)(7)))


def test_an_unknown_schedule_suggests_the_nearest_and_a_wrong_option_is_named():
    with pytest.raises(UserError, match="unknown schedule 'liner': did you mean 'linear'"):
        schedule("liner", 10)
    with pytest.raises(UserError, match="schedule 'exponential' has no option 'warmup': known: every"):
        schedule("exponential", 10, warmup=0.5)
    with pytest.raises(UserError, match="option 'every' of schedule 'exponential' is a whole number of at least 1"):
        schedule("exponential", 10, every=0)


def test_a_schedule_scales_the_step_of_every_round():
    """One step a round on w^2/2 from labels 0: w is multiplied by 1 - lr * factor each round."""
    x, y = np.zeros((12, 1), np.float32), np.ones(12, np.float32)
    data = from_rows(x, y, np.arange(12) % 2)
    options = {"lr": 0.5, "steps": 1, "batch": 0}
    plan = dict(rounds=3, evaluate_every=3, schedule="exponential", schedule_options={"every": 1})
    found = fit("fed_avg", federation=data, options=options, **plan)
    left = math.prod(1 - 0.5 * factor for factor in (1.0, 0.5, 0.25))
    assert float(found.personal("0")["b"][0]) == pytest.approx(1 - left, rel=1e-5)


# Costs.


@pytest.mark.parametrize(("size", "batch", "passes"), [(31, 32, 1), (32, 32, 1), (33, 32, 2), (5, 0, 1), (70, 10, 7)])
def test_an_epoch_costs_as_many_gradients_as_it_has_batches(size, batch, passes):
    assert costs(fed_avg(LOSS, epochs=3, batch=batch), PARAMS, EXAMPLE, size).gradients == 3 * passes
    assert costs(fed_avg(LOSS, steps=3, batch=batch), PARAMS, EXAMPLE, size).gradients == 3


def test_gradients_of_nested_loops_multiply():
    assert costs(pfedme(LOSS, steps=4, prox_steps=3), PARAMS, EXAMPLE, 50).gradients == 12


def test_a_full_gradient_counts_once_however_many_chunks_it_takes():
    assert costs(fed_avg(LOSS, steps=2, batch=0), PARAMS, EXAMPLE, 1000).gradients == 2


def test_fine_tuning_is_paid_at_the_end_and_not_at_each_visit():
    found = costs(ftfa(LOSS, steps=2, tune_epochs=3), PARAMS, EXAMPLE, 70)
    assert (found.gradients, found.gradients_personal) == (2, 9)
    assert costs(ftfa(LOSS, tune_epochs=None, tune_steps=7), PARAMS, EXAMPLE, 70).gradients_personal == 7


def test_what_is_sent_and_kept_is_weighed():
    found = costs(scaffold(LOSS), PARAMS, EXAMPLE, 10)
    assert (found.bytes_down, found.bytes_up, found.bytes_kept) == (2 * BYTES, 2 * BYTES, BYTES)
    assert tree.size_in_bytes(PARAMS) == BYTES


def test_a_number_of_steps_known_only_at_run_time_is_not_made_up():
    loop = lambda x: jax.lax.while_loop(lambda i: i < x, lambda i: i + 1, 0)
    method = fed_avg(LOSS)
    unknown = method._replace(local=lambda c, x, data, key: method.local(c, tree.scale(loop(x["b"][0]), x), data, key))
    assert costs(unknown, PARAMS, EXAMPLE, 10).gradients == 20, "a loop without gradients does not matter"

    def local(c, x, data, key):
        return jax.lax.while_loop(lambda s: s[1]["b"][0] < 1, lambda s: method.local(s[0], s[1], data, key), (c, x))

    assert math.isnan(costs(method._replace(local=local), PARAMS, EXAMPLE, 10).gradients)


# Devices.


def test_every_core_is_a_device_and_asking_again_changes_nothing():
    assert use_all_cores() == use_all_cores() == len(jax.devices())


def test_a_compile_cache_that_was_chosen_is_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    remember_compiled(tmp_path)
    assert jax.config.jax_compilation_cache_dir == before is not None


# Tuning.


@given(st.integers(1, 20), st.integers(1, 3))
def test_every_method_gets_as_many_points_as_asked_inside_the_space_defaults_first(trials, options):
    space = {f"o{k}": (0.01 * 10**k, 3.0 * 10**k) for k in range(options)}
    defaults = dict.fromkeys(space, 0.1)
    points = tune.candidates(space, defaults, trials)
    assert len(points) == trials and points[0] == defaults
    for point in points[1:]:
        assert all(low * 0.99 <= point[name] <= high * 1.01 for name, (low, high) in space.items())
    assert len({tuple(p.values()) for p in points[1:]}) == trials - 1, "no point twice"


def test_more_trials_begin_with_the_same_points():
    space, defaults = {"lr": (0.01, 3.0), "lam": (0.01, 10.0)}, {"lr": 0.1, "lam": 0.1}
    assert tune.candidates(space, defaults, 9)[:4] == tune.candidates(space, defaults, 4)


def test_without_anything_to_tune_there_is_one_point():
    assert tune.candidates({}, {"lr": 1.0}, 8) == [{}]


def test_a_diverged_trial_never_wins_and_of_equals_the_first_does():
    trials = [{"validation_loss": loss, "at": at} for at, loss in enumerate([None, 0.5, 0.4, 0.4])]
    assert tune.best(trials)["at"] == 2
    assert tune.best(trials[:1])["at"] == 0


# Descriptions.


def test_every_source_has_a_line_and_its_options():
    assert all(row["summary"].endswith(".") for row in sources())
    assert sources()[0]["options"]["clients"] == 30
