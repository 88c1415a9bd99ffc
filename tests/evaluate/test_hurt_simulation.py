"""Hurt where the truth is known: 60 clients, paired 0/1 errors, the two methods disagree on 18 % of the examples.

The reference numbers are means of 60 runs of an earlier, independent program, rounded to two digits. Ours are means of
RUNS (for the NPMLE column NPMLE_RUNS) runs. With s the standard deviation between our runs, the two differ by more
than .005 + 3 s sqrt(1/60 + 1/RUNS) (rounding, and three standard errors of the difference) once in 370 by chance.
"""

import numpy as np
import pytest
from scipy import stats

from apiece.evaluate import hurt
from apiece.evaluate.empirical_bayes import fit_normal, mean_variance, posterior
from apiece.evaluate.hurt import moderated_p_values
from apiece.evaluate.npmle import fit_grid, grid_likelihood, posterior_on_grid
from apiece.evaluate.ties import chance_above_zero, sign_p_values

CLIENTS, DISAGREE, DELTA, RUNS, NPMLE_RUNS = 60, 0.18, 1.0, 150, 60

TRUTHS = {
    "identical methods": lambda rng: np.zeros(CLIENTS),
    "all better by 5": lambda rng: np.full(CLIENTS, -5.0),
    "10 % hurt by 12, others gain 8": lambda rng: np.where(rng.random(CLIENTS) < 0.1, 12.0, -8.0),
    "N(-3, 4^2)": lambda rng: np.clip(rng.normal(-3, 4, CLIENTS), -18, 18),
    "half tie, half gain 10": lambda rng: np.where(rng.random(CLIENTS) < 0.5, 0.0, -10.0),
}
COLUMNS = ("true", "naive", "proved", "normal", "npmle")
REFERENCE = {
    ("identical methods", 20): (0, 0.40, 0, 0.34, 0.29),
    ("identical methods", 80): (0, 0.45, 0, 0.21, 0.19),
    ("identical methods", 300): (0, 0.49, 0, 0.09, 0.06),
    ("all better by 5", 20): (0, 0.21, 0, 0.03, 0.02),
    ("all better by 5", 80): (0, 0.11, 0, 0.00, 0.01),
    ("all better by 5", 300): (0, 0.02, 0, 0.00, 0.00),
    ("10 % hurt by 12, others gain 8", 20): (0.10, 0.19, 0.00, 0.11, 0.09),
    ("10 % hurt by 12, others gain 8", 80): (0.10, 0.12, 0.04, 0.12, 0.10),
    ("10 % hurt by 12, others gain 8", 300): (0.09, 0.09, 0.09, 0.09, 0.09),
    ("N(-3, 4^2)", 20): (0.16, 0.29, 0, 0.13, 0.08),
    ("N(-3, 4^2)", 80): (0.16, 0.28, 0, 0.16, 0.15),
    ("N(-3, 4^2)", 300): (0.15, 0.25, 0.02, 0.15, 0.15),
    ("half tie, half gain 10", 20): (0, 0.25, 0, 0.13, 0.09),
    ("half tie, half gain 10", 80): (0, 0.22, 0, 0.11, 0.14),
    ("half tie, half gain 10", 300): (0, 0.23, 0, 0.13, 0.04),
}
# The one cell that does not come out: see test_the_reference_proves_against_a_margin_of_zero.
AT_MARGIN_ZERO = ("N(-3, 4^2)", 300, "proved")


def draw(rng, points, examples, disagree=DISAGREE):
    """Paired differences [clients * examples] whose expectation is `points` / 100."""
    u, worse = rng.random((points.size, examples)), (disagree + points[:, None] / 100) / 2
    return np.where(u < worse, 1.0, np.where(u < disagree, -1.0, 0.0)).ravel()


def even(clients, examples):
    return np.arange(0, clients * examples + 1, examples)


