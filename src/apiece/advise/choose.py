"""From held-out scores to a choice: the point of the path, the ridge, how many groups, and one of them or a stack.

The choice is pooled over clients: a client that chooses alone on its few held-out examples mostly follows luck.
"""

from typing import NamedTuple

import numpy as np

from apiece.advise import stacking
from apiece.advise.keep import Kept
from apiece.advise.stacking import client_means, paired
from apiece.advise.weigh import HeldOut, Told
from apiece.evaluate.empirical_bayes import fit_normal, posterior

# Standard errors by which a stack must beat the best single candidate, and by which personal models must beat the
# shared one where nothing else tells clients apart: a weak pull to one's own that is not needed costs little.
SURE_OF_STACK, SURE_OF_OWN = 0.25, 0.5
WORTH_STACK = 0.001  # of loss: what a mixture must gain at all, to be worth its predictions
WORTH_GROUPS = 0.1  # a weight of group models in a stack, below which they are left out


class Picked(NamedTuple):
    """The best of each kind of candidate: `kinds` are those of the stack, `at` where each stands among all."""

    kinds: list[str]
    at: list[int]
    scores: np.ndarray  # of all candidates
    path: int  # the point of the path
    nearer: int | None  # the next more local one
    ridge: int
    groups: int | None  # how many


class Choice(NamedTuple):
    """What was chosen."""

    kinds: list[str]
    at: list[int]
    scores: np.ndarray
    path: int
    nearer: int | None
    ridge: int
    groups: int | None
    single: str
    named: str  # a candidate's kind, or "stack"
    weights: np.ndarray  # pooled, of `kinds`
    kappa: float
    better: float  # by how much the stack beats the single, in loss; and its standard error
    doubt: float
    alone: np.ndarray  # clients that are better off alone, by a posterior mean

    def weight_of(self, kind: str) -> float:
        """The pooled weight of a kind of candidate in what was named."""
        if self.named != "stack":
            return float(kind == self.named)
        return float(self.weights[self.kinds.index(kind)]) if kind in self.kinds else 0.0

    def predictor(self, name: str) -> int:
        """Which predictor of `Told` a kind is, "stack", or what was named ("advised")."""
        name = self.named if name == "advised" else name
        return stacking.mixture_of(self.kappa) if name == "stack" else self.kinds.index(name)


def pick_candidates(scores: np.ndarray, names: list[str]) -> Picked:
    """The best of each kind, by pooled scores; `names` as `candidate_names` has them."""
    find = lambda word: [at for at, name in enumerate(names) if word in name.split()]
    path, local, groups = find("path"), find("local"), find("groups")
    best_path = path[int(np.argmin(scores[path]))]
    nearer = best_path + 1 if best_path + 1 in path else None
    best_local = local[int(np.argmin(scores[local]))]
    chosen = {"shared": names.index("shared"), "path": best_path}
    chosen |= {"nearer": nearer} if nearer is not None else {}
    chosen["local"] = best_local
    if groups:
        chosen["groups"] = groups[int(np.argmin(scores[groups]))]
    count = int(names[chosen["groups"]].split()[0]) if groups else None
    return Picked(list(chosen), list(chosen.values()), scores, path.index(best_path),
                  None if nearer is None else path.index(nearer), local.index(best_local), count)  # fmt: skip


def settle_weights(picked: Picked, both: np.ndarray) -> np.ndarray:
    """The pooled weights, of the two that EM gave: with group models if they are worth several more of them."""
    return both[1] if "groups" in picked.kinds and both[0, -1] < WORTH_GROUPS else both[0]


def weigh_candidates(
    held: HeldOut, first: Told, picked: Picked, kept: Kept, classes: int, outputs: int, share: bool
) -> tuple[Choice, Told]:
    """(the choice, what clients told for it): pooled weights by EM, then sums of the candidates and their mixture."""
    variance = stacking.variance_of(first, classes, outputs)
    weights = settle_weights(picked, kept.tree("weights", lambda: held.weigh(picked.at, variance)))
    told = Told(*kept.tree("told", lambda: held.tell(picked.at, weights, variance)))
    return choose(told, picked, weights, share), told


