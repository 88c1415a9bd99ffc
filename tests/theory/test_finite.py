"""Finitely many clients: first-order terms against a simulation, and their limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.theory import finite
from apiece.theory.asymptotics import IDENTITY, Spectrum, centre, ridge, ridgeless, risks, stieltjes
from apiece.theory.spectrum import variance_share


@pytest.mark.parametrize(
    ("gamma", "clients", "r", "sigma", "risk"),
    [(2.0, 200, 1.0, 1.0, 1.015), (2.0, 40, 1.0, 1.0, 1.0750), (4.0, 60, 1.5, 1.0, 2.429)],
)
def test_finitely_many_clients_know_the_centre_less_well(gamma, clients, r, sigma, risk):
    assert centre(gamma, r, sigma, clients).total == pytest.approx(risk, abs=5e-4)
    assert centre(gamma, r, sigma, 1e12).total == pytest.approx(r**2)


def simulated(gamma, d, clients, r, sigma, lam, repeats, spectrum=IDENTITY):
    """clients times what estimating the centre costs, and its standard error: FedAvg, FTFA, RTFA, pFedMe.

    The true centre is zero, and what tuning from there on the same data gives is taken off.
    """
    n, rng, seen = int(d / gamma), np.random.default_rng(0), []
    parts = len(spectrum.values)  # of equal weight
    scale = np.sqrt(np.repeat(spectrum.values, d // parts))
    for _ in range(repeats):
        x = rng.standard_normal((clients, n, d)) * scale
        theta = rng.standard_normal((clients, parts, d // parts))
        theta *= r * np.sqrt(spectrum.along[:, None]) / np.linalg.norm(theta, axis=2, keepdims=True)
        theta = theta.reshape(clients, d)
        y = (x @ theta[..., None])[..., 0] + sigma * rng.standard_normal((clients, n))
        xt = np.swapaxes(x, 1, 2)
        kernel = x @ xt
        exact, damped = np.linalg.inv(kernel), np.linalg.inv(kernel + n * lam * np.eye(n))
        flat = x.reshape(-1, d)
        pooled = np.linalg.solve(flat.T @ flat, flat.T @ y.ravel())
        left = damped @ x
        moreau = np.linalg.solve(flat.T @ left.reshape(-1, d), left.reshape(-1, d).T @ y.ravel())
        tuned = lambda start, inverse, x=x, xt=xt, y=y: start + (xt @ (inverse @ (y - x @ start)[..., None]))[..., 0]
        error = lambda w, theta=theta: np.mean(np.sum((scale * (w - theta)) ** 2, axis=-1))
        zero, base = np.zeros(d), error(np.zeros(d))
        short, shrunk = error(tuned(zero, exact)), error(tuned(zero, damped))
        seen.append((error(pooled) - base, error(tuned(pooled, exact)) - short,
                     error(tuned(pooled, damped)) - shrunk, error(tuned(moreau, damped)) - shrunk))  # fmt: skip
    return clients * np.mean(seen, axis=0), clients * np.std(seen, axis=0) / np.sqrt(repeats)


@pytest.mark.parametrize("case", [(2.0, 1.0, 1.0, 2.0), (1.5, 1.0, 0.8, 3.0)])
def test_a_simulation_agrees(case):
    gamma, r, sigma, lam = case
    mean, error = simulated(gamma, 40, 100, r, sigma, lam, 20)
    terms = [
        finite.fed_avg(gamma, r, sigma, 1),
        finite.ftfa(gamma, r, sigma, 1),
        finite.rtfa(gamma, lam, r, sigma, 1),
        finite.pfedme(gamma, lam, r, sigma, 1),
    ]
    wanted = np.array([term.total for term in terms])
    assert (np.abs(mean - wanted) < 3 * error + gamma / 100 * wanted).all()
    assert (error < 0.12 * wanted).all()  # else anything would agree


@pytest.mark.parametrize(
    ("gamma", "values", "along", "sigma", "lam"),
    [(2.0, [0.5, 2.0], [0.5, 0.5], 0.7, 0.3), (2.0, [0.3, 3.0], [0.7, 0.3], 1.0, 1.0)],
)
def test_a_simulation_agrees_for_other_covariances(gamma, values, along, sigma, lam):
    spectrum = Spectrum.of(values, [0.5, 0.5], along)
    mean, error = simulated(gamma, 40, 100, 1.0, sigma, lam, 30, spectrum)
    terms = [
        finite.fed_avg(gamma, 1.0, sigma, 1, spectrum),
        finite.ftfa(gamma, 1.0, sigma, 1, spectrum),
        finite.rtfa(gamma, lam, 1.0, sigma, 1, spectrum),
    ]
    wanted = np.array([term.total for term in terms])
    allowed = 3 * error[:3] + gamma / 100 * (terms[0].total + 2 * np.sum(spectrum.along * spectrum.values))
    assert (np.abs(mean[:3] - wanted) < allowed).all()
    assert (allowed < 0.4 * wanted).all()  # else anything would agree


TWO, THREE = Spectrum.of([0.5, 2.0], [0.5, 0.5]), Spectrum.of([0.2, 1.0, 3.0], [0.3, 0.4, 0.3])
# covariance, clients, gamma, r, sigma, lam; simulated FedAvg, FTFA, RTFA, pFedMe at d = 400 (200 clients), 800 (120)
LARGER = [
    (IDENTITY, 200, 2, 1, 1, 2, (1.0145, 1.514, 0.8016, 0.7999)),
    (IDENTITY, 200, 4, 1.5, 1, 0.5, (2.311, 2.082, 1.988, 1.983)),
    (IDENTITY, 120, 2, 1, 1, 2, (1.025, 1.512, 0.809, 0.805)),
    (IDENTITY, 120, 4, 1.5, 1, 0.5, (2.336, 2.106, 2.018, 2.011)),
    (TWO, 200, 2, 1, 0.7, 0.3, (1.266, 1.132, 0.854, np.nan)),
    (TWO, 120, 2, 1, 0.7, 0.3, (1.267, 1.127, 0.854, np.nan)),
    (THREE, 200, 2, 1, 0.7, 0.3, (1.378, 1.209, 0.845, np.nan)),
    (THREE, 120, 2, 1, 0.7, 0.3, (1.380, 1.203, 0.849, np.nan)),
]


@pytest.mark.parametrize("row", LARGER)
def test_larger_simulations_agree_to_about_a_percent(row):
    spectrum, clients, gamma, r, sigma, lam, seen = row
    found = risks(gamma, lam, r, sigma, 2.0, spectrum, clients=clients)
    totals = [found[name].total for name in ("fed_avg", "ftfa", "rtfa", "pfedme")]
    np.testing.assert_allclose(totals, seen, rtol=1.2e-2)
    endless = [risk.total for risk in risks(gamma, lam, r, sigma, 2.0, spectrum).values()]
    assert endless[2] < 0.98 * seen[2]  # without the correction RTFA is two percent and more too good


@given(st.floats(1.05, 20.0), st.floats(0.05, 5.0), st.floats(0.05, 5.0))
def test_ridge_tuning_lies_between_fine_tuning_and_the_centre(gamma, r, sigma):
    tiny, huge = 1e-7 * (gamma - 1) ** 2, 1e6
    for spectrum in (IDENTITY, Spectrum.of([0.5, 2.0], [0.5, 0.5], [0.8, 0.2])):
        none, all_ = finite.ftfa(gamma, r, sigma, 1, spectrum), finite.fed_avg(gamma, r, sigma, 1, spectrum)
        few = dict(rtol=1e-3, atol=1e-3 * r**2)
        np.testing.assert_allclose(finite.rtfa(gamma, tiny, r, sigma, 1, spectrum), none, **few)
        np.testing.assert_allclose(finite.rtfa(gamma, huge, r, sigma, 1, spectrum), all_, **few)
    for lam in (tiny, huge):
        np.testing.assert_allclose(finite.pfedme(gamma, lam, r, sigma, 1), finite.fed_avg(gamma, r, sigma, 1), **few)


@given(st.floats(1.05, 20.0), st.floats(0.05, 5.0), st.floats(0.05, 5.0), st.floats(0.05, 5.0))
def test_the_general_terms_are_the_short_ones_for_the_identity(gamma, lam, r, sigma):
    b, m1 = lam**2 * stieltjes(gamma, lam).slope, variance_share(gamma, lam)
    noisy = r**2 * (gamma + 1) + sigma**2 * gamma
    short = b * noisy + 2 * lam * m1 * (sigma**2 * gamma - lam * r**2)
    for spectrum in (IDENTITY, Spectrum.of([1.0, 1.0], [0.3, 0.7])):
        assert finite.rtfa(gamma, lam, r, sigma, 1, spectrum).total == pytest.approx(short, rel=1e-9)
        assert finite.ftfa(gamma, r, sigma, 1, spectrum).total == pytest.approx((1 - 1 / gamma) * noisy, rel=1e-9)


def test_infinitely_many_clients_add_nothing_and_training_alone_knows_no_others():
    endless, few = risks(2.0, None, 1.0, 0.5, 2.0), risks(2.0, None, 1.0, 0.5, 2.0, clients=50)
    assert endless["fed_avg"] == centre(2.0, 1.0, 0.5) and endless["ftfa"] == ridgeless(2.0, 1.0, 0.5)
    assert endless["rtfa"] == ridge(2.0, 0.5, 1.0, 0.5)
    for name, risk in few.items():
        assert risk == endless[name] if name.startswith("local") else risk.total > endless[name].total
