"""With default settings nothing diverges: six of the federations of `python -m benchmarks steps`."""

import pytest

from benchmarks.steps import CONDITIONS, TASKS, compared, federation

METHODS = ("ftfa", "ditto")  # between them, everything that clients do with a step size


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("seed, condition", list(enumerate(CONDITIONS)))
def test_nothing_diverges_at_any_scale_and_condition(task, condition, seed):
    found = compared(federation(task, condition, seed), rounds=2, tune=2, methods=METHODS, baselines=False)
    assert found == {"methods": 2, "diverged": 0, "trials lost": 0, "clients lost": 0}