def observe(difference, examples):
    """t and v in points, for clients of one size."""
    offsets = even(difference.size // examples, examples)
    return 100 * difference.reshape(-1, examples).mean(axis=1), 1e4 * mean_variance(difference, offsets)


def run(rng, truth, examples, with_npmle):
    points = TRUTHS[truth](rng)
    difference = draw(rng, points, examples)
    t, v = observe(difference, examples)
    p = np.maximum(moderated_p_values(t, v, examples, DELTA), sign_p_values(difference, even(CLIENTS, examples)))
    mean, variance = posterior(t, v, fit_normal(t, v))
    npmle = np.nan
    if with_npmle:
        grid, likelihood = grid_likelihood(t, v)
        npmle = posterior_on_grid(likelihood, fit_grid(likelihood))[:, grid > DELTA].sum() / CLIENTS
    proved = stats.false_discovery_control(p) <= 0.05
    return (
        np.mean(points > DELTA), np.mean(t > 0), proved.mean(),
        stats.norm.sf((DELTA - mean) / np.sqrt(variance)).mean(), npmle,
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("truth", "examples"), REFERENCE)
def test_the_table_comes_out_within_sampling_error(truth, examples):
    rng = np.random.default_rng([list(TRUTHS).index(truth), examples])
    ours = np.array([run(rng, truth, examples, with_npmle=r < NPMLE_RUNS) for r in range(RUNS)])
    for name, column, wanted in zip(COLUMNS, ours.T, REFERENCE[truth, examples], strict=True):
        column = column[~np.isnan(column)]
        tolerance = 0.005 + 3 * column.std() * np.sqrt(1 / 60 + 1 / column.size)
        difference = abs(column.mean() - wanted)
        if (truth, examples, name) == AT_MARGIN_ZERO:
            assert difference > tolerance
            continue
        assert difference <= tolerance, f"{name}: {column.mean():.3f}, not {wanted} +- {tolerance:.3f}"


def test_the_reference_proves_against_a_margin_of_zero():
    """For N(-3, 4^2), 300 examples, the reference proves .02 hurt; tested against delta = 1 as defined it is .007.

    A normal statistic against Delta <= 0 gives .015, which is the reference within its error; also its .04 for "10 %
    hurt", 80 examples, is nearer to that test's .045 than to .033 (delta = 1, normal) or .028 (ours). So that column
    was most likely made without the margin. Ours keeps it: it is what "hurt" means.
    """
    rng = np.random.default_rng(0)
    margin_zero, margin_one = [], []
    for _ in range(300):
        t, v = observe(draw(rng, TRUTHS["N(-3, 4^2)"](rng), 300), 300)
        for delta, shares in ((0.0, margin_zero), (1.0, margin_one)):
            p = stats.norm.sf((t - delta) / np.sqrt(v))
            shares.append(np.mean(stats.false_discovery_control(p) <= 0.05))
    three_errors = 3 * np.std(margin_zero) / np.sqrt(60)
    assert abs(np.mean(margin_zero) - 0.02) < 0.005 + three_errors
    assert np.mean(margin_one) < 0.01


def test_hurt_is_made_of_the_parts_simulated_here():
    for truth in TRUTHS:
        seed = [7, list(TRUTHS).index(truth)]
        _, naive, proved, normal, npmle = run(np.random.default_rng(seed), truth, 80, with_npmle=True)
        rng = np.random.default_rng(seed)
        difference = draw(rng, TRUTHS[truth](rng), 80)
        found = hurt(difference > 0, difference < 0, even(CLIENTS, 80), resamples=2)
        assert (found.naive, found.hurt_proved) == (naive, proved)
        assert found.hurt_expected == pytest.approx({"normal": normal, "npmle": npmle}[found.prior], abs=1e-9)


@pytest.mark.parametrize("examples", [20, 80, 300])
def test_the_share_under_ties_foretells_the_naive_share_of_identical_methods(examples):
    rng = np.random.default_rng(examples)
    difference = draw(rng, np.zeros(100 * CLIENTS), examples)
    expected = chance_above_zero(difference, even(100 * CLIENTS, examples)).mean()
    naive = np.mean(difference.reshape(-1, examples).sum(axis=1) > 0)
    assert abs(naive - expected) < 3 * 0.5 / np.sqrt(100 * CLIENTS)
    assert 0.39 < expected < 0.49


def accusing_runs(rng, clients, sizes, runs, sample):
    """In how many runs of identical methods somebody is accused: by hurt's p-value, and by the t statistic alone."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ours = alone = 0
    for _ in range(runs):
        difference = sample(rng, offsets[-1])
        t = 100 * np.add.reduceat(difference, offsets[:-1]) / sizes
        p = moderated_p_values(t, 1e4 * mean_variance(difference, offsets), sizes, DELTA)
        ours += np.any(stats.false_discovery_control(np.maximum(p, sign_p_values(difference, offsets))) <= 0.05)
        alone += np.any(stats.false_discovery_control(p) <= 0.05)
    return ours, alone


def signs(disagree):
    return lambda rng, rows: draw(rng, np.zeros(1), rows, disagree)


@pytest.mark.parametrize("disagree", [0.03, 0.18, 0.4])
@pytest.mark.parametrize("clients", [60, 1000])
def test_identical_methods_with_few_examples_are_never_accused(clients, disagree):
    """The sign test holds 5 % for any sizes; with up to 20 examples its steps are so coarse that it is 0 or nearly."""
    rng = np.random.default_rng([clients, int(100 * disagree)])
    for sizes in (3, 5, 10, 20, None):
        sizes = rng.integers(1, 21, clients) if sizes is None else np.full(clients, sizes)
        ours, _ = accusing_runs(rng, clients, sizes, 60, signs(disagree))
        assert ours <= (1 if disagree == 0.4 else 0)


def test_a_t_statistic_alone_would_accuse_falsely():
    ours, alone = accusing_runs(np.random.default_rng(0), 1000, np.full(1000, 3), 60, signs(0.03))
    assert ours == 0 and alone > 6


def test_equally_good_regressions_with_heavy_tails_are_rarely_accused():
    """Symmetric differences of any law: the promise is 5 % of the runs; the bound keeps well below."""
    for examples in (3, 10, 50):
        rng = np.random.default_rng(examples)
        ours, _ = accusing_runs(
            rng, 200, np.full(200, examples), 60, lambda rng, rows: rng.chisquare(1, rows) - rng.chisquare(1, rows)
        )
        assert ours <= 3


def test_at_ties_with_few_examples_the_interval_admits_its_doubt():
    difference = draw(np.random.default_rng(3), np.zeros(CLIENTS), 20)
    found = hurt(difference > 0, difference < 0, even(CLIENTS, 20))
    assert found.hurt_expected_low < 0.1 and found.hurt_expected_high > 0.3