def choose(
    told: Told,
    picked: Picked,
    weights: np.ndarray,
    share: bool = False,
    kappa: float | None = None,
    reference: str | None = None,
) -> Choice:
    """The choice, from what clients told of these candidates and of their mixture by these pooled weights.

    `share`: whether nothing tells clients apart otherwise. `kappa`: if it is fixed. `reference`: a kind to compare
    with, which not everybody has; it is last, and not chosen here.
    """
    kinds, count = picked.kinds, told.count[:, 0]
    kappa = stacking.choose_kappa(told) if kappa is None else kappa
    open_to = [k for k, kind in enumerate(kinds) if kind != reference]
    single = kinds[int(np.argmin(picked.scores[picked.at][open_to]))]
    gains = lambda one, other: mean_and_doubt(client_means(told.loss[:, 0, other] - told.loss[:, 0, one], count))
    if single == "local" and "path" in kinds and len(count) < stacking.FEWEST:
        # Few clients cannot tell local from the path, and the path has less to lose.
        gain, noise = gains(kinds.index("local"), kinds.index("path"))
        single = "path" if gain < noise else single
    better, doubt = gains(stacking.mixture_of(kappa), kinds.index(single))
    named = "stack" if better > max(SURE_OF_STACK * doubt, WORTH_STACK) else single
    # A few outliers hide from moments, whose spread they make: who is better off alone shows that clients differ.
    if share and named not in ("shared", "groups") and not len(better_alone(told, kinds, "shared")):
        ahead = lambda one: (found := gains(one, 0))[0] > SURE_OF_OWN * found[1]
        named = named if ahead(kinds.index("path")) or ahead(stacking.mixture_of(kappa)) else "shared"
    guarded = named in ("shared", "path", "nearer") and reference is None  # a stack's weights are a guard themselves
    alone = better_alone(told, kinds, named) if guarded else np.zeros(0, int)
    return Choice(*picked, single, named, weights, kappa, better, doubt, alone)


def mean_and_doubt(values: np.ndarray) -> tuple[float, float]:
    """(mean over clients, its standard error); clients without examples are left out.

    >>> mean_and_doubt(np.array([1.0, 3.0, np.nan]))
    (2.0, 1.0)
    """
    there = values[np.isfinite(values)]
    if len(there) < 2:
        return float(there.mean()) if len(there) else 0.0, float("inf")
    return float(there.mean()), float(there.std(ddof=1) / np.sqrt(len(there)))


def better_alone(told: Told, kinds: list[str], single: str) -> np.ndarray:
    """The clients for whom the posterior mean of (local - single) is below 0 by its standard deviation.

    Normal-normal, over all clients: what one client's few examples say is shrunken to what all of them say.
    """
    count = np.asarray(told.count[:, 0], np.float64)
    there = np.flatnonzero(count > 0)
    if "local" not in kinds or len(there) < stacking.FEWEST:
        return np.zeros(0, int)
    total, square = paired(told.loss, told.loss_cross, kinds.index("local"), kinds.index(single))
    d, v = shrunken(total[there], square[there], count[there])
    if not (v > 0).all():
        return np.zeros(0, int)
    mean, variance = posterior(d, v, fit_normal(d, v))
    return there[mean + np.sqrt(variance) < 0]


def shrunken(total: np.ndarray, square: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean of each client, variance of that mean, its own shrunken to the pooled one as by 20 examples), from sums.

    >>> [part.round(3).tolist() for part in shrunken(np.array([0.0, 4.0]), np.array([2.0, 10.0]), np.array([2, 2]))]
    [[0.0, 2.0], [1.0, 1.0]]
    """
    mean = total / count
    own = np.maximum(square - total * mean, 0)
    pooled = own.sum() / max((count - 1).sum(), 1)
    return mean, (20 * pooled + own) / (19 + count) / count
