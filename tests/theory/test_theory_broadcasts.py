"""Every function of the theory takes arrays: each pair of its arguments, against one number at a time."""

import itertools

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory import all_for_all, asymptotics, clup, crossovers, ffgg, finite, printed, self_fl, spectrum

TWO = spectrum.Spectrum.of([0.5, 2.0], [0.5, 0.5], [0.8, 0.2])
CURVED = dict(smoothness=3.0, convexity=0.5)
DATA = dict(rho2=3.0, examples=40.0, total=800.0, radius=0.3)
LIMIT = dict(gamma=2.0, radius=1.2, noise=0.7)
# A function and numbers it takes; of a function with a covariance, also the one with two eigenvalues.
CALLS = [
    (spectrum.zero_root, dict(gamma=2.0)),
    (spectrum.companion, dict(gamma=2.0, lam=0.5)),
    (spectrum.stieltjes, dict(gamma=2.0, lam=0.5)),
    (spectrum.variance_share, dict(gamma=2.0, lam=0.5)),
    (asymptotics.ridgeless, LIMIT),
    (asymptotics.ridge, LIMIT | dict(lam=0.5)),
    (asymptotics.centre, LIMIT | dict(clients=50.0)),
    (asymptotics.best_lam, LIMIT),
    (asymptotics.best_risk, LIMIT),
    (asymptotics.risks, LIMIT | dict(ridge=0.5, norm=1.5)),
    (asymptotics.tuning_pays_below, dict(gamma=2.0, radius=1.2)),
    (printed.ridgeless, LIMIT),
    (printed.ridge, LIMIT | dict(lam=0.5)),
    (finite.fed_avg, LIMIT | dict(clients=50.0)),
    (finite.ftfa, LIMIT | dict(clients=50.0)),
    (finite.rtfa, LIMIT | dict(clients=50.0, lam=0.5)),
    (finite.pfedme, LIMIT | dict(clients=50.0, lam=0.5)),
    (crossovers.tuning_pays_from_gamma, dict(radius=1.2, noise=0.7)),
    (crossovers.tuning_pays_from_radius, dict(gamma=2.0, noise=0.7)),
    (crossovers.best_gamma, dict(radius=1.2, noise=0.7)),
    (crossovers.local_pays_below, dict(gamma=2.0, radius=1.2, norm=1.3)),
    (crossovers.local_pays_from_radius, dict(gamma=2.0, noise=0.7, norm=1.3)),
    (crossovers.ridge_pays_from_noise, dict(gamma=2.0, lam=0.5, radius=1.2)),
    (crossovers.ridge_pays_below_lam, LIMIT),
    (crossovers.worth_of_the_centre, LIMIT),
    (clup.constants, CURVED | dict(lam=0.7)),
    (clup.rate, CURVED | dict(lam=0.7)),
    (clup.simple_rate, CURVED | dict(lam=0.7)),
    (clup.rounds_factor, CURVED | dict(lam=0.7)),
    (clup.rounds_to, CURVED | dict(lam=0.7, eps=1e-6)),
    (clup.gradients_to, CURVED | dict(lam=0.7, eps=1e-6)),
    (clup.steps_suffice, CURVED | dict(lam=0.7, gamma=0.5, lr=0.2, steps=40.0)),
    (clup.statistical_bounds, CURVED | DATA | dict(lam=70.0)),
    (clup.lam_by_corollary, CURVED | DATA),
    (clup.corollary_constants, CURVED | dict(rho2=3.0)),
    (clup.noise_ball, CURVED | dict(lam=0.7, variance=2.0, batch=10.0, clients=5.0)),
    (self_fl.gain_bound, dict(own=1.0, other=0.1, spread=0.5)),
    (self_fl.printed_gain_bound, dict(own=1.0, other=0.1)),
    (self_fl.steps, dict(variance=1.0, pull=10.0, rho=0.1)),
    (self_fl.whole_steps, dict(variance=1.0, pull=10.0, rho=0.1)),
    (all_for_all.continuum, dict(eps=0.1, density=1.0, dimension=1.0, power=2.0, bound=2.0, distance=3.0)),
    (ffgg.gradient_bound, dict(smoothness=2.0, distance=3.0, rounds=100.0, step=0.2)),
    (ffgg.inexact_step, dict(smoothness=2.0)),
    (ffgg.late_step, dict(smoothness=2.0, active=8.0, delay=10.0)),
    (
        ffgg.inner_steps,
        dict(smoothness=2.0, private_smoothness=5.0, private_convexity=0.5, coupling=5.0, growth=1.1, offset=1.2)
        | dict(rounds=1000.0, distance=1.3),
    ),
    (ffgg.byzantine_share, CURVED | dict(similarity=1.5, honest=16.0, growth=1.2, rule=1.1)),
    (ffgg.byzantine_step, dict(smoothness=3.0, similarity=1.5, honest=16.0, share=0.2, growth=1.2, rule=1.1)),
    (ffgg.byzantine_rate, CURVED | dict(step=0.05)),
]
GENERAL = {
    "zero_root",
    "companion",
    "stieltjes",
    "variance_share",
    "ridgeless",
    "ridge",
    "best_risk",
    "risks",
    "fed_avg",
    "ftfa",
    "rtfa",
}
CASES = [pytest.param(f, given, id=f"{f.__module__.split('.')[-1]}.{f.__name__}") for f, given in CALLS]
CASES += [
    pytest.param(f, given | dict(spectrum=TWO), id=f"{f.__module__.split('.')[-1]}.{f.__name__}-two")
    for f, given in CALLS
    if f.__name__ in GENERAL
]
UP = np.array([1.0, 1.1, 1.25])


