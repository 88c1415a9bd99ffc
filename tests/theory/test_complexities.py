"""The FedCLUP paper's tables as functions: against what is known of each method."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory.clup import rounds_factor, statistical_bounds
from apiece.theory.complexities import solver_costs, statistical_rates

LAMS, L, MU = np.geomspace(1e-3, 1e3, 13), 1.0, 0.01


def test_l2gd_costs_what_its_coins_say():
    """2 (L + lam)/mu ln 1/eps iterations at p = lam/(lam + L); a communication where averaging follows a local step."""
    p = LAMS / (LAMS + L)
    iterations = 2 * np.maximum(L / (1 - p), LAMS / p) / MU * np.log(1e6)
    found = solver_costs(LAMS, L, MU, 1e-6)["l2gd"]
    np.testing.assert_allclose(found.communication, p * (1 - p) * iterations)
    np.testing.assert_allclose(found.computation, (1 - p) * iterations / found.communication)


def test_fed_clup_talks_less_than_l2gd_where_lam_is_above_mu():
    found = solver_costs(LAMS, L, MU)
    less = found["fed_clup"].communication < found["l2gd"].communication
    assert (less == (LAMS > MU)).all()
    np.testing.assert_allclose(found["fed_clup"].communication, rounds_factor(LAMS, L, MU) * np.log(1e6))


def test_total_work_of_fed_clup_does_not_depend_on_lam():
    work = solver_costs(LAMS, L, MU)["fed_clup"]
    np.testing.assert_allclose(work.computation * work.communication, L / MU * np.log(1e6))


def test_rates_are_never_below_those_of_pooling_nor_above_those_of_training_alone():
    n, m = 100, 20
    rate = statistical_rates(np.linspace(0, 1, 50), n, m).fed_clup
    assert (np.diff(rate) >= 0).all() and rate[0] == pytest.approx(1 / (m * n)) and rate[-1] == pytest.approx(1 / n)
    # The print has the smaller of R^2 and 1/(mn), which is below the lower bound of pooling for small R.
    assert statistical_rates(0.01, n, m).fed_clup > min(0.01**2, 1 / (m * n))
    bounds = np.minimum(*statistical_bounds([0.1, 1e4], 1.0, 0.5, 1.0, n, m * n, 0.01))
    assert bounds.min() > statistical_rates(0.01, n, m).fed_clup  # constants are left out, orders are not


def test_an_eps_is_a_share():
    with pytest.raises(UserError, match="below 1"):
        solver_costs(1.0, 1.0, 0.1, eps=2.0)
