"""What is claimed of partial personalization, judged: which part to keep private, and what each stage is worth."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from apiece.experiment.build import Arena
from apiece.reproduce.ffgg.three_stages import Course, Finished
from apiece.reproduce.verdict import Claim, Mean, effect, mean_of, over_clients_and_seeds, stated

FEDAVG, TUNED = "FedAvg", "FedAvg, all tuned"
PUBLISHED = {  # points above FedAvg
    "images": {"input": "+0.42 (FEMNIST)", "output": "+0.40 (FEMNIST)", "adapter": "+1.08 (FEMNIST)"},
    "text": {"first block": "+0.29 (StackOverflow)", "last block": "+1.10 (StackOverflow)",
             "adapter": "+0.98 (StackOverflow)"},
}  # fmt: skip
BEST = {"images": "adapter", "text": "last block"}
FRESH = ", fresh"  # a private part that starts every round at new random values


class Trained(NamedTuple):
    """A federation, and all that was trained on it."""

    what: str
    place: Arena
    course: Course
    finished: dict[str, Finished]

    @property
    def splits(self) -> list[str]:
        """The splits that go on from what the first stage left."""
        return [name for name in self.finished if name != FEDAVG and not name.endswith(FRESH)]

    @property
    def sizes(self) -> np.ndarray:
        """[clients]: test examples, by which accuracies are weighted."""
        return self.place.sizes("test")[: self.place.population]

    def errors(self, name: str) -> np.ndarray:
        """[seeds, clients]: of the last stage; FedAvg has both, before and after its tuning."""
        return self.finished[FEDAVG].before if name == FEDAVG else self.finished[name.removesuffix(", all tuned")].after

    def accuracy(self, name: str) -> float:
        """Percent of all test examples."""
        return 100 * (1 - float(np.average(self.errors(name).mean(0), weights=self.sizes)))

    def above(self, name: str, other: str) -> Mean:
        """By how many points of accuracy."""
        return self.gain(self.errors(other) - self.errors(name))

    def gain(self, fewer: np.ndarray) -> Mean:
        """Fewer mistakes [seeds, clients] in points, test examples alike."""
        return over_clients_and_seeds(100 * fewer, self.sizes)

    @property
    def chosen(self) -> str:
        """The split with the least validation error."""
        sizes = self.place.sizes("validation")[: self.place.population]
        return min(self.splits, key=lambda name: np.average(self.finished[name].validation.mean(0), weights=sizes))


def claims_of(trained: Trained) -> list[Claim]:
    """Of one federation: differences of accuracy in points, with 95% intervals over clients and seeds."""
    what, splits, published = trained.what, trained.splits, PUBLISHED[trained.what]
    claims = []
    for name in splits:
        printed, source = (published[name], "paper") if name in published else ("above 0", "here")
        gain = trained.above(name, FEDAVG)
        claims.append(effect(f"{what}, {name} private: points above FedAvg", printed, gain, above=0, source=source))
        each = trained.finished[name]
        said = f"{what}, {name} private: points of accuracy that tuning it at the end brings"
        claims.append(effect(said, "above 0", trained.gain(each.before - each.after), above=0, source="here"))
    claims += fresh_claims(trained)
    if not set(published) <= set(splits):
        return claims
    ranked = sorted(splits, key=trained.accuracy, reverse=True)
    best = BEST[what]
    second = next(name for name in ranked if name != best and name in published)
    said = f"{what}: the most accurate split is {best}: points above the best other one that is published"
    claims.append(effect(said, "above 0", trained.above(best, second), above=0))
    gain = trained.above(trained.chosen, TUNED)
    said = f"{what}: the split that validation chooses ({trained.chosen}): points above FedAvg, all tuned"
    claims.append(effect(said, "above 0", gain, above=0, source="here"))
    return [*claims, *diagnosed(trained, ranked), *newcomers(trained)]


def fresh_claims(trained: Trained) -> list[Claim]:
    """Private parts that start every round at new random values, as the listing says; and what inner work is worth."""
    claims = []
    for name in [name for name in trained.finished if name.endswith(FRESH)]:
        what, base = f"{trained.what}, {name.removesuffix(FRESH)} private, fresh every round", name.removesuffix(FRESH)
        each = trained.finished[name]
        works = list(dict.fromkeys(one.work for one in each.tried))
        # What loses while the most work is the best may only have worked too little.
        edge = "" if each.chosen.work.epochs < max(work.epochs for work in works) else "more inner work was not tried"
        gain = trained.above(name, FEDAVG)
        short = edge if gain.value < 0 else ""
        claims.append(effect(f"{what}: points above FedAvg", "above 0", gain, above=0, unfinished=short))
        if base in trained.finished:
            said = f"{what}: points below one that starts where the first stage ended"
            claims.append(effect(said, "above 0", trained.above(base, name), above=0, source="here", unfinished=edge))
        if len(works) > 1:
            errors = lambda count, tried=each.tried: min(
                (one.errors for one in tried if one.work.epochs == count), key=np.mean
            )
            few, many = (end(work.epochs for work in works) for end in (min, max))
            more = mean_of(100 * (errors(few) - errors(many)))
            said = f"{what}: validation points that {epochs(many)} gain over {epochs(few)} (over clients)"
            claims.append(effect(said, "above 0", more, above=0, source="here"))
    return claims


def epochs(count: float) -> str:
    """In words.

    >>> epochs(1.0), epochs(20.0)
    ('1 epoch of inner work', '20 epochs of inner work')
    """
    return f"{count:.0f} epoch{'s' if count != 1 else ''} of inner work"


def diagnosed(trained: Trained, ranked: list[str]) -> list[Claim]:
    """Whether what a split leaves of the shared gradient foretells its accuracy."""
    left = {name: trained.finished[name].diagnosis for name in ranked}
    if not all(left.values()):
        return []
    order = sorted(ranked, key=lambda name: left[name].left)  # type: ignore[union-attr]
    said = f"{trained.what}: the less of the shared gradient a split leaves, the more accurate it is"
    gaps = [trained.above(a, b) for a, b in pairwise(ranked)]
    unclear = "" if all(gap.interval[0] > 0 for gap in gaps) else "accuracies are not told apart"
    words = lambda names: " > ".join(names)
    return [stated(said, words(ranked), words(order), order == ranked, source="here", because=unclear)]


def newcomers(trained: Trained) -> list[Claim]:
    """New clients of the split that validation chooses: with few examples, and with many."""
    claims = []
    counts, new = trained.course.newcomers, trained.place.new
    sizes = trained.place.sizes("test")[new]
    for most in counts:
        mine, shared = trained.finished[trained.chosen].newcomers[most], trained.finished[FEDAVG].newcomers[0]
        gain = over_clients_and_seeds(100 * (shared - mine)[:, sizes > 0], sizes[sizes > 0])
        said = f"{trained.what}, new clients with {most} examples: chosen split above FedAvg, points"
        claims.append(effect(said, "above 0", gain, above=0, source="here"))
    return claims
