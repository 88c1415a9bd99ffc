"""FFGG against methods that share everything, on its example with 1000 rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apiece.reproduce.ffgg.example import Example, Rivals, case
from apiece.reproduce.verdict import Claim, effect, stated, within

ROUNDS = (0, 10, 100, 300, 600, 1000)
SMALL = (13.87, 0.04611, 0.02592, 0.007234, 0.001075, 8.586e-5)
ENDS = {100: 1.033e-3, 200: 5.627e-4, 500: 1.241e-4}  # 1000 rows, 1000 rounds, gradient steps


def rivals_of(made: Example, quick: bool, rounds: int) -> dict[str, Any]:
    """|F| every ten rounds, [looks], and for L2GD [seeds, looks]; and what L2GD's printed step does."""
    steps, seeds = (10, 1) if quick else (100, 3)
    whole, small = Rivals(made.curvature, made.force), case(made.f)
    lr = 1 / (whole.smoothness * steps)
    lengths = lambda thetas: np.array([small.length(theta) for theta in thetas])
    found = {"fed_avg": lengths(whole.thetas(whole.engine("fed_avg", steps=steps, lr=lr), lambda s: s, rounds))}
    if not quick:
        controlled = whole.engine("scaffold", steps=steps, lr=lr, server_lr=0.5)
        found["scaffold"] = lengths(whole.thetas(controlled, lambda s: s[0], rounds))
    p, lam = 1 / steps, 0.1
    engine = whole.engine("l2gd", p=p)
    pulled = lambda rounds, seed, **how: lengths(whole.thetas(engine, lambda s: s.x, rounds, seed, **how))
    constant = lambda steeper: max(steeper * whole.smoothness / (1 - p), lam / p)
    right = 1 / (2 * constant(1))
    # The same clients with every loss ten times as large (lr times ten and lam by ten say the same of these): the
    # printed step grows with them.
    ten_times = lambda lr: pulled(10, 0, lr=10 * lr, lam=lam / 10)[-1]
    return found | {
        "l2gd": [pulled(rounds, seed, lr=right, lam=lam) for seed in range(seeds)],
        "printed": ten_times(constant(10) / (2 * len(made.force) ** 2)),
        "corrected": ten_times(1 / (2 * constant(10))),
    }


def small_claims(exact: NDArray, rivals: dict[str, Any], rounds: int) -> list[Claim]:
    """The comparison on 1000 rows."""
    claims = [
        within(f"1000 rows, exact: |F| after {r} rounds", value, exact[r], share=6e-4, source="reference")
        for r, value in zip(ROUNDS, SMALL, strict=True)
        if r <= rounds
    ]
    printed, corrected = rivals["printed"], rivals["corrected"]
    ending = "converges" if printed < exact[0] else "diverges"
    return [
        *claims,
        stated("l2gd, printed step, losses ten times as large", "converges", ending, ending == "converges"),
        effect("l2gd, inverse of the printed constant, the same losses: |F| after 10 rounds", "below 1",
               float(corrected), below=1, source="theory"),
    ]  # fmt: skip


def long_claims(tuned: dict[int, NDArray], rivals: dict[str, Any]) -> list[Claim]:
    """After 1000 rounds on 1000 rows, by the library's methods."""
    ends = [tuned[steps][-1] for steps in ENDS]
    plateau = float(np.array(rivals["l2gd"])[:, 60:].mean())
    return [
        *(within(f"1000 rows, GD {steps}: |F| after 1000 rounds", value, ours, share=6e-4, source="reference")
          for (steps, value), ours in zip(ENDS.items(), ends, strict=True)),
        *(within(f"1000 rows, {name}: |F| after 1000 rounds", value, rivals[name][-1], share=6e-4, source="reference")
          for name, value in (("fed_avg", 7.468e-3), ("scaffold", 1.877e-2))),
        within("1000 rows, l2gd: |F| on its plateau (rounds 610 to 1000)", 1.48e-3, plateau, share=0.1,
               source="reference"),
    ]  # fmt: skip
