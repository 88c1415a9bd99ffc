"""Asynchronous FFGG: the problems, and a run against a NumPy program that plays the same journal."""

import numpy as np
import pytest

from apiece.engines.world.arrivals import Speeds
from apiece.reproduce.ffgg.slow_clients import ACTIVE, CLIENTS, PACE, Federation, best, problems, pull

pytestmark = pytest.mark.usefixtures("x64")


def test_the_clients_pull_as_stated():
    made = problems(2)
    j, c = made.f.tuned()
    np.testing.assert_allclose(j, made.j, atol=1e-12)
    np.testing.assert_allclose(c, np.einsum("kmij,kmj->kmi", made.j, made.optima), atol=1e-12)
    spectrum = np.linalg.eigvalsh(made.j)
    assert spectrum.min() > -1e-12 and spectrum.max() <= 1
    assert 0.3 < (spectrum < 1e-9).mean() < 0.7
    np.testing.assert_array_equal(made.j[:2], made.j[2:])
    assert pull(made, 0, best(made, 0, np.full(CLIENTS, 1 / CLIENTS))) < 1e-12
    assert pull(made, 0, best(made, 0, np.eye(CLIENTS)[:8].mean(0))) < 1e-10  # whose mean it is matters only if apart
    assert pull(made, 2, best(made, 2, np.eye(CLIENTS)[:8].mean(0))) > 1e-3


def test_a_run_is_the_journal_played():
    made, merges, lr = problems(2), 60, 0.1
    federation, problem = Federation(made.f), 3
    trace = federation.trace(federation.late("new", 20), problem, 5, merges, lr)
    journal = Speeds(active=ACTIVE, policy="new", pace=PACE).journal(5, CLIENTS, merges)
    theta, seen = np.zeros(10), []
    for version in range(merges):
        seen.append(theta)
        job = int(np.flatnonzero(journal.merge == version)[0])
        m, old = journal.client[job], seen[journal.start[job]]
        theta = theta - lr * made.j[problem, m] @ (old - made.optima[problem, m])
    np.testing.assert_allclose(trace.theta[-1], theta, atol=1e-12)
    assert trace.clock[-1] == journal.clock[merges - 1]
    assert trace.heard.sum() == merges and trace.delay >= ACTIVE


def test_waiting_takes_the_time_of_the_slowest():
    made = problems(1)
    federation = Federation(made.f)
    trace = federation.trace(federation.waiting(5), 0, 0, 20, 1.0)
    assert trace.clock[-1] > 20 * 10  # of eight clients some are slow: a round takes about twenty
    assert pull(made, 0, trace.theta[-1]) < pull(made, 0, trace.theta[0]) / 10
