"""Mixtures of candidates, weighed by what held-out examples say: pooled weights, and a client's own shrunken to them.

    p_e = sum_k w_k p_ke,   r_ke ~ w_k p_ke
    pooled:  w_k <- mean_i mean_e r_ke            own:  w_ik <- (sum_e r_ke + kappa w_k) / (examples + kappa)

Predictions are mixed, not parameters: probabilities of classes, or predicted numbers. Arrays in, arrays out.
"""

from typing import NamedTuple

import numpy as np

KAPPAS = (10.0, 30.0, 100.0, np.inf)
STEPS = 60  # of the pooled EM
OWN_STEPS = 25
FEWEST = 8  # clients for whom weights of their own can be judged
TRIED_ON = 2000  # clients that kappa is chosen on
CUT = 0.95  # client means above this quantile count as much as it: one tiny client must not decide


class Held(NamedTuple):
    """What candidates said of held-out examples, client by client: [clients, examples, ...].

    `log_density` of what was true, by candidate; `said` as it was told (`questions.Scores`); `present`: 1, or 0.
    """

    log_density: np.ndarray
    said: np.ndarray
    present: np.ndarray
    classes: int

    def take(self, candidates: list[int]) -> "Held":
        """The same of some candidates."""
        return self._replace(log_density=self.log_density[:, :, candidates], said=self.said[:, :, candidates])

    def of(self, clients: np.ndarray) -> "Held":
        """The same of some clients."""
        return self._replace(
            log_density=self.log_density[clients], said=self.said[clients], present=self.present[clients]
        )


def held_losses(classes: int, said: np.ndarray, present: np.ndarray) -> Held:
    """From what clients told, [clients, settings, held, candidates, ...], all settings' examples end to end.

    Numbers have a normal density, with the pooled squared error of the best candidate as variance.

    >>> told = np.log([[[[[0.5, 0.5]], [[0.25, 0.75]]]]])  # one client, one setting, two examples, one candidate
    >>> np.exp(held_losses(2, told, np.ones((1, 1, 2))).log_density[0, :, 0]).tolist()
    [0.5, 0.25]
    """
    flat = np.asarray(said, np.float64).reshape(len(said), -1, *said.shape[3:])
    there = np.asarray(present, np.float64).reshape(len(said), -1)
    if classes:
        return Held(np.clip(flat[..., 0], -30.0, 0.0), flat, there, classes)
    square = np.where(there[..., None] > 0, (flat**2).sum(axis=-1), 0)
    count = max(there.sum(), 1) * flat.shape[-1]
    variance = max(float((square.sum(axis=(0, 1)) / count).min()), 1e-12)
    normal = -square / (2 * variance) - flat.shape[-1] * np.log(2 * np.pi * variance) / 2
    return Held(np.maximum(normal, -300.0), flat, there, 0)


