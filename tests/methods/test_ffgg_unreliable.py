"""FFGG itself, exact inner solves, with clients that are late or lie: what a shared optimum is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_partial import Problem, envelope, felt
from partial_runs import examples, loss, start_of

from apiece.aggregate import bucketing, krum, median, rule
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.engines.world.pace import Pace
from apiece.methods import ffgg
from apiece.theory.ffgg import late_step
from apiece.wrap import attacked, robust

pytestmark = pytest.mark.usefixtures("x64")


def overpersonalized(clients, consistent, seed=0, n=14, shared=6, private=3):
    """Least squares with a private part: residuals of one theta and a w each, or of noise."""
    rng = np.random.default_rng(seed)
    theta, columns = rng.standard_normal(shared), []
    for _ in range(clients):
        a, b = rng.standard_normal((n, shared)) / np.sqrt(n), rng.standard_normal((n, private)) / np.sqrt(n)
        y = a @ theta + b @ rng.standard_normal(private) + (0 if consistent else 0.5) * rng.standard_normal(n)
        columns.append((a.T @ a, a.T @ b, b.T @ b, a.T @ y, b.T @ y))
    return Problem(*(np.array(column) for column in zip(*columns, strict=True)))


def by_ffgg(lr):
    return ffgg(loss, private="w", solver="cg", inner_steps=3, start="zero", batch=0, lr=lr)


def mean_pull(f, server, honest=slice(None)):
    theta = np.asarray(jax.tree.leaves(server)[0])
    return np.linalg.norm(felt(f, theta)[honest].mean(0))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["new", "same"])
def test_late_replies_reach_the_optimum_that_all_share_and_no_other(policy):
    pace = Pace("given", times=(1.0,) * 8 + (10.0,) * 8, jitter="exponential")
    arrivals = Speeds(active=8, policy=policy, pace=pace)
    journal = arrivals.journal(0, 16, 2500)
    delays = (journal.merge - journal.start)[journal.merge < 2500]
    ends = {}
    for consistent in (True, False):
        f = overpersonalized(16, consistent)
        largest = np.linalg.eigvalsh(envelope(f)[0]).max()
        build = lambda hyper, round, lr=0.1 / largest: by_ffgg(lr)
        engine = Asynchronous(build, *examples(f), np.arange(17), arrivals=arrivals, block=500)
        run = engine.advance(engine.start(lambda key, f=f: start_of(f), 0), 2500)
        ends[consistent] = mean_pull(f, run.server)
    assert delays.max() > 20
    assert ends[True] < 1e-12
    assert ends[False] > 1e-3
    # The proved step is far smaller than one that works.
    assert late_step(1.0, 8, delays.max()) < 0.1 / 4


LIARS = [16, 17, 18, 19]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("defence", "attack", "consistent", "least", "most"),
    [
        (bucketing(krum(byzantine=4), size=2), {"name": "sign_flip", "scale": 3.0}, True, 0.0, 1e-12),
        (bucketing(median(), size=2), {"name": "alie"}, True, 0.0, 1e-12),
        (bucketing(median(), size=2), {"name": "noise", "scale": 10.0}, True, 0.0, 1e-12),
        (rule("plain_mean"), {"name": "noise", "scale": 10.0}, True, 0.1, 1e3),
        (bucketing(median(), size=2), {"name": "noise", "scale": 10.0}, False, 0.01, 10.0),
    ],
    ids=["krum-sign_flip", "median-alie", "median-noise", "mean-noise", "optima apart"],
)
def test_lies_are_withstood_where_the_honest_share_an_optimum(defence, attack, consistent, least, most):
    f = overpersonalized(20, consistent, n=30)
    largest = np.linalg.eigvalsh(envelope(f)[0]).max()

    def build(hyper, round):
        reply = lambda params: {"theta": params["theta"]}
        return attacked(robust(by_ffgg(0.5 / largest), defence, reply=reply), attack, clients=LIARS, reply=reply)

    engine = Vectorized(build, *examples(f), np.arange(21), block=400)
    run = engine.advance(engine.start(lambda key: start_of(f), 0), 400)
    assert least <= mean_pull(f, run.server, slice(16)) <= most
    assert jnp.asarray(jax.tree.leaves(run.server)[0]).dtype == jnp.float64