def leaves(found):
    if isinstance(found, dict):
        found = tuple(found.values())
    return [leaf for part in found for leaf in leaves(part)] if isinstance(found, tuple) else [found]


@pytest.mark.parametrize(("f", "given"), CASES)
def test_arrays_broadcast(f, given):
    numbers = {name: value for name, value in given.items() if isinstance(value, float)}
    pairs = list(itertools.combinations(numbers, 2)) or [(name, None) for name in numbers]
    if f is asymptotics.best_risk and "spectrum" in given:
        pairs = pairs[:1]  # a search each
    for first, second in pairs:
        grid = {first: numbers[first] * UP[:, None]}
        if second:
            grid[second] = numbers[second] * UP[:2]
        shape = (3, 2) if second else (3, 1)
        together = [np.broadcast_to(leaf, shape) for leaf in leaves(f(**(given | grid)))]
        for i, k in np.ndindex(shape):
            one = {name: float(np.broadcast_to(values, shape)[i, k]) for name, values in grid.items()}
            alone = leaves(f(**(given | one)))
            assert all(np.ndim(leaf) == 0 for leaf in alone)
            np.testing.assert_allclose([leaf[i, k] for leaf in together], alone, rtol=1e-9)


# Numbers that no argument of the name can be.
IMPOSSIBLE = dict(
    gamma=1.0, lam=0.0, ridge=-1.0, radius=-1.0, noise=-1.0, norm=-1.0, clients=0.0, smoothness=0.0, convexity=0.0,
    eps=0.0, rho2=-1.0, examples=0.0, total=0.0, variance=-1.0, batch=0.0, own=0.0, other=0.0, spread=-1.0, pull=0.0,
    rho=0.0, density=0.0, dimension=0.0, power=0.0, bound=0.0, distance=-1.0, rounds=0.0, step=0.0, active=0.0,
    delay=0.0, private_smoothness=0.0, private_convexity=0.0, coupling=0.0, growth=0.0, offset=0.0, similarity=0.0,
    honest=1.0, rule=0.0, share=0.5,
)  # fmt: skip


@pytest.mark.parametrize(("f", "given"), [case for case in CASES if "two" not in case.id])
def test_an_impossible_number_is_refused_also_within_an_array(f, given):
    for name in given:
        if f is clup.steps_suffice and name in ("gamma", "lr", "steps"):
            continue  # it answers no
        for bad in (IMPOSSIBLE[name], np.nan, [given[name], IMPOSSIBLE[name]]):
            with pytest.raises(UserError):
                f(**(given | {name: bad}))
