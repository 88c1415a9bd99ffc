"""Statements about all-for-all's steps and bounds, tried on problems of a line."""

import jax
import jax.numpy as jnp
import numpy as np

from apiece.client.descend import descend
from apiece.methods import CATALOG
from apiece.protocol import Data
from apiece.reproduce.all_for_all.coins import CLIENTS
from apiece.reproduce.repeat import repeated
from apiece.reproduce.verdict import Claim, effect, mean_of, within
from apiece.theory.all_for_all import mixture_bound, sharing


def star() -> list[Claim]:
    """One client like all others, who are unlike each other; everybody's optimum is 0, all start at 1."""
    b = np.full((CLIENTS, CLIENTS), 10.0)
    b[0] = b[:, 0] = 0
    top = sharing(b, 1.0).largest
    half = lambda w, batch, key: w**2 / 2
    nothing = np.zeros((2, CLIENTS, 1))
    left = repeated(
        lambda hyper, round: CATALOG["all_for_all"](half, steps=1, batch=0, bias=b, eps=1.0, lr=hyper["lr"]),
        jnp.ones(()),
        nothing,
        nothing,
        lambda server, models, given: jnp.mean(models**2) / 2,
        rounds=30,
        every=30,
        hyper={"lr": np.array([0.5 * top, 0.5])},  # the method divides by lambda_max
    )[:, 0]
    return [
        within("star of 100: spectral radius of W", 1.0, float(top), by=1e-6),
        effect("star of 100, step 1/(2L): error after 30 steps, from 0.5", "decreases", float(left[0]), below=0.5),
        within("star of 100, step 1/(2L): error after 30 steps", 2e63, left[0], 0.3, source="reference"),
        within("star of 100, step 1/(2L lambda_max): error after 30 steps", 4.6e-3, left[1], 0.02, source="reference"),
    ]


def lemma() -> list[Claim]:
    """f(y) = y'Ay/2, A = diag(1, 0.01), from (0, 1): twenty steps of 1/2, said to leave exp(-10)."""
    f = lambda y, batch, key: jnp.sum(jnp.array([1.0, 0.01]) * y**2) / 2
    data = Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
    start = jnp.array([0.0, 1.0])
    end = descend(f, start, data, jax.random.key(0), steps=20, lr=0.5, batch=0)
    left = float(f(end, None, None) / f(start, None, None))
    return [
        effect("gradient descent where W is nearly singular: f after 20 steps over f before", float(np.exp(-10)), left,
               below=np.exp(-10)),
    ]  # fmt: skip


def one_clients_bound(repetitions: int) -> list[Claim]:
    """All-for-one with one's own gradients alone: f = |x|, one of 100 clients a step, 1000 steps from 1."""
    steps = 1000
    rng = np.random.default_rng(0)
    drawn = np.array([[rng.integers(CLIENTS) for _ in range(steps)] for _ in range(repetitions)])
    own, rate = np.eye(CLIENTS)[0], np.sqrt(1 / (2 * steps * CLIENTS))
    nothing = np.zeros((repetitions, CLIENTS, 1))
    found = repeated(
        lambda hyper, round: CATALOG["all_for_one"](lambda w, batch, key: jnp.abs(w), mixture=own, lr=rate),
        jnp.ones(()),
        nothing,
        nothing,
        lambda x, models, given: jnp.abs(x),
        rounds=steps,
        present=drawn[:, :, None] == np.arange(CLIENTS),
    )
    measured = mean_of((1 + found[:, :-1].sum(axis=1)) / steps)  # a step's error is that before it
    without_n = np.sqrt(2 / steps)
    bound = 1 / (2 * rate * steps) + rate * CLIENTS / 2
    least = mixture_bound(own, np.zeros(CLIENTS), steps)[0]
    return [
        effect("all-for-one, own gradients only: error below the printed bound", float(without_n), measured,
               below=without_n),
        effect("all-for-one, own gradients only: below the bound with N, for the printed step", float(bound), measured,
               below=bound, source="theory"),
        within("all-for-one, own gradients only: error, to 5%", 0.325, measured, 0.05, source="reference"),
        within("all-for-one: bound with N, for the printed step", 0.3354, bound, by=5e-5, source="reference"),
        effect("all-for-one: bound with N for its own best step, which has no 2, is lower", float(bound), float(least),
               below=bound, source="theory"),
    ]  # fmt: skip


def speedups() -> list[Claim]:
    """Five clients: how many times fewer samples than alone, N / sum 1/N_i."""
    p = np.array([0.1, 0.15, 0.2, 0.6, 0.65])
    b = (p[:, None] - p[None]) ** 2 / 2
    claims = []
    for eps, wanted in ((0.004, 2.142857), (0.02, 2.5), (0.2, 2.857143), (1.0, 5.0)):
        shared = sharing(b, eps)
        name = f"five clients, eps = {eps:g}: speed-up over training alone"
        claims.append(within(name, wanted, shared.speedup, by=1e-6, source="reference"))
    inverse = 1 / shared.speedup
    claims.append(within("five clients together: speed-up over training alone as printed", inverse, 5.0, 0.01))
    return claims
