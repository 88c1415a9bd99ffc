"""Federations for judging advice: drawn when the benchmark runs, by hidden parameters, from sources in two halves.

Thresholds may be looked at on the design half; what is reported is of the other one. A federation is *small* or *large*
(by its number), and all small ones of a kind have as many clients, rows, and rows of the largest client as another:
compiling the sweep's programs takes five times as long as running them, and one that is compiled serves all of them.
"""

import os
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation, from_rows, source

SHARES = (0.45, 0.15, 0.4)  # of each client's rows: train, validation, test
WIDTH = 30  # directions that pictures and signals are brought to, of all rows and without their labels
NUMBERS = 28  # features of the families that predict numbers, as the schools have
LEAST = 4  # training rows of a client


class Shape(NamedTuple):
    """How many clients, training rows of a client in the mean, and of the largest; validation is a third of that, and
    test has so many rows in the mean, and of the largest."""

    clients: int
    rows: int
    most: int
    test: int
    most_test: int


SMALL, LARGE = Shape(30, 15, 40, 60, 80), Shape(24, 44, 76, 44, 60)
SENSORS = Shape(16, 18, 60, 24, 120), Shape(16, 32, 100, 24, 120)  # there are no more, and most of them are small
HOSPITALS = Shape(4, 40, 60, 80, 100), Shape(4, 80, 120, 60, 80)


class Drawn(NamedTuple):
    """A federation, the model it is learned by (None: linear), and the parameters that the advisor does not see."""

    federation: Federation
    model: Any
    hidden: dict[str, Any]


