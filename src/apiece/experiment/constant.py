"""Answers that look at no example: what any method has to beat before its score means anything.

`constant` answers with everybody's most frequent class (of numbers: their mean), `own_constant` with the client's own.
Both are made of training labels alone and judged as methods are; they cost nothing, and nobody recommends them.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from apiece.data.federation import HITS
from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome

ABOUT = {  # of classes, of numbers, and whose
    "constant": ("the most frequent class", "the mean", "of all clients' training labels, for every example"),
    "own_constant": ("the most frequent class", "the mean", "of the client's own training labels"),
}
PRIOR = 1.0  # examples that everybody's shares count for in a client's own: a class it never saw is not impossible


def about(name: str, task: str) -> str:
    """What a constant answers, in words.

    >>> about("constant", "regression")
    "the mean of all clients' training labels, for every example"
    """
    of_classes, of_numbers, whose = ABOUT[name]
    return f"{of_numbers if task == 'regression' else of_classes} {whose}"


def judge_constants(place: Arena, judged: np.ndarray) -> dict[str, Outcome]:
    """The constants' outcomes on the examples of these clients; none where an objective of one's own is judged by."""
    if place.own_outcomes or place.federation.task not in (*HITS, "regression"):
        return {}
    numbers = place.federation.task == "regression"
    labels, classes, scaling = np.asarray(place.y), len(place.federation.classes), place.target_scaling
    labels = labels if scaling is None else scaling.in_own_units(labels)
    everybody = labels[: place.offsets[place.population]]
    even = np.log(np.full(classes, 1 / max(classes, 1)))
    pooled = _mean(everybody) if numbers else _shares(everybody, classes, even)

    def own(client: int) -> np.ndarray:
        mine = labels[place.offsets[client] : place.offsets[client + 1]]
        if not len(mine):
            return pooled
        return _mean(mine) if numbers else _shares(mine, classes, pooled)

    answers = {"constant": [pooled] * len(judged), "own_constant": [own(client) for client in judged]}
    return {name: Outcome(judged, _arrays(place, judged, found), [], {}) for name, found in answers.items()}


def constants_beside(place: Arena, by_seed: Mapping[int, Outcome]) -> dict[str, dict[int, Outcome]]:
    """The constants beside the trials of a method: on the rows of those who do not attack, as methods are judged.

    Where nobody attacks, seeds do not change a constant, and there is one outcome for all of them.
    """
    first, some = next(iter(by_seed)), next(iter(by_seed.values()))
    judged = judge_constants(place, some.judged)
    lying = {seed: one.arrays["attackers"] for seed, one in by_seed.items() if "attackers" in one.arrays}
    if not lying:
        return {name: {first: one} for name, one in judged.items()}
    told = lambda one, seed: {**one.arrays, "attackers": lying[seed]} if seed in lying else one.arrays
    return {
        name: {seed: dataclasses.replace(one, arrays=told(one, seed)) for seed in by_seed}
        for name, one in judged.items()
    }


def _mean(targets: np.ndarray) -> np.ndarray:
    return np.asarray(targets.mean(0, dtype=np.float64))


def _shares(labels: np.ndarray, classes: int, prior: np.ndarray) -> np.ndarray:
    """The logarithms of the classes' shares, which are logits."""
    counts = np.bincount(labels[labels >= 0].ravel(), minlength=classes)
    return np.log((counts + PRIOR * np.exp(prior)) / (counts.sum() + PRIOR))


def _arrays(place: Arena, judged: np.ndarray, answers: list[np.ndarray]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for part in place.splits:
        sizes = place.sizes(part)[judged]
        found = list(_outcomes(place, part, judged, answers))
        arrays[f"{part}_offsets"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        for at, kind in enumerate(("loss", "error")):
            arrays[f"{part}_{kind}"] = np.concatenate([one[at] for one in found])
        if place.federation.binary:
            margins = [np.full(size, answer[1] - answer[0]) for size, answer in zip(sizes, answers, strict=True)]
            arrays[f"{part}_margin"] = np.concatenate(margins)
        for metric in place.metrics:
            values = [
                metric.value(str(place.ids[client]), np.broadcast_to(answer, outputs), truth) if len(truth) else np.nan
                for client, answer, (_, _, outputs, truth) in zip(judged, answers, found, strict=True)
            ]
            arrays[f"{part}_metric_{metric.name}"] = np.array(values, np.float64)
    return arrays


def _outcomes(
    place: Arena, part: str, judged: np.ndarray, answers: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[int, ...], np.ndarray]]:
    """(loss, error, shape of the outputs, labels) of each client's examples."""
    y, offsets = place.targets(part), place.splits[part][2]
    for client, answer in zip(judged, answers, strict=True):
        truth = y[offsets[client] : offsets[client + 1]]
        if place.federation.task == "regression":
            squared = np.square(truth - answer).reshape(len(truth), -1).sum(-1)
            yield squared / 2, squared, truth.shape, truth
            continue
        present = truth >= 0
        over_places = lambda each, present=present: (
            each * 1.0 if each.ndim == 1 else (each * present).sum(1) / np.maximum(present.sum(1), 1)
        )
        loss, error = -answer[np.maximum(truth, 0)], truth != answer.argmax()
        yield over_places(loss), over_places(error), (*truth.shape, len(answer)), truth
