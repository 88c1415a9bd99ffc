"""What is claimed of partial personalization, judged: which part to keep private, and what each stage is worth."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from apiece.experiment import contest
from apiece.experiment.build import Arena
from apiece.experiment.contest import Result
from apiece.reproduce.ffgg.three_stages import Course, Finished, Variant
from apiece.reproduce.verdict import Claim, Mean, effect, mean_of, stated

SPLITS = {"input": Variant("input"), "output": Variant("output"), "adapter": Variant("adapter")}
AFRESH = "output, from random"
FEDAVG, TUNED = "FedAvg", "FedAvg, all tuned"
PUBLISHED = {
    "images": {"input": "+0.42 (FEMNIST)", "output": "+0.40 (FEMNIST)", "adapter": "+1.08 (FEMNIST)"},
    "text": {"input": "+0.29 (StackOverflow)", "output": "+1.10 (StackOverflow)", "adapter": "+0.98 (StackOverflow)"},
}
BEST = {"images": "adapter", "text": "output"}


class Trained(NamedTuple):
    """A federation, and all that was trained on it."""

    what: str
    place: Arena
    course: Course
    finished: dict[str, Finished]
    local: dict[str, Result]

    @property
    def results(self) -> dict[str, Result]:
        """By name, the last stage of each; FedAvg both ways."""
        first = {FEDAVG: self.finished[FEDAVG].before, TUNED: self.finished[FEDAVG].after}
        return self.local | first | {name: each.after for name, each in self.finished.items() if name != FEDAVG}

    @property
    def splits(self) -> list[str]:
        """The splits that ran."""
        return [name for name in SPLITS if name in self.finished]

    def accuracy(self, result: Result) -> np.ndarray:
        """[seeds]: percent of all test examples."""
        return 100 * (1 - contest.errors(self.place, result))

    @property
    def chosen(self) -> str:
        """The split with the least validation error."""
        return min(self.splits, key=lambda name: contest.errors(self.place, self.results[name], "validation").mean())

    def above(self, name: str, other: str) -> Mean:
        """By how many points of accuracy, paired by seed."""
        return mean_of(self.accuracy(self.results[name]) - self.accuracy(self.results[other]))


def claims_of(trained: Trained) -> list[Claim]:
    """Of one federation: differences of accuracy in points, with 95% intervals over seeds."""
    what, splits = trained.what, trained.splits
    claims = []
    for name in splits:
        gain = trained.above(name, FEDAVG)
        claims.append(effect(f"{what}, {name} private: points above FedAvg", PUBLISHED[what][name], gain, above=0))
        before, after = (trained.accuracy(result) for result in trained.finished[name][:2])
        said = f"{what}, {name} private: points of accuracy that tuning it at the end brings"
        claims.append(effect(said, "above 0", mean_of(after - before), above=0, source="here"))
    if len(splits) < len(SPLITS):
        return claims
    ranked = sorted(splits, key=lambda name: -trained.above(name, FEDAVG).value)
    best = BEST[what]
    lead = trained.above(best, next(name for name in ranked if name != best))
    said = f"{what}: the most accurate split is {best}: points above the best of the others"
    claims.append(effect(said, "above 0", lead, above=0))
    gain = trained.above(trained.chosen, TUNED)
    said = f"{what}: the split that validation chooses ({trained.chosen}): points above FedAvg, all tuned"
    claims.append(effect(said, "above 0", gain, above=0, source="here"))
    order = lambda names: " > ".join(names)
    left = sorted(splits, key=lambda name: left_over(trained.finished[name]))
    said = f"{what}: the less of the shared gradient a split leaves, the more accurate it is"
    apart = all(abs(gap.value) > gap.seen for gap in (trained.above(a, b) for a, b in pairwise(ranked)))
    unclear = "" if apart else "accuracies are not told apart"
    claims.append(stated(said, order(ranked), order(left), left == ranked, source="here", because=unclear))
    return [*claims, *newcomers(trained), *afresh(trained)]


def left_over(finished: Finished) -> float:
    """The split diagnostic in one number: the median client's share of the shared part's gradient left by tuning."""
    assert finished.diagnosis is not None  # FedAvg alone has none
    return float(np.nanmedian(finished.diagnosis.ratio))


def newcomers(trained: Trained) -> list[Claim]:
    """New clients of the split that validation chooses: with few examples, and with many."""
    claims = []
    counts = trained.course.newcomers
    for most in (counts[0], counts[-1]):
        mine, shared = (np.array(trained.results[name].newcomers[most]) for name in (trained.chosen, FEDAVG))
        gain = mean_of(100 * (shared - mine))
        said = f"{trained.what}, new clients with {most} examples: chosen split above FedAvg, points"
        claims.append(effect(said, "above 0", gain, above=0, source="here"))
    return claims


def afresh(trained: Trained) -> list[Claim]:
    """The other reading of "re-initialised"."""
    if AFRESH not in trained.results:
        return []
    loss = trained.above("output", AFRESH)
    said = f"{trained.what}: output layers that start at random each round are worse; points below those that do not"
    return [effect(said, "above 0", loss, above=0, source="here")]
