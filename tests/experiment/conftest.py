"""Run folders made once for all tests, whichever worker needs them first."""

import experiment_runs
import pytest

from apiece.report import write_report


@pytest.fixture(scope="session")
def shared_place(tmp_path_factory):
    """A folder that all workers of one test session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture(scope="session")
def small_run(shared_place):
    """A whole comparison of four methods, with its report. Read it only."""

    def make(out):
        experiment_runs.run(experiment_runs.SMALL, out)
        write_report(out)

    return experiment_runs.make_once(shared_place, "small_run", make)
