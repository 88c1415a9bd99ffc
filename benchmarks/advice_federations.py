"""Federations for judging advice: drawn when the benchmark runs, by hidden parameters, from sources in two halves.

Thresholds may be looked at on the design half; what is reported is of the other one.
"""

import os
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation, from_rows, source

SHARES = (0.45, 0.15, 0.4)  # of each client's rows: train, validation, test
WIDTH = 30  # directions that pictures and signals are brought to, of all rows and without their labels


class Drawn(NamedTuple):
    """A federation, the model it is learned by (None: linear), and the parameters that the advisor does not see."""

    federation: Federation
    model: Any
    hidden: dict[str, Any]


def draw(family: str, word: str, number: int) -> Drawn:
    """The federation of a family that this word and number give: always the same, and known to nobody before."""
    rng = np.random.default_rng([zlib.crc32(f"{word} {family}".encode()), number])
    return FAMILIES[family](rng)


def made(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, owner: np.ndarray, classes: Any, about: dict) -> Drawn:
    """The rows as a federation; clients have numbers that say nothing."""
    known, owner = np.unique(owner, return_inverse=True)
    shuffled = rng.permutation(len(known))[owner]
    order = np.argsort(shuffled, kind="stable")
    split = np.empty(len(y), int)
    for client in range(len(known)):
        mine = np.flatnonzero(shuffled == client)
        parts = np.array_split(rng.permutation(mine), (np.cumsum(SHARES)[:2] * len(mine)).astype(int))
        for at, part in enumerate(parts):
            split[part] = at
    federation = from_rows(x[order].astype(np.float32), y[order], shuffled[order], split=split[order],
                           **({"classes": classes} if classes else {}))  # fmt: skip
    return Drawn(federation, about.pop("model", None), about)


def linear_clients(rng: np.random.Generator) -> Drawn:
    """Linear clients around a centre, or around several."""
    about: dict[str, Any] = dict(clients=int(rng.integers(20, 41)), examples=int(rng.integers(10, 50)),
                 features=int(rng.integers(4, 20)), radius=float(np.exp(rng.uniform(np.log(0.1), np.log(2)))),
                 noise=float(rng.uniform(0.5, 1.5)), groups=int(rng.choice([1, 1, 3])),
                 outliers=float(rng.choice([0.0, 0.1])), power=bool(rng.random() < 0.3))  # fmt: skip
    sizes = np.full(about["clients"], about["examples"])
    if about["power"]:
        sizes = np.clip((about["examples"] * rng.pareto(1.5, len(sizes))).astype(int), 6, 10 * about["examples"])
    owner = np.repeat(np.arange(len(sizes)), np.ceil(sizes / (SHARES[0] + SHARES[1])).astype(int))
    d = about["features"]
    centres = rng.normal(size=(about["groups"], d)) * (1.0 if about["groups"] == 1 else 1.5) / np.sqrt(d) * 2
    models = centres[rng.integers(about["groups"], size=len(sizes))]
    models = models + about["radius"] * rng.normal(size=models.shape) / np.sqrt(d)
    odd = rng.random(len(sizes)) < about["outliers"]
    models = np.where(odd[:, None], rng.normal(size=models.shape) * 2, models)
    x = rng.normal(size=(len(owner), d))
    y = (x * models[owner]).sum(axis=1) + about["noise"] * rng.normal(size=len(x))
    return made(rng, x, y, owner, (), about)


