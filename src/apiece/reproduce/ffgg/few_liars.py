"""Theorem 8 inside its hypotheses: few liars, each rule's proved constant, the proved step, and the proved rate."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from apiece.aggregate import rule
from apiece.reproduce.ffgg.liars import FEW, LOOK, distances, problems
from apiece.reproduce.verdict import Claim, effect, mean_of
from apiece.theory.ffgg import byzantine_rate, byzantine_share, byzantine_step
from apiece.theory.robust import bucket_size, robust_constant
from apiece.wrap.attacks import Attack

ROUNDS = 100
RULES: dict[str, dict[str, Any]] = {
    "krum": {"name": "krum", "byzantine": FEW.liars},
    "median": {"name": "median"},
    "geometric_median": {"name": "geometric_median"},
}
SIZE = bucket_size("krum", FEW.clients, FEW.liars)  # Krum's limit, a quarter of the buckets spoiled, is the strictest
DELTA = FEW.liars / FEW.clients
DRAWS = 300


class Constants(NamedTuple):
    """Of every instance: strong monotonicity, smoothness, and how unlike the honest replies grow."""

    mu: NDArray
    smoothness: NDArray
    similarity: NDArray


def constants_of(j: NDArray) -> Constants:
    """Of curvatures [instances, honest clients, d, d]: mean |F_m - F|^2 <= l <F, theta - theta*> for the least l.

    >>> constants_of(np.stack([2 * np.eye(2), 4 * np.eye(2)])[None]).similarity.round(6).tolist()
    [0.333333]
    """
    mean = j.mean(1)
    apart = ((j - mean[:, None]) @ (j - mean[:, None])).mean(1)
    values, vectors = np.linalg.eigh(mean)
    root = vectors / np.sqrt(values)[:, None]
    unlike = np.linalg.eigvalsh(np.swapaxes(root, 1, 2) @ apart @ root)[:, -1]
    return Constants(values[:, 0], np.linalg.eigvalsh(j)[..., -1].max(1), unlike)


def bucketed(name: str) -> Any:
    """A rule over buckets."""
    return rule("bucketing", size=SIZE, rule=RULES[name])


def claims_of(attacks: Mapping[str, Attack], instances: int) -> list[Claim]:
    """For each rule: few enough liars, the rate under every attack, and the constant on draws of replies."""
    made, best = problems(instances, FEW)
    shared = slice(instances)  # those whose optima are one
    found = constants_of(made.j[shared, FEW.honest])
    honest = FEW.clients - FEW.liars
    cs = {name: robust_constant(name, FEW.clients, FEW.liars, SIZE) for name in RULES}
    allowed = {n: byzantine_share(found.mu, found.smoothness, found.similarity, honest, rule=c) for n, c in cs.items()}
    steps = {n: byzantine_step(found.smoothness, found.similarity, honest, DELTA, rule=c) for n, c in cs.items()}
    f = type(made.f)(*(part[shared] for part in made.f))
    rules = [bucketed(name) for name in RULES]
    far = distances(rules, attacks, f, best[shared], np.stack(list(steps.values())), FEW, ROUNDS)
    looks = np.arange(LOOK, ROUNDS + 1, LOOK)
    worst = worst_constants()
    claims = []
    for r, name in enumerate(RULES):
        start = np.linalg.norm(best[shared], axis=-1)
        rates = byzantine_rate(found.mu, found.smoothness, steps[name])
        bound = start[:, None] ** 2 * rates[:, None] ** looks
        over = np.log(np.maximum(far[r], 1e-200) ** 2 / bound)  # [attacks, instances, looks]
        means = over.mean(1)
        attack, look = np.unravel_index(means.argmax(), means.shape)
        called = f"few liars, {name.replace('_', ' ')} over buckets of {SIZE}"
        claims += [
            effect(f"{called}: share of liars over the largest that the theorem allows", "below 1",
                   float((DELTA / allowed[name]).max()), below=1, source="theory"),
            effect(f"{called}: log of (|theta - theta*|^2 over (1 - step mu/2)^R of the start's), worst attack and R",
                   "below 0", mean_of(over[attack, :, look]), below=0),
            effect(f"{called}: measured constant under the worst attack, below the proved {cs[name]:.3g}", "below it",
                   worst[name], above=0, below=cs[name], source="theory"),
        ]  # fmt: skip
    return claims


def worst_constants() -> dict[str, float]:
    """The largest of E|rule - honest mean|^2 / (delta P) that lies near, far, spread and in hiding bring about."""
    rng = np.random.default_rng(0)
    honest, far = FEW.clients - FEW.liars, (0.5, 1.0, 2.0, 5.0, 1e3)
    rows = rng.standard_normal((DRAWS, honest, 10)) * rng.uniform(0.3, 3, (DRAWS, 1, 10))
    mean, spread = rows.mean(1), rows.std(1)
    pairs = 2 * honest / (honest - 1) * ((rows - mean[:, None]) ** 2).sum(-1).mean(1)
    lies = [mean + scale * spread for scale in far] + [-scale * mean for scale in far] + [rows[:, 0]]
    keys = jax.random.split(jax.random.key(0), DRAWS)
    told = {}
    for name in RULES:
        chosen = bucketed(name)
        merge = jax.jit(jax.vmap(lambda x, key, chosen=chosen: chosen(x, jnp.ones(FEW.clients), key)))
        each = []
        for lie in lies:
            inputs = np.concatenate([rows, np.repeat(lie[:, None], FEW.liars, axis=1)], axis=1)
            each.append(float(((np.asarray(merge(inputs, keys)) - mean) ** 2).sum(-1).mean() / (DELTA * pairs.mean())))
        told[name] = max(each)
    return told


def outvoted() -> list[Claim]:
    """Krum's own limit: with N = 2f + 1 inputs f liars who agree are each other's nearest, with 2f + 3 they are not."""
    claims, liars = [], 4
    for clients, falls in ((2 * liars + 1, True), (2 * liars + 3, False)):
        honest = np.random.default_rng(0).standard_normal((clients - liars, 10))
        rows = jnp.asarray(np.concatenate([honest, np.full((liars, 10), 1e6)]))
        chosen = rule("krum", byzantine=liars)(rows, jnp.ones(clients), jax.random.key(0))
        off = float(np.linalg.norm(np.asarray(chosen) - honest.mean(0)))
        said = f"Krum, {liars} liars who all send one far point, among {clients}: distance to the honest mean"
        if falls:
            claims.append(effect(said, "above 1e5", off, above=1e5, source="theory"))
        else:
            claims.append(effect(said, "below 100", off, below=100, source="theory"))
    return claims
