"""Every row of the catalog keeps every line of the contract on every engine."""

from functools import lru_cache

import pytest

from apiece.methods import CATALOG
from apiece.testing import CHECKS, Case, run_check

# Of different kinds: no state, a state, a model of one's own, more than parameters.
SOME = ("fed_avg", "scaffold", "ditto", "knn_per")
PRODUCT = [
    pytest.param(name, engine, check, id=f"{name}-{engine}-{check}", marks=() if name in SOME else pytest.mark.thorough)
    for name in CATALOG
    for check in CHECKS
    for engine in CHECKS[check].engines
]


@lru_cache(maxsize=2)  # a method after the other: kept programs make every garbage collection slower
def case_of(name):
    """One case for all checks of a method: they share its compiled programs."""
    return Case(CATALOG[name])


@pytest.mark.parametrize(("name", "engine", "check"), PRODUCT)
def test_the_contract_is_kept(name, engine, check):
    run_check(case_of(name), CHECKS[check], engine)
