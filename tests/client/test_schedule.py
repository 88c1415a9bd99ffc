"""Schedules: their values by hand, traced rounds, and what they do to a run."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece import fit
from apiece.client.schedule import schedule
from apiece.data import from_rows
from apiece.errors import UserError


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
