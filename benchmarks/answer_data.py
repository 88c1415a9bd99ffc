"""Five federations as new users bring them, made anew for every draw: how much clients differ is drawn, too.

Shapes, sizes, scales and skew are those of activity by user, mines by field, Parkinson's scores by patient, spoken
digits by speaker and cancer by region; nothing in them is anybody's data.
"""

from collections.abc import Callable

import numpy as np

from apiece.data import Federation, from_rows

__all__ = ["KINDS"]


def activity(draw: int) -> Federation:
    """36 users, 5,418 rows of 43 features, 6 classes of unequal share; every user moves in a way of its own."""
    rng = np.random.default_rng([draw, 1])
    user = _owners(36, 5418, least=60)
    own = rng.uniform(0.3, 1.2)  # how far a user's classes lie from everybody's, beside the distance between classes
    centers = rng.normal(0, 1.0, (6, 43))
    shifts = rng.normal(0, own, (36, 6, 43)) + rng.normal(0, 0.5, (36, 1, 43))
    y = rng.choice(6, len(user), p=[0.36, 0.30, 0.12, 0.10, 0.07, 0.05])
    x = 0.3 * (centers[y] + shifts[user, y]) + rng.normal(0, 1, (len(user), 43))
    return from_rows(_f(x), y, user, name="activity", classes=[f"class {k}" for k in range(6)], seed=draw)


def mines(draw: int) -> Federation:
    """29 fields, 14,820 rows of 9 features, 6 % positives; two kinds of ground, and a field's own deviation."""
    rng = np.random.default_rng([draw, 2])
    field = _owners(29, 14820, least=400)
    kind = np.arange(29) % 2
    slopes = rng.normal(0, 0.5, (2, 9))[kind] + rng.normal(0, rng.uniform(0.05, 0.4), (29, 9))
    x = rng.normal(0, 1, (len(field), 9)) @ np.linalg.cholesky(0.5 * np.eye(9) + 0.5)
    score = (x * slopes[field]).sum(1) + rng.normal(0, 0.3, 29)[field]
    return from_rows(_f(x), _labels(rng, score, 0.06), field, name="mines", classes=("no", "yes"), seed=draw)


def patients(draw: int) -> Federation:
    """42 patients, 5,875 rows of 19 features whose scales are 1e-5 to 1e3, target 29 +- 11, smooth in a patient."""
    rng = np.random.default_rng([draw, 3])
    patient = _owners(42, 5875, least=100)
    age, sex = rng.uniform(36, 85, 42), rng.integers(0, 2, 42)
    day = np.concatenate([np.sort(rng.uniform(0, 215, n)) for n in np.bincount(patient)])
    level, trend, wave = rng.normal(29, 10, 42), rng.normal(0.01, 0.03, 42), rng.uniform(0, 2.0, 42)
    target = level[patient] + trend[patient] * day + wave[patient] * np.sin(day / 40 + patient)
    voice = rng.normal(0, 1, (42, 16))[patient] + rng.normal(0, 0.6, (len(day), 16))
    voice += rng.uniform(0, 0.05) * (target - 29)[:, None]  # what is heard of the disease
    scale = np.array([6e-3, 4e-5, 3e-3, 3e-3, 9e-3, 0.03, 0.3, 0.017, 0.02, 0.02, 0.05, 0.03, 22.0, 0.5, 0.65, 0.2])
    center = scale * np.array([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.2, 1, 1])
    x = np.column_stack([age[patient], sex[patient], day, center + 0.4 * scale * voice])
    y = target + rng.normal(0, rng.uniform(0.6, 1.6), len(day))
    names = ["age", "sex", "day", *(f"voice {k}" for k in range(16))]
    return from_rows(_f(x), _f(y), patient, name="patients", features=names, seed=draw)


def speakers(draw: int) -> Federation:
    """6 speakers of 500 rows each, 600 features of few dimensions, 10 classes; a voice shifts and turns them."""
    rng = np.random.default_rng([draw, 4])
    speaker = np.repeat(np.arange(6), 500)
    y = np.tile(np.arange(10), 300)
    heard = rng.normal(0, 1, (40, 600)) / np.sqrt(40)
    centers, own = rng.normal(0, 1, (10, 40)), rng.uniform(0.3, 1.0)
    voice = rng.normal(0, 1, (6, 1, 40)) + own * rng.normal(0, 1, (6, 10, 40))
    latent = centers[y] + voice[speaker, y] + rng.normal(0, 2.0, (3000, 40))
    x = 10 * latent @ heard + rng.normal(0, 4, (3000, 600)) - 20  # decibels
    return from_rows(_f(x), y, speaker, name="speakers", classes=[str(k) for k in range(10)], seed=draw)


def regions(draw: int) -> Federation:
    """6 regions of very unequal size, 1,088 rows of 39 mostly binary features, a quarter positive."""
    rng = np.random.default_rng([draw, 5])
    region = np.repeat(np.arange(6), [386, 269, 186, 120, 79, 48])
    yes = rng.uniform(0.02, 0.5, 36) * rng.uniform(0.6, 1.4, (6, 36))
    x = np.column_stack([rng.random((1088, 36)) < yes[region], rng.normal(62, 12, 1088), rng.normal(0, 1, (1088, 2))])
    slopes = rng.normal(0, 0.6, 39) + rng.normal(0, rng.uniform(0.0, 0.4), (6, 39))
    score = ((x - x.mean(0)) / x.std(0) * slopes[region]).sum(1) + rng.normal(0, 0.5, 6)[region]
    return from_rows(_f(x), _labels(rng, score, 0.25), region, name="regions", classes=("no", "yes"), seed=draw)


KINDS: dict[str, Callable[[int], Federation]] = {
    made.__name__: made for made in (activity, mines, patients, speakers, regions)
}


def _owners(clients: int, rows: int, least: int) -> np.ndarray:
    """The client of each row: sizes are unequal, their sum is right, and they are the same in every draw, so that
    programs are compiled once."""
    share = np.random.default_rng(clients).dirichlet(np.full(clients, 4.0))
    sizes = least + np.floor(share * (rows - clients * least)).astype(int)
    sizes[0] += rows - sizes.sum()
    return np.repeat(np.arange(clients), sizes)


def _labels(rng: np.random.Generator, score: np.ndarray, positive: float) -> np.ndarray:
    """Labels of a logistic law, moved so that as many are positive as wanted."""
    chance = lambda shift: 1 / (1 + np.exp(-(score - shift)))
    low, high = score.min() - 20, score.max() + 20
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle).mean() > positive else (low, middle)
    return (rng.random(len(score)) < chance(low)).astype(int)


def _f(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)
