"""What is left of FFGG's gradient when each inner problem is solved by a few steps only."""

import numpy as np

from apiece.reproduce.verdict import Claim, effect, stated, within

MODES = {"consistent": True, "random": False}
SHORT = {"cg": "CG", "gradient": "GD"}
FLOORS = {
    ("cg", "consistent"): {1: 5.00e-3, 2: 3.66e-4, 3: 2.05e-5, 5: 1.28e-6, 10: 1.81e-12, 20: 2.75e-14},
    ("cg", "random"): {1: 1.05e-2, 2: 5.69e-4, 3: 4.56e-5, 5: 1.80e-7, 10: 3.35e-12, 20: 1.19e-13},
    ("gradient", "consistent"): {100: 2.67e-3, 200: 1.39e-3, 500: 1.99e-4, 2000: 1.81e-8},
    ("gradient", "random"): {100: 5.59e-3, 200: 2.90e-3, 500: 4.10e-4, 2000: 3.39e-8},
}
CHAOS = {("cg", "random", 1): (0.01, 0.115), ("cg", "consistent", 5): (6e-8, 4e-6)}  # from round to round
ROUNDING = 1e-10  # lengths start at a hundred: what is below is rounding

Floors = dict[tuple[str, str], dict[int, float]]  # (solver, mode) -> inner steps -> |F| after many rounds


def floor_claims(floors: Floors, quick: bool) -> list[Claim]:
    """They fall with the number of steps; how low, by the reference and as published."""
    claims = []
    for (solver, mode), found in floors.items():
        name = f"{mode}, {SHORT[solver]}"
        values = np.maximum(list(found.values()), ROUNDING)
        falls = bool((np.diff(values)[values[:-1] > ROUNDING] < 0).all())
        ratio = min(found.values()) / max(found.values())
        claims.append(stated(f"{name}: the floor falls with every try (last over first)", "yes", ratio, falls))
        for steps, value in FLOORS[solver, mode].items() if not quick else ():
            low, high = CHAOS.get((solver, mode, steps), (value, value))
            published = value if low == high else f"{low} to {high}"
            # The order of magnitude, or rounding on both sides.
            alike = low / 3 <= found[steps] <= 3 * high or max(value, found[steps]) < ROUNDING
            claims.append(stated(f"{name} {steps}: floor", published, found[steps], alike, source="reference"))
    ten = floors["cg", "consistent"][10]
    claims.append(effect("CG 10: floor, as published, up to a factor of 3", 1e-4, ten, above=1e-4 / 3, below=3e-4))
    if not quick:
        last = max(floors["cg", mode][steps] for mode in MODES for steps in (30, 40))
        claims.append(effect("CG 30 and 40: exact (largest floor)", "0", last, below=ROUNDING))
    return claims


def why_so_low() -> list[Claim]:
    """Entries are all positive, so B'B has one large eigenvalue, and the others are much alike: CG is done soon."""
    b = np.random.default_rng(0).random((10_000, 50)) / 50
    values = np.linalg.eigvalsh(b.T @ b)
    what = "B of 10,000 rows, drawn alone"
    rows = (
        (f"{what}: largest eigenvalue of B'B", 50.36, values[-1], 0.005),
        (f"{what}: second largest", 0.379, values[-2], 5e-4),
        (f"{what}: smallest", 0.290, values[0], 5e-4),
        (f"{what}: condition of all but the largest", 1.31, values[-2] / values[0], 0.005),
    )
    return [within(name, value, ours, by=by, source="reference") for name, value, ours, by in rows]
