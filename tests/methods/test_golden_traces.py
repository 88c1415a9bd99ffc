"""Traces of three rounds on three quadratic clients, to 1e-6 in float64, against the NumPy programs and the digits."""

import numpy as np
import pytest
from golden import (
    B,
    H,
    P,
    U,
    centre_problem,
    descend,
    ditto,
    fed_avg,
    fed_clup,
    fed_prox,
    local_optima,
    pfedme,
    pooled_optimum,
    prox,
    scaffold,
)  # fmt: skip
from quadratic_runs import ENGINES, trace

TWICE = (2, 1, 1)  # client 0 has its example twice: the weights P
ERM_P = pooled_optimum(H, B, P)

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.parametrize("engine", ENGINES)]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def digits(actual, *printed):
    """Six printed digits: half a unit of the last, and the 1e-6 that is asked of us."""
    np.testing.assert_allclose(actual, np.array(printed), rtol=0, atol=1.5e-6)


def test_fed_avg(engine):
    got = trace(engine, "fed_avg", H, B, 3, counts=TWICE, steps=2, lr=0.1)
    close(got.server, fed_avg(H, B, P, 3, steps=2, lr=0.1))
    digits(got.server, (0.131875, 0.246250), (0.222026, 0.423199), (0.283461, 0.550454))
    close(got.models[-1], np.tile(got.server[-1], (3, 1)))


def test_ftfa_takes_two_steps_from_the_pooled_optimum(engine):
    got = trace(engine, "ftfa", H, B, 0, start=ERM_P, tune_epochs=None, tune_steps=2, tune_lr=0.1)
    close(got.models[0], [descend(H[i], B[i], ERM_P, 2, 0.1) for i in range(3)])
    digits(got.models[0], (0.633007, 0.903706), (0.264790, 0.772517), (0.155524, 0.941748))


def test_rtfa_solved_from_the_pooled_optimum(engine):
    options = dict(lam=0.5, tune_epochs=None, tune_steps=200, tune_lr=0.3)
    got = trace(engine, "rtfa", H, B, 0, start=ERM_P, **options)
    close(got.models[0], [prox(H[i], B[i], 0.5, ERM_P) for i in range(3)])
    digits(got.models[0], (0.885315, 0.960373), (-0.075175, 0.652098), (-0.524476, 0.983017))


PFEDME = [
    pytest.param(1.0, [(0.049757, 0.120915), (0.091559, 0.225314), (0.126652, 0.315464)], id="beta-1"),
    pytest.param(2.0, [(0.099514, 0.241830), (0.167207, 0.417598), (0.213053, 0.545433)], id="beta-2"),
]


@pytest.mark.parametrize(("beta", "printed"), PFEDME)
def test_pfedme_with_an_exact_prox(engine, beta, printed):
    options = dict(lam=1.5, steps=2, lr=0.1, prox_steps=100, prox_lr=0.25)
    got = trace(engine, "pfedme", H, B, 3, counts=TWICE, beta=beta, **options)
    expected, personal = pfedme(H, B, P, 3, steps=2, lr=0.1, lam=1.5, beta=beta)
    close(got.server, expected)
    close(got.models[-1], personal)
    digits(got.server, *printed)


def test_pfedme_with_an_inexact_prox_restarted_at_w(engine):
    options = dict(lam=1.5, steps=2, lr=0.1, prox_steps=5, prox_lr=0.1)
    got = trace(engine, "pfedme", H, B, 3, counts=TWICE, warm=False, **options)
    expected, personal = pfedme(H, B, P, 3, **options)
    close(got.server, expected)
    close(got.models[-1], personal)
    digits(got.server, (0.049355, 0.101204), (0.092056, 0.190708), (0.128983, 0.269873))


def test_pfedme_with_an_inexact_prox_that_goes_on_where_it_stopped(engine):
    options = dict(lam=1.5, steps=2, lr=0.1, prox_steps=5, prox_lr=0.1)
    got = trace(engine, "pfedme", H, B, 3, counts=TWICE, **options)
    expected, personal = pfedme(H, B, P, 3, warm=True, **options)
    close(got.server, expected)
    close(got.models[-1], personal)


@pytest.mark.parametrize("counts", [None, TWICE], ids=["equal-sizes", "one-client-larger"])
def test_fed_clup_counts_every_client_once(engine, counts):
    options = dict(lam=0.5, steps=3, lr=1 / 3.5, gamma=3.5 / 3)
    got = trace(engine, "fed_clup", H, B, 3, counts=counts, **options)
    expected, personal = fed_clup(H, B, 3, **options)
    close(got.server, expected)
    close(got.models, personal)
    digits(got.server, (0.037982, 0.325397), (0.030882, 0.536886), (0.015362, 0.668352))
    digits(got.models[-1], (0.806195, 0.824368), (-0.141325, 0.528560), (-0.652041, 0.933841))