def pictures(name: str, model: Any = None, **options: Any) -> Callable[[np.random.Generator], Drawn]:
    """Splits of a set of pictures: by labels, by contradicting labels, or by chance."""

    def drawn(rng: np.random.Generator) -> Drawn:
        x, y, _, classes = _rows(name, **options)
        about: dict[str, Any] = dict(clients=int(rng.integers(15, 31)), examples=int(rng.integers(12, 50)),
                     kind=str(rng.choice(["dirichlet", "dirichlet", "swapped", "iid"])),
                     alpha=float(rng.choice([0.1, 0.5, 2.0])), noise=float(rng.choice([0.0, 0.05])),
                     model=model)  # fmt: skip
        per = int(np.ceil(about["examples"] / (SHARES[0] + SHARES[1])))
        k = len(classes)
        owner, chosen = np.repeat(np.arange(about["clients"]), per), []
        for _ in range(about["clients"]):
            share = rng.dirichlet(np.full(k, about["alpha"])) if about["kind"] == "dirichlet" else np.full(k, 1 / k)
            weight = share[y] / np.maximum(np.bincount(y, minlength=k)[y], 1)
            again = (weight > 0).sum() < per
            chosen.append(rng.choice(len(y), per, replace=bool(again), p=weight / weight.sum()))
        rows = np.concatenate(chosen)
        labels = y[rows].copy()
        if about["kind"] == "swapped":  # groups of clients call the same pictures differently
            about["groups"] = int(rng.integers(2, 5))
            names = np.stack([rng.permutation(k) for _ in range(about["groups"])])
            labels = names[(owner % about["groups"]), labels]
        wrong = rng.random(len(labels)) < about["noise"]
        labels = np.where(wrong, rng.integers(k, size=len(labels)), labels)
        return made(rng, x[rows], labels, owner, classes, about)

    return drawn


def natural(name: str, model: Any = None, most: int = 40) -> Callable[[np.random.Generator], Drawn]:
    """Clients as nature made them: some of them, with some of their rows."""

    def drawn(rng: np.random.Generator) -> Drawn:
        x, y, owner, classes = _rows(name)
        few = len(np.unique(owner))
        about: dict[str, Any] = dict(clients=min(few, int(rng.integers(min(few, 15), most))),
                     examples=int(np.exp(rng.uniform(np.log(15), np.log(120)))), model=model)  # fmt: skip
        who = rng.permutation(np.unique(owner))[: about["clients"]]
        per, keep = int(about["examples"] / (SHARES[0] + SHARES[1])), []
        for client in who:
            mine = np.flatnonzero(owner == client)
            keep.append(rng.permutation(mine)[:per])
        rows = np.concatenate(keep)
        return made(rng, x[rows], y[rows], owner[rows], classes, about)

    return drawn


_READ: dict[str, tuple] = {}


def _rows(name: str, **options: Any) -> tuple:
    """(rows, labels, owners, classes) of a source, all parts together, wide rows brought to a few directions."""
    if name not in _READ:
        given = source(name, **options)
        parts = [given.train, given.validation, given.test]
        x = np.concatenate([np.asarray(part.x, np.float64).reshape(part.rows, -1) for part in parts])
        y = np.concatenate([np.asarray(part.y) for part in parts])
        owner = np.concatenate([np.repeat(np.arange(given.clients), part.sizes) for part in parts])
        x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
        if x.shape[1] > WIDTH:
            some = x[np.random.default_rng(0).permutation(len(x))[:4000]]
            _, size, along = np.linalg.svd(some, full_matrices=False)
            x = x @ along[:WIDTH].T / np.sqrt(size[:WIDTH] / np.sqrt(len(some)))
        x = x * 2 / np.sqrt((x**2).sum(axis=1).mean())
        if not given.classes:
            y = (y - y.mean()) / y.std()
        _READ[name] = x, y, owner, tuple(given.classes)
    return _READ[name]


MLP = {"name": "mlp", "hidden": [32]}
FAMILIES: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "linear": linear_clients,
    "digits": pictures("digits"),
    "digits, network": pictures("digits", MLP),
    "heart": natural("heart_by_hospital"),
    "school": natural("school_by_school"),
    "vehicle": natural("vehicle_by_sensor"),
    "har": natural("har_by_subject"),
    "writers": natural("mnist_by_writer"),
    "audio": natural("audiomnist_by_speaker"),
    "cifar": pictures("cifar10_subset"),
    "har, network": natural("har_by_subject", MLP),
    "writers, network": natural("mnist_by_writer", MLP),
}
DESIGN = ("digits", "heart", "har", "digits, network", "har, network")
REPORTED = ("linear", "school", "vehicle", "writers", "audio", "cifar", "writers, network")
AT_HAND = ("linear", "digits", "digits, network")  # all others need APIECE_DATA


def families_at_hand(half: str) -> list[str]:
    """The families of a half ("design", "reported") whose data are here."""
    names = DESIGN if half == "design" else REPORTED
    return [name for name in names if name in AT_HAND or "APIECE_DATA" in os.environ]