def client_means(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """[clients, ...] of [clients, examples, ...]; NaN for clients without examples."""
    weight = present.reshape(*present.shape, *[1] * (values.ndim - 2))
    count = present.sum(axis=1).reshape(-1, *[1] * (values.ndim - 2))
    with np.errstate(invalid="ignore"):
        return np.where(weight > 0, values, 0).sum(axis=1) / np.where(count > 0, count, np.nan)


def pooled_scores(held: Held) -> np.ndarray:
    """[candidates]: the mean over clients of their mean loss, large ones cut; every client weighs the same."""
    means = client_means(-held.log_density, held.present)
    means = means[np.isfinite(means).all(axis=1)]
    if len(means) >= 20:
        means = np.minimum(means, np.quantile(means, CUT, axis=0))
    return means.mean(axis=0)


def pooled_weights(held: Held) -> np.ndarray:
    """[candidates]: one mixture for all clients, by EM.

    >>> sure = np.log(np.array([[[0.9, 0.1], [0.9, 0.1]]]))
    >>> pooled_weights(Held(sure, sure, np.ones((1, 2)), 2)).round(1).tolist()
    [1.0, 0.0]
    """
    p = _densities(held)
    w = np.full(p.shape[2], 1 / p.shape[2])
    there = held.present.sum(axis=1) > 0
    for _ in range(STEPS):
        w = client_means(_shares(p, w), held.present)[there].mean(axis=0)
    return w / w.sum()


def own_weights(held: Held, pooled: np.ndarray, kappa: float) -> np.ndarray:
    """[clients, candidates]: every client's mixture, shrunken to the pooled one as by so many examples.

    >>> sure = np.log(np.array([[[0.9, 0.1]]]))
    >>> own_weights(Held(sure, sure, np.ones((1, 1)), 2), np.array([0.5, 0.5]), np.inf).tolist()
    [[0.5, 0.5]]
    """
    p = _densities(held)
    w = np.broadcast_to(pooled, (len(p), len(pooled))).copy()
    if not np.isfinite(kappa):
        return w
    count = held.present.sum(axis=1, keepdims=True)
    for _ in range(OWN_STEPS):
        w = ((_shares(p, w[:, None]) * held.present[..., None]).sum(axis=1) + kappa * pooled) / (count + kappa)
    return w


def cross_fitted(held: Held, pooled: np.ndarray, kappa: float) -> np.ndarray:
    """[clients, examples, candidates]: the weights for every example, from its client's other half of examples."""
    examples = held.present.shape[1]
    half = np.zeros(held.present.shape, bool)
    half[:, ::2] = True
    weights = np.empty((*held.present.shape, len(pooled)))
    for part in (half, ~half):
        own = own_weights(held._replace(present=held.present * ~part), pooled, kappa)
        weights = np.where(part[..., None], np.repeat(own[:, None], examples, axis=1), weights)
    return weights


def choose_kappa(held: Held, pooled: np.ndarray, seed: int = 0) -> float:
    """How strongly clients' weights are shrunken: by the likelihood of halves that the weights have not seen."""
    if len(held.present) < FEWEST:
        return float("inf")
    if len(held.present) > TRIED_ON:
        held = held.of(np.random.default_rng(seed).permutation(len(held.present))[:TRIED_ON])
    fit = [
        np.nanmean(client_means(mixed_log_density(held, cross_fitted(held, pooled, k)), held.present)) for k in KAPPAS
    ]
    return KAPPAS[int(np.argmax(fit))]


def mixed_log_density(held: Held, weights: np.ndarray) -> np.ndarray:
    """[clients, examples]: of what was true, under mixtures of these weights.

    Of classes that of the mixed probabilities; of numbers, where means are mixed, the normal density of their mean.
    """
    if held.classes:
        return np.log(np.maximum((np.exp(held.log_density) * weights).sum(axis=-1), 1e-13))
    square = (np.einsum("neko,nek->neo", held.said, weights) ** 2).sum(axis=-1)
    variance, outputs = _variance(held), held.said.shape[-1]
    return np.maximum(-square / (2 * variance) - outputs * np.log(2 * np.pi * variance) / 2, -300.0)


def mixed_errors(held: Held, weights: np.ndarray) -> np.ndarray:
    """[clients, examples]: whether the mixture is wrong, or its squared error.

    >>> told = np.log(np.array([[[[0.4, 0.6], [0.9, 0.1]]]]))
    >>> mixed_errors(Held(told[..., 0], told, np.ones((1, 1)), 2), np.array([[[0.9, 0.1]]])).tolist()
    [[1.0]]
    """
    if not held.classes:
        return (np.einsum("neko,nek->neo", held.said, weights) ** 2).sum(axis=-1)
    p = np.einsum("nekr,nek->ner", np.exp(held.said), weights)
    return (p[..., 1:].max(axis=-1, initial=0) > p[..., 0]).astype(np.float64)


def only(held: Held, candidate: int) -> np.ndarray:
    """The weights of one candidate alone, for every example."""
    one = np.zeros((*held.present.shape, held.log_density.shape[2]))
    one[..., candidate] = 1
    return one


def _variance(held: Held) -> float:
    """The variance that densities were made with: of the best candidate."""
    square = np.where(held.present[..., None] > 0, (held.said**2).sum(axis=-1), 0)
    return max(float((square.sum(axis=(0, 1)) / max(held.present.sum(), 1) / held.said.shape[-1]).min()), 1e-12)


def _densities(held: Held) -> np.ndarray:
    return np.exp(held.log_density - held.log_density.max(axis=2, keepdims=True))


def _shares(p: np.ndarray, w: np.ndarray) -> np.ndarray:
    joint = p * w
    return joint / np.maximum(joint.sum(axis=-1, keepdims=True), 1e-300)