def test_fed_prox(engine):
    got = trace(engine, "fed_prox", H, B, 3, lam=0.5, steps=3, lr=1 / 3.5)
    close(got.server, fed_prox(H, B, U, 3, steps=3, lr=1 / 3.5, lam=0.5))
    digits(got.server, (0.065112, 0.557823), (0.055854, 0.757604), (0.039812, 0.831180))
    close(got.models[-1], [descend(H[i], B[i], got.server[-1], 3, 1 / 3.5, 0.5, got.server[-1]) for i in range(3)])


def test_ditto(engine):
    got = trace(engine, "ditto", H, B, 3, counts=TWICE, lam=0.5, steps=2, lr=0.1)
    expected, personal = ditto(H, B, P, 3, steps=2, lr=0.1, lam=0.5)
    close(got.server, expected)
    close(got.models, personal)
    close(got.server, fed_avg(H, B, P, 3, steps=2, lr=0.1))
    digits(got.models[-1], (0.683535, 0.470837), (0.001061, 0.263253), (-0.385883, 0.835995))


def test_scaffold(engine):
    got = trace(engine, "scaffold", H, B, 3, steps=2, lr=0.1, server_lr=0.5)
    expected, control, _ = scaffold(H, B, 3, steps=2, lr=0.1, server_lr=0.5)
    close([x for x, _ in got.server], expected)
    close(got.server[-1][1], control)
    digits([x for x, _ in got.server], (0.027917, 0.1325), (0.052241, 0.248823), (0.072039, 0.347528))


def test_local_goes_to_each_clients_own_optimum(engine):
    got = trace(engine, "local", H, B, 2, steps=100, lr=0.3)
    close(got.models[-1], local_optima(H, B))
    digits(got.models[-1], (1, 1), (-0.333333, 0.666667), (-1, 1))


def test_the_pooled_optimum_is_where_one_step_averaging_goes(engine):
    weighted = trace(engine, "fed_avg", H, B, 25, counts=TWICE, every=25, steps=1, lr=0.5)
    plain = trace(engine, "fed_avg", H, B, 25, every=25, steps=1, lr=0.5)
    digits(weighted.server[-1], 0.426573, 0.881119)
    digits(plain.server[-1], 0.139241, 0.886076)
    close(weighted.server[-1], ERM_P)
    close(plain.server[-1], pooled_optimum(H, B, U))


EXACT = [
    pytest.param(0.5, None, (-0.048994, 0.886507), id="lam-0.5-uniform"),
    pytest.param(1.5, None, (0.014385, 0.883146), id="lam-1.5-uniform"),
    pytest.param(0.5, TWICE, (0.240611, 0.900523), id="lam-0.5-weighted"),
    pytest.param(1.5, TWICE, (0.307694, 0.888618), id="lam-1.5-weighted"),
]


@pytest.mark.parametrize(("lam", "counts", "printed"), EXACT)
def test_fed_prox_solved_exactly_finds_the_centre_of_the_regularized_problem(engine, lam, counts, printed):
    rounds = 25 if lam < 1 else 45
    got = trace(engine, "fed_prox", H, B, rounds, counts=counts, every=rounds, lam=lam, steps=60, lr=1 / (3 + lam))
    x, personal = centre_problem(H, B, U if counts is None else P, lam)
    digits(got.server[-1], *printed)
    close(got.server[-1], x)
    close(got.models[-1], personal)
    if counts is None and lam == 0.5:
        digits(got.models[-1], (0.790201, 0.962169), (-0.254186, 0.713564), (-0.682998, 0.983787))


def test_fed_clup_weighted_is_the_problem_with_weights(engine):
    """Fixed point of min sum_i p_i [L_i(w_i) + lam/2 |w_i - x|^2], p = (.5, .25, .25), solved by hand."""
    got = trace(engine, "fed_clup", H, B, 300, counts=TWICE, every=300, weighted=True, lam=0.5, steps=5, lr=0.25)
    part = [0.5 * np.linalg.inv(h + 0.5 * np.eye(2)) for h in H]
    rest = [np.linalg.solve(h + 0.5 * np.eye(2), b) for h, b in zip(H, B, strict=True)]
    mean = lambda each: sum(p * one for p, one in zip(P, each, strict=True))
    close(got.server[-1], np.linalg.solve(np.eye(2) - mean(part), mean(rest)))
    digits(got.server[-1], 0.240611, 0.900523)
