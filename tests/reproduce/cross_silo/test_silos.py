"""Cross-silo contests: splits share compiled programs, intervals know that splits share rows, hurt is told by split."""

from dataclasses import replace

import numpy as np
import pytest

from apiece.data import digits
from apiece.data.splits import SPLITS
from apiece.experiment import contest
from apiece.experiment.spec_tables import TrainSpec
from apiece.methods import CATALOG
from apiece.reproduce.cross_silo import hospitals
from apiece.reproduce.cross_silo.rivals import IMPERSONAL, RIDGE, SHOWN, Sizes, rivals
from apiece.reproduce.cross_silo.silos import compete
from apiece.reproduce.verdict import over_splits

PLAN = TrainSpec(rounds=3, evaluate_every=3)
COUNTS = (1, 5)
RIVALS = {name: rivals(Sizes((0.02, 0.2), (0.5,), 0.05))[name] for name in ("local", "fed_avg")}


def dealt(seed):
    """Ten clients, two of them new; another split has the same sizes and other rows."""
    federation = digits(clients=10).hold_out_clients(0.2)
    turned = lambda split: replace(split, x=np.roll(split.x, seed, axis=1))
    return replace(federation, **{part: turned(getattr(federation, part)) for part in SPLITS})


@pytest.fixture(scope="module")
def silos():
    return compete("clients", dealt, RIVALS, PLAN, 2, COUNTS, lambda what: None)


def test_a_split_on_borrowed_programs_is_the_same_as_on_programs_of_its_own(silos):
    again = contest.contest(silos.places[1], RIVALS, PLAN, (1,), newcomers=COUNTS)
    for name, result in again.items():
        mine = silos.results[1][name]
        assert mine.options == result.options and mine.newcomers == result.newcomers
        np.testing.assert_array_equal(mine.outcomes[1].arrays["test_error"], result.outcomes[1].arrays["test_error"])


def test_what_is_told_of_silos_fits_together(silos):
    for name in RIVALS:
        every = silos.points(name, each_client=True)
        sizes = np.diff(silos.places[0].splits["test"][2])[: silos.places[0].population]
        np.testing.assert_allclose((every * sizes).sum(1) / sizes.sum(), silos.points(name), rtol=1e-5)
        assert silos.newcomers(name).shape == (2, len(COUNTS))
    assert silos.proved("fed_avg") in range(silos.places[0].population + 1)
    assert 0 <= silos.validation("fed_avg") <= 1


def test_intervals_over_splits_are_wider_than_over_independent_repetitions():
    samples = np.random.default_rng(0).normal(size=10)
    wide = np.diff(over_splits(samples).interval)[0]
    assert wide == pytest.approx(2 * 2.262157 * samples.std(ddof=1) * (1 / 10 + 0.25) ** 0.5, rel=1e-5)


def test_the_rivals_are_methods_of_the_catalog_with_options_that_they_have():
    entered = rivals(Sizes((0.1,), (1.0,), 0.05))
    assert {*IMPERSONAL, *RIDGE, *SHOWN} < set(entered) and len(entered) == 19
    for name, rival in entered.items():
        assert rival.method == name
        CATALOG.check(rival.method, {**rival.options, **rival.points[0]})


@pytest.mark.parametrize(("points", "holds"), [([1.0, 1.1, 0.9], True), ([1.0, -2.0, 1.5], False)])
def test_a_claim_holds_when_its_interval_is_above_nothing(points, holds):
    claim = hospitals.above("a beats b", np.array(points))
    assert claim.verdict == ("holds" if holds else "undecided") and claim.source == "here"
    assert hospitals.nobody("hurt", 1).holds is False and hospitals.nobody("hurt", 0).holds is True
