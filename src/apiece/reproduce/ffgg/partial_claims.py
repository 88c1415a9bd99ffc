"""What is claimed of partial personalization, judged: which part to keep private, and what each stage is worth."""

from typing import NamedTuple

import numpy as np

from apiece.experiment import contest
from apiece.experiment.build import Arena
from apiece.experiment.contest import Result
from apiece.reproduce.ffgg.three_stages import Course, Finished, Variant
from apiece.reproduce.verdict import Claim, Mean, mean_of, stated

SPLITS = {"input": Variant("input"), "output": Variant("output"), "adapter": Variant("adapter")}
AFRESH = "output, from random"
FEDAVG, TUNED = "FedAvg", "FedAvg, all tuned"
PUBLISHED = {
    "images": {"input": "+0.42 (FEMNIST)", "output": "+0.40 (FEMNIST)", "adapter": "+1.08 (FEMNIST)"},
    "text": {"input": "+0.29 (StackOverflow)", "output": "+1.10 (StackOverflow)", "adapter": "+0.98 (StackOverflow)"},
}
ABOUT = 1.0  # points of accuracy within which two methods are about equal
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
    """Of one federation. "Above": the 95% interval over seeds lies above 0. "At least": no more than `ABOUT` below."""
    what, splits = trained.what, trained.splits
    claims = []
    for name in splits:
        gain = trained.above(name, FEDAVG)
        said = f"{what}, {name} private: at least FedAvg's accuracy, to a point; points above it"
        claims.append(stated(said, PUBLISHED[what][name], gain, gain.value >= -ABOUT))
        before, after = (trained.accuracy(result) for result in trained.finished[name][:2])
        tuning = mean_of(after - before)
        said = f"{what}, {name} private: tuning it at the end loses nothing, to a point; points of accuracy it brings"
        claims.append(stated(said, "not below 0", tuning, tuning.value >= -ABOUT, source="here"))
    if len(splits) < len(SPLITS):
        return claims
    for name in splits:
        gain = trained.above(name, FEDAVG)
        said = f"{what}, {name} private: above FedAvg (95% interval over seeds)"
        claims.append(stated(said, PUBLISHED[what][name], gain, gain.interval[0] > 0))
    ranked = sorted(splits, key=lambda name: -trained.above(name, FEDAVG).value)
    lead = mean_of(trained.accuracy(trained.results[ranked[0]]) - trained.accuracy(trained.results[ranked[1]]))
    order = lambda names: " > ".join(names)
    said = f"{what}: the most accurate split"
    claims.append(stated(said, BEST[what], order(ranked), ranked[0] == BEST[what], lead.interval))
    gain = trained.above(trained.chosen, TUNED)
    said = f"{what}: the split that validation chooses ({trained.chosen}) is at least as accurate as FedAvg, all tuned"
    claims.append(stated(f"{said}, to a point; points above it", ">= 0", gain, gain.value >= -ABOUT, source="here"))
    left = sorted(splits, key=lambda name: left_over(trained.finished[name]))
    said = f"{what}: the less of the shared gradient a split leaves, the more accurate it is"
    claims.append(stated(said, order(ranked), order(left), left == ranked, source="here"))
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
        said = f"{trained.what}, new clients with {most} examples: chosen split at least FedAvg, to a point; points"
        claims.append(stated(said, ">= 0", gain, gain.value >= -ABOUT, source="here"))
    return claims


def afresh(trained: Trained) -> list[Claim]:
    """The other reading of "re-initialised"."""
    if AFRESH not in trained.results:
        return []
    loss = trained.above("output", AFRESH)
    said = f"{trained.what}: output layers that start at random each round are worse; points below those that do not"
    return [stated(said, "> 0", loss, loss.interval[0] > 0, source="here")]
