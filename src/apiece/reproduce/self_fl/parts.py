"""Self-FL taken apart: which of its three adjustments does the work, and what smoothing costs with one client a round.

The paper says that the adjusted start contributes most, and shows that with one client in fifty a round convergence is
slow. Here both are asked of the synthetic means, for which the paper does not say the first.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from apiece.reproduce.self_fl.gaussian_clients import CENTRE, DRAWN, STEPS, Clients, drawn, joined, played, self_fl
from apiece.reproduce.verdict import Claim, effect, ratio_of

ROUNDS = 200
SETTINGS = [(case, share) for case in (1, 2) for share in (0.1, 1.0)]
PARTS = {"start": "adapt_init", "steps": "adapt_steps", "weights": "adapt_weights"}


def errors(every: Clients, **how: Any) -> np.ndarray:
    """[2, repetitions]: of the shared estimate, and the mean one of the clients' own; rule "paper"."""
    look = lambda x, own, theta: (jnp.abs(x - CENTRE), jnp.abs(own - theta).mean())
    return np.stack(played(self_fl(every, "paper", **how), every, look, ROUNDS))


def adjustments() -> list[Claim]:
    """Each of the three alone, unsmoothed, with FedAvg's fifty steps where their number is not adjusted."""
    every = joined([drawn(case, share, DRAWN, ROUNDS) for case, share in SETTINGS])
    own = {
        part: errors(every, l_default=STEPS, **{each: each == option for each in PARTS.values()})[1]
        for part, option in PARTS.items()
    }
    claims = []
    for k, (case, share) in enumerate(SETTINGS):
        found = {part: samples.reshape(len(SETTINGS), -1)[k] for part, samples in own.items()}
        rest = min((found[part] for part in ("steps", "weights")), key=np.mean)
        ratio = ratio_of(found["start"], rest)
        what = "the start adjusted alone: own error over the least with steps or weights alone"
        name = f"case {case}, C = {share:g}, {what}"
        claims.append(effect(name, "below 1: it contributes most", ratio, below=1, source="here"))
    return claims


def one_client_a_round(everybody: np.ndarray) -> list[Claim]:
    """Case 1, C = 0.05; `everybody`: shared errors [repetitions] at C = 1 after as many rounds."""
    alone = drawn(1, 0.05, DRAWN, ROUNDS)
    smooth, plain = (ratio_of(errors(alone, smoothing=on)[0], everybody) for on in (True, False))
    what = "case 1, one client of 20 a round: shared error after 200 rounds over that at C = 1"
    return [
        effect(f"{what}, smoothed, above 2 (published for C = 0.02)", "slow", smooth, above=2),
        effect(f"{what}, unsmoothed", "below 2", plain, below=2, source="here"),
    ]