class Luck(NamedTuple):
    """What is drawn once for a federation (its hidden parameters), and what anew with every seed (its rows)."""

    once: np.random.Generator
    anew: np.random.Generator
    name: int
    number: int

    def deal(self, values: list) -> Any:
        """One of these values: of as many federations as there are values, each gets another."""
        order = np.random.default_rng([self.name, self.number // len(values), 7]).permutation(len(values))
        return values[order[self.number % len(values)]]


def draw(family: str, word: str, number: int, seed: int = 0) -> Drawn:
    """The federation of a family that this word, number and seed give: always the same, and known to nobody before.

    Another seed has the same hidden parameters, and other rows.
    """
    name = zlib.crc32(f"{word} {family}".encode())
    luck = Luck(np.random.default_rng([name, number]), np.random.default_rng([name, number, 1 + seed]), name, number)
    return FAMILIES[family](luck)


def made(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, owner: np.ndarray, classes: Any, about: dict) -> Drawn:
    """The rows as a federation, each client's dealt to train, validation and test; clients' numbers say nothing."""
    split = np.empty(len(y), int)
    for client in np.unique(owner):
        mine = np.flatnonzero(owner == client)
        parts = np.array_split(rng.permutation(mine), (np.cumsum(SHARES)[:2] * len(mine)).astype(int))
        for at, part in enumerate(parts):
            split[part] = at
    return laid_out(rng, x, y, owner, split, classes, about)


def laid_out(
    rng: np.random.Generator, x: np.ndarray, y: np.ndarray, owner: np.ndarray, split: np.ndarray, classes: Any,
    about: dict,
) -> Drawn:  # fmt: skip
    """The rows as a federation; clients have numbers that say nothing."""
    known, owner = np.unique(owner, return_inverse=True)
    shuffled = rng.permutation(len(known))[owner]
    order = np.argsort(shuffled, kind="stable")
    federation = from_rows(x[order].astype(np.float32), y[order], shuffled[order], split=split[order],
                           **({"classes": classes} if classes else {}))  # fmt: skip
    return Drawn(federation, about.pop("model", None), about)


def fit_sizes(wanted: np.ndarray, room: np.ndarray, mean: int, most: int, least: int = LEAST) -> np.ndarray:
    """Whole numbers in proportion to the wanted ones, of exactly this mean, the largest exactly `most`.

    `room`: the most that each may have.

    >>> fit_sizes(np.array([1.0, 1.0, 4.0]), np.array([90, 90, 90]), 10, 20).tolist()
    [5, 5, 20]
    """
    total, room = mean * len(wanted), np.minimum(room, most)
    assert room.max() == most and room.sum() >= total and len(wanted) * least <= total
    at = lambda scale: np.clip((scale * wanted).astype(int), np.minimum(least, room), room)
    low, high = 0.0, total / wanted.min() + most / wanted.min()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).sum() <= total else (low, middle)
    sizes = at(low)
    top = int(np.argmax(np.where(room == most, wanted, -1)))
    sizes[top] = most
    order = np.argsort(-wanted, kind="stable")
    while sizes.sum() != total:  # a row more or less, client by client
        step = 1 if sizes.sum() < total else -1
        for client in order:
            if client != top and sizes.sum() != total and least <= sizes[client] + step <= room[client]:
                sizes[client] += step
    return sizes


def wanted_sizes(law: str, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """How clients' sizes compare: alike, uneven, or by a power law."""
    if law == "alike":
        return np.ones(shape.clients)
    spread = np.exp(0.5 * rng.normal(size=shape.clients)) if law == "uneven" else 1 + rng.pareto(1.2, shape.clients)
    return np.sort(spread)[::-1] / spread.min()


def part_sizes(wanted: np.ndarray, room: np.ndarray, shape: Shape) -> np.ndarray:
    """[clients, 3]: rows of train, validation and test, of clients that have so much room."""
    room = np.asarray(room)
    train = fit_sizes(wanted, room * 2 // 3, shape.rows, shape.most)
    third = fit_sizes(train / 3, room - train - 1, shape.rows // 3, shape.most // 3, 1)
    test = fit_sizes(np.ones(len(wanted)), room - train - third, shape.test, shape.most_test, 1)
    return np.stack([train, third, test], axis=1)


def parts_of(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(whose, which part) of all rows of these sizes, client by client, train first."""
    owner = np.repeat(np.arange(len(sizes)), sizes.sum(axis=1))
    return owner, np.concatenate([np.repeat(np.arange(3), each) for each in sizes])


PLENTY = 10_000  # rows


def numbers(few: bool) -> Callable[[Luck], Drawn]:
    """Linear clients around a centre, or around several; or, if `few`, such that differ in a few directions only."""

    def drawn(luck: Luck) -> Drawn:
        rng, shape = luck.once, (SMALL, LARGE)[luck.number % 2]
        about: dict[str, Any] = dict(shape="small" if shape is SMALL else "large", law=_law(rng),
                     features=int(rng.integers(4, NUMBERS + 1)),
                     radius=float(np.exp(rng.uniform(np.log(0.1), np.log(2)))), noise=float(rng.uniform(0.5, 1.5)),
                     groups=luck.deal([1, 1, 1, 3]), outliers=float(rng.choice([0.0, 0.1])))  # fmt: skip
        about |= dict(directions=int(rng.integers(1, 4)), groups=1) if few else {}
        anew, d, clients = luck.anew, about["features"], shape.clients
        sizes = part_sizes(wanted_sizes(about["law"], shape, rng), np.full(clients, PLENTY), shape)
        owner, split = parts_of(sizes)
        centres = anew.normal(size=(about["groups"], d)) * (1.0 if about["groups"] == 1 else 1.5) / np.sqrt(d) * 2
        away = anew.normal(size=(clients, d)) / np.sqrt(d)
        if few:  # the first of them is the intercept
            along = np.linalg.qr(anew.normal(size=(d, about["directions"])))[0]
            away = 2 * away @ along @ along.T
        models = centres[anew.integers(about["groups"], size=clients)] + about["radius"] * away
        odd = anew.random(clients) < about["outliers"]
        models = np.where(odd[:, None], anew.normal(size=models.shape) * 2, models)
        x = np.zeros((len(owner), NUMBERS))  # features that are always 0 change nothing but the programs' shapes
        x[:, :d] = anew.normal(size=(len(owner), d))
        y = (x[:, :d] * models[owner]).sum(axis=1) + about["noise"] * anew.normal(size=len(x))
        y = y + (about["radius"] * anew.normal(size=clients))[owner] * few
        return laid_out(anew, x, y, owner, split, (), about)

    return drawn


def _law(rng: np.random.Generator) -> str:
    return str(rng.choice(["alike", "uneven", "power"], p=[0.5, 0.25, 0.25]))


def pictures(name: str, model: Any = None, **options: Any) -> Callable[[Luck], Drawn]:
    """Splits of a set of pictures: by labels, by contradicting labels, or by chance."""

    def drawn(luck: Luck) -> Drawn:
        x, y, _, classes = _rows(name, **options)
        rng, anew, shape = luck.once, luck.anew, (SMALL, LARGE)[luck.number % 2]
        about: dict[str, Any] = dict(shape="small" if shape is SMALL else "large", law=_law(rng),
                     kind=luck.deal(["dirichlet", "dirichlet", "swapped", "iid"]),
                     alpha=float(rng.choice([0.1, 0.5, 2.0])), noise=float(rng.choice([0.0, 0.05])),
                     groups=int(rng.integers(2, 5)), model=model)  # fmt: skip
        k, clients = len(classes), shape.clients
        sizes = part_sizes(wanted_sizes(about["law"], shape, rng), np.full(clients, PLENTY), shape)
        owner, split = parts_of(sizes)
        tests = np.random.default_rng(0).random(len(y)) < 0.4  # pictures that nobody trains on
        rows = np.empty(len(owner), int)
        for client in range(clients):
            share = anew.dirichlet(np.full(k, about["alpha"])) if about["kind"] == "dirichlet" else np.full(k, 1 / k)
            for pool, mine in ((~tests, split < 2), (tests, split == 2)):
                here = np.flatnonzero((owner == client) & mine)
                weight = share[y] * pool / np.maximum(np.bincount(y[pool], minlength=k)[y], 1)
                again = (weight > 1e-12).sum() < 2 * len(here)
                rows[here] = anew.choice(len(y), len(here), replace=bool(again), p=weight / weight.sum())
        labels = y[rows].copy()
        if about["kind"] == "swapped":  # groups of clients call the same pictures differently
            names = np.stack([anew.permutation(k) for _ in range(about["groups"])])
            labels = names[(owner % about["groups"]), labels]
        wrong = anew.random(len(labels)) < about["noise"]
        labels = np.where(wrong, anew.integers(k, size=len(labels)), labels)
        return laid_out(anew, x[rows], labels, owner, split, classes, about)

    return drawn


def natural(
    name: str, model: Any = None, shapes: tuple[Shape, Shape] = (SMALL, LARGE), own_sizes: bool = False
) -> Callable[[Luck], Drawn]:
    """Clients as nature made them: some of them, with some of their rows; `own_sizes`: in proportion to all."""

    def drawn(luck: Luck) -> Drawn:
        x, y, owner, classes = _rows(name)
        rng, anew, shape = luck.once, luck.anew, shapes[luck.number % 2]
        about: dict[str, Any] = dict(shape=("small", "large")[luck.number % 2], model=model,
                                     law="own" if own_sizes else _law(rng))  # fmt: skip
        have = np.bincount(owner)
        if own_sizes:
            enough = np.argsort(-have, kind="stable")[: max(shape.clients, (have >= 2 * shape.rows).sum())]
            who = rng.permutation(enough)[: shape.clients]
            who[-1] = who[-1] if have[who].max() * 2 // 3 >= shape.most else enough[0]
            wanted = have[who].astype(float)
        else:
            who = rng.permutation(np.flatnonzero(have >= (115 if shape is SMALL else 120)))[: shape.clients]
            wanted = wanted_sizes(about["law"], shape, rng)
        sizes = part_sizes(wanted, have[who], shape)
        rows = [anew.permutation(np.flatnonzero(owner == each))[: sizes[at].sum()] for at, each in enumerate(who)]
        whose, split = parts_of(sizes)
        rows = np.concatenate(rows)
        return laid_out(anew, x[rows], y[rows], whose, split, classes, about)

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
FAMILIES: dict[str, Callable[[Luck], Drawn]] = {
    "linear": numbers(few=False),
    "directions": numbers(few=True),
    "digits": pictures("digits"),
    "digits, network": pictures("digits", MLP),
    "heart": natural("heart_by_hospital", shapes=HOSPITALS, own_sizes=True),
    "school": natural("school_by_school", own_sizes=True),
    "vehicle": natural("vehicle_by_sensor", shapes=SENSORS, own_sizes=True),
    "har": natural("har_by_subject"),
    "writers": natural("mnist_by_writer"),
    "audio": natural("audiomnist_by_speaker"),
    "cifar": pictures("cifar10_subset"),
    "har, network": natural("har_by_subject", MLP),
    "writers, network": natural("mnist_by_writer", MLP),
}
DESIGN = ("directions", "digits", "har", "heart", "digits, network", "har, network")
REPORTED = ("linear", "school", "writers", "audio", "cifar", "vehicle", "writers, network")
AT_HAND = ("linear", "directions", "digits", "digits, network")  # all others need APIECE_DATA


def families_at_hand(half: str) -> list[str]:
    """The families of a half ("design", "reported") whose data are here."""
    names = DESIGN if half == "design" else REPORTED
    return [name for name in names if name in AT_HAND or "APIECE_DATA" in os.environ]
