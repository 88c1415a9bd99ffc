"""FedDyn: its golden trace, the optimum that it reaches without drift, and what becomes of lost replies."""

import jax.numpy as jnp
import numpy as np
import pytest
from golden import B, H, U, fed_dyn, fed_prox, pooled_optimum
from quadratic_runs import ENGINES, trace

from apiece import methods
from apiece.engines.costs import costs
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError

pytestmark = pytest.mark.usefixtures("x64")
TWICE = (2, 1, 1)  # client 0 has its example twice, and still counts once
close = lambda actual, expected, tolerance=1e-6: np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def run(engine, rounds, **options):
    got = trace(engine, "fed_dyn", H, B, rounds, counts=TWICE, **options)
    return [x for x, _ in got.server], got.models


@pytest.mark.parametrize("engine", ENGINES)
def test_fed_dyn_follows_its_trace(engine):
    got, models = run(engine, 4, lam=0.5, steps=3, lr=0.1)
    close(got, fed_dyn(H, B, 4, steps=3, lr=0.1, lam=0.5)[0])
    close(models, np.repeat(np.array(got)[:, None], 3, axis=1))


@pytest.mark.parametrize("engine", ENGINES)
def test_sampled_clients_follow_the_trace_too(engine):
    some = Participation(size=2)
    got, _ = run(engine, 5, lam=0.5, steps=3, lr=0.1, participation=some)
    cohorts = [sorted(some.draw(0, r, 3)) for r in range(5)]
    assert len({tuple(cohort) for cohort in cohorts}) > 1
    close(got, fed_dyn(H, B, 5, steps=3, lr=0.1, lam=0.5, cohorts=cohorts)[0])


@pytest.mark.parametrize(("steps", "lr"), [(1, 0.3), (20, 0.1), (100, 0.2)])
def test_it_ends_at_the_optimum_of_all_as_scaffold_does_for_any_number_of_steps(steps, lr):
    got, _ = run("vectorized", 400, every=400, lam=1.0, steps=steps, lr=lr)
    close(got[-1], pooled_optimum(H, B, U), 1e-9)


def test_the_optimum_is_reached_with_sampled_clients():
    got, _ = run("vectorized", 600, every=600, lam=1.0, steps=100, lr=0.2, participation=Participation(size=2))
    close(got[-1], pooled_optimum(H, B, U), 1e-8)


def test_the_first_round_is_twice_that_of_fed_prox():
    """Nothing is bent yet: each x moves by the mean update, and once more by the sum of updates, which is the same."""
    got, _ = run("vectorized", 1, lam=0.5, steps=3, lr=0.1)
    close(got[0], 2 * fed_prox(H, B, U, 1, steps=3, lr=0.1, lam=0.5)[0], 1e-12)


def test_one_step_of_length_one_over_lam_is_gradient_descent_that_looks_ahead():
    """g_i is then the last gradient: x <- x - lr (2 G(x) - G(last x))."""
    got, _ = run("vectorized", 6, lam=5.0, steps=1, lr=0.2)
    x, last, expected = np.zeros(2), np.zeros(2), []
    for _ in range(6):
        slope = (np.einsum("ijk,k->ij", H, x) - B).mean(0)
        x, last = x - 0.2 * (2 * slope - last), slope
        expected.append(x)
    close(got, expected, 1e-12)


def test_without_a_pull_it_is_refused():
    with pytest.raises(UserError, match="option 'lam' of method 'fed_dyn' is above 0"):
        methods.fed_dyn(lambda params, batch, key: 0.0, lam=0.0)


def test_it_costs_what_fed_avg_costs_and_a_model_that_is_kept():
    squares = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    found = costs(methods.fed_dyn(squares, steps=5), jnp.zeros((), jnp.float32), (jnp.zeros((1, 2)), jnp.zeros(1)), 40)
    assert found == (4, 4, 4, 5, 0, 0)
