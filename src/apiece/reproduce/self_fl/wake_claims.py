"""What is claimed of the wake word, as effects."""

import numpy as np

from apiece.reproduce.self_fl.detectors import OWN, SHARED, overall
from apiece.reproduce.verdict import Claim, effect, mean_of, ratio_of, weakest, within

PUBLISHED = {SHARED: (0.92, 0.94, 0.91, 0.91, 1.01), OWN: (0.93, 0.91, 0.90, 0.90, 0.99)}  # of Self-FL
OTHERS = {  # means of the published rows, relative to the warm start
    "fed_avg (e)": {SHARED: 0.97, OWN: 0.944},
    "ditto (e)": {SHARED: 0.968, OWN: 0.946},
    "maml_fl": {SHARED: 1.012, OWN: 1.028},
}
INDEPENDENT = {  # by other code, on the same five groups
    "self_fl (corrected)": (0.818, 0.735), "fed_avg (e)": (0.839, 0.765), "ditto (e)": (0.823, 0.664),
}  # fmt: skip
FORMS = ("self_fl", "self_fl (corrected)")  # of Algorithm 1

Rates = dict[str, dict[str, np.ndarray]]  # method -> false accepts, as `false_accept_rates` has them


def below_warm_start(rates: Rates) -> list[Claim]:
    """Does Self-FL reduce false accepts?"""
    claims = []
    for name in (name for name in rates if name.startswith("self_fl")):
        for kind in (SHARED, OWN):
            told = f"below 1 ({np.mean(PUBLISHED[kind]):.2f})"
            what = f"{name}, {kind}: false accepts relative to the warm start, all types, below 1"
            source = "paper" if name in FORMS else "here"
            claims.append(effect(what, told, overall(rates[name], kind), below=1, source=source))
    return claims


def weights(rates: Rates) -> list[Claim]:
    """The published harm of weighting by size."""
    claims = []
    for method in ("fed_avg", "ditto"):
        if f"{method} (w)" in rates:
            by_size, equally = (rates[f"{method} ({how})"][SHARED].mean(axis=1) for how in "we")
            what = f"{method}, shared: false accepts weighted by size over those weighted equally, above 2"
            claims.append(effect(what, "4 to 13", ratio_of(by_size, equally), above=2))
    return claims


def compared(rates: Rates) -> list[Claim]:
    """Over all types: against each rival, and Algorithm 2 against Algorithm 1."""
    claims = []
    total = lambda name, kind: rates[name][kind].mean(axis=1)
    for name in (*FORMS, "self_fl (default)"):
        for kind in (SHARED, OWN):
            for other, published in OTHERS.items():
                told = f"below 1 ({np.mean(PUBLISHED[kind]) / published[kind]:.2f})"
                what = f"{name}, {kind}: false accepts over those of {other}, all types, below 1"
                source = "paper" if name in FORMS else "here"
                ratio = ratio_of(total(name, kind), total(other, kind))
                claims.append(effect(what, told, ratio, below=1, source=source))
    ratio = ratio_of(total("self_fl (augmented)", SHARED), total("self_fl (corrected)", SHARED))
    what = "self_fl (augmented), shared: false accepts over those of self_fl (corrected), about 1 (to 10%)"
    return [*claims, effect(what, "about 1 (1.00)", ratio, above=0.9, below=1.1)]


def best_on(rates: Rates) -> list[Claim]:
    """On each of the types A to D: by how much FedAvg's, Ditto's and Per-FedAvg's false accepts are more, at least."""
    claims = []
    for mine in FORMS:
        for kind in (SHARED, OWN):
            others = [name for name in rates if not name.startswith(("self_fl", "local"))]
            gaps = [
                mean_of(100 * (rates[name][kind][:, g] - rates[mine][kind][:, g])) for name in others for g in range(4)
            ]
            what = f"{mine}, {kind}: false accepts below every other method's on each of A to D, least gap in points"
            claims.append(effect(what, "above 0", weakest(gaps), above=0))
    return claims


def matched(rates: Rates) -> list[Claim]:
    """An independent program on the same groups, with warm starts of its own: to 15 %."""
    return [
        within(f"{name}, {kind}: false accepts relative to the warm start, to 15%", wanted, overall(rates[name], kind),
               0.15, source="reference")
        for name, both in INDEPENDENT.items() for kind, wanted in zip((SHARED, OWN), both, strict=True)
    ]  # fmt: skip


def levels(many: Rates) -> list[Claim]:
    """Twenty clients, a quarter a round: clusters by their latest models, over clients by themselves."""
    claims = []
    for name in ("types", "variances"):
        ratio = ratio_of(*(many[each][SHARED].mean(axis=1) for each in (name, "clients")))
        what = f"twenty clients, shared: false accepts with clusters by {name} over those without clusters, below 1"
        claims.append(effect(what, "below 1", ratio, below=1))
    return claims
