"""From held-out scores to a choice: the point of the path, the ridge, how many groups, and one of them or a stack.

The choice is pooled over clients: a client that chooses alone on its few held-out examples mostly follows luck.
"""

from typing import NamedTuple

import numpy as np

from apiece.advise import stacking
from apiece.advise.stacking import Held
from apiece.evaluate.empirical_bayes import fit_normal, posterior

WORTH_GROUPS = 0.1  # a weight of group models in a stack, below which they are left out


class Choice(NamedTuple):
    """What was chosen. `kinds` are the candidates of the stack, `at` where each stands among all."""

    kinds: list[str]
    at: list[int]
    scores: np.ndarray  # of all candidates
    single: str
    named: str  # a candidate's kind, or "stack"
    weights: np.ndarray  # pooled, of `kinds`
    own: np.ndarray  # [clients, kinds]
    kappa: float
    path: int  # the point of the path
    nearer: int | None  # the next more local one
    ridge: int
    groups: int | None  # how many
    better: float  # by how much the stack beats the single, in loss; and its standard error
    doubt: float
    alone: np.ndarray  # clients that are better off alone, by a posterior mean

    def weight_of(self, kind: str) -> float:
        """The pooled weight of a kind of candidate in what was named."""
        if self.named != "stack":
            return float(kind == self.named)
        return float(self.weights[self.kinds.index(kind)]) if kind in self.kinds else 0.0


def choose(held: Held, names: list[str], share: bool = False, seed: int = 0) -> Choice:
    """The choice from the scores of all candidates; `share`: whether nothing tells clients apart otherwise.

    Args:
        held: of models that were trained without the fold. names: of its candidates, as `candidate_names` has them.
    """
    scores = stacking.pooled_scores(held)
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
    kinds, at = list(chosen), list(chosen.values())
    mine = held.take(at)
    weights = stacking.pooled_weights(mine)
    if groups and weights[-1] < WORTH_GROUPS:  # several more models for next to nothing
        weights = np.append(stacking.pooled_weights(held.take(at[:-1])), 0.0)
    kappa = stacking.choose_kappa(mine, weights, seed)
    single = kinds[int(np.argmin(scores[at]))]
    if single == "local" and len(held.present) < stacking.FEWEST:
        # Few clients cannot tell local from the path, and the path has less to lose.
        gap = mine.log_density[:, :, kinds.index("local")] - mine.log_density[:, :, kinds.index("path")]
        gain, noise = mean_and_doubt(stacking.client_means(gap, held.present))
        single = "path" if gain < noise else single
    stack = -stacking.mixed_log_density(mine, stacking.cross_fitted(mine, weights, kappa))
    one = -mine.log_density[:, :, kinds.index(single)]
    better, doubt = mean_and_doubt(stacking.client_means(one - stack, held.present))
    named = "stack" if better > doubt else single
    if share and named in ("path", "nearer", "local", "stack"):
        gain, noise = mean_and_doubt(stacking.client_means(
            mine.log_density[:, :, kinds.index("path")] - mine.log_density[:, :, 0], held.present))  # fmt: skip
        named = "shared" if gain < 1.645 * noise else named
    alone = better_alone(mine, kinds, single) if single not in ("local", "groups") else np.zeros(0, int)
    count = int(names[chosen["groups"]].split()[0]) if groups else None
    return Choice(kinds, at, scores, single, named, weights, stacking.own_weights(mine, weights, kappa), kappa,
                  path.index(best_path), None if nearer is None else path.index(nearer), local.index(best_local), count,
                  better, doubt, alone)  # fmt: skip


def mean_and_doubt(values: np.ndarray) -> tuple[float, float]:
    """(mean over clients, its standard error); clients without examples are left out.

    >>> mean_and_doubt(np.array([1.0, 3.0, np.nan]))
    (2.0, 1.0)
    """
    there = values[np.isfinite(values)]
    if len(there) < 2:
        return float(there.mean()) if len(there) else 0.0, float("inf")
    return float(there.mean()), float(there.std(ddof=1) / np.sqrt(len(there)))


def better_alone(held: Held, kinds: list[str], single: str) -> np.ndarray:
    """The clients for whom the posterior mean of (local - single) is below 0 by its standard deviation.

    Normal-normal, over all clients: what one client's few examples say is shrunken to what all of them say.
    """
    loss = -held.log_density
    difference = loss[:, :, kinds.index("local")] - loss[:, :, kinds.index(single)]
    count = held.present.sum(axis=1)
    there = np.flatnonzero(count > 0)
    if len(there) < stacking.FEWEST:
        return np.zeros(0, int)
    means = stacking.client_means(difference, held.present)
    d = means[there]
    centred = np.where(held.present[there] > 0, difference[there] - d[:, None], 0)
    own, n = (centred**2).sum(axis=1), count[there]
    pooled = own.sum() / max((n - 1).sum(), 1)
    v = (20 * pooled + own) / (19 + n) / n
    if not (v > 0).all():
        return np.zeros(0, int)
    mean, variance = posterior(d, v, fit_normal(d, v))
    return there[mean + np.sqrt(variance) < 0]
