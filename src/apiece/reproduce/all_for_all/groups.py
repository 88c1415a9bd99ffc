"""Networks in groups that nobody has named: all-for-all by default, beside those who know them, IFCA, Ditto and alone.

Even, Massoulié and Scaman 2022 prove what similar clients gain and try it on means; networks and measured similarities
are no part of it. An independent run on digits in two groups of labels had 94.2 for all-for-all with step 1, 94.7 with
the true groups, 82.8 alone, 50.0 for FedAvg and 90.3 for Ditto.

20 clients share the 1,797 digits of scikit-learn, about 54 to train on each; every second client names each digit one
further than it is. Labels are even (Dirichlet 100 a client) or skewed as well (Dirichlet 1), which looks like groups
where there are none. A network 64-64-10, everybody in each of 100 rounds, all methods with their default options:
twenty steps on batches of 32. A repetition deals the digits anew.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from apiece.data import Federation, digits
from apiece.experiment.fit import Fit, fit
from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.verdict import Claim, Mean, Reproduction, effect, mean_of

CLIENTS, ROUNDS = 20, 100
LABELS = {"even": 100.0, "skewed": 1.0}
KINDS = [client % 2 for client in range(CLIENTS)]
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "all_for_all": ("all_for_all", {}),
    "true groups": ("all_for_all", {"clusters": KINDS}),
    "ifca": ("ifca", {}),
    "ditto": ("ditto", {}),
    "local": ("local", {}),
    "fed_avg": ("fed_avg", {}),
}


def run(quick: bool, watch: Watch) -> Reproduction:
    """The reproduction; a quick one has skewed labels alone, four times."""
    repetitions, labels = (4, ("skewed",)) if quick else (10, tuple(LABELS))
    claims: list[Claim] = []
    panels: list[Panel] = []
    table: dict[str, dict[str, float]] = {}
    for name in labels:
        right: dict[str, list[float]] = {rival: [] for rival in RIVALS}
        pairs = []
        for seed in range(repetitions):
            made = in_two_groups(LABELS[name], seed)
            for rival, (method, options) in RIVALS.items():
                found = fit(method, federation=made, model="mlp", rounds=ROUNDS, seed=seed, options=options)
                right[rival].append(100 * found.evaluate()["test"]["accuracy"]["mean"])
                if rival == "all_for_all":
                    pairs.append(pairs_found(found))
            watch(f"{name} labels", seed + 1, repetitions)
        means = {rival: mean_of(values) for rival, values in right.items()}
        claims += [*found_claims(name, np.array(pairs)), *claims_of(name, right, quick)]
        table |= {f"{name}, {rival}": _row(mean) for rival, mean in means.items()}
        every = np.arange(1.0, repetitions + 1)
        lines = [Line(rival, every, values) for rival, values in right.items()]
        panels.append(Panel(f"{name} labels", "repetition", "test accuracy, %", lines))
    figure = Figure(
        "Networks in two groups of labels",
        "Accuracy of each client's own model on its test examples, mean over clients, with default options.",
        panels,
    )
    settings = {"clients": CLIENTS, "rounds": ROUNDS, "repetitions": repetitions, "accuracy, %": table}
    return Reproduction(claims, figure, settings)


def in_two_groups(alpha: float, seed: int) -> Federation:
    """The digits, dealt by a Dirichlet law; every second client names each of them one further."""
    made = digits(clients=CLIENTS, alpha=alpha, seed=seed)
    for split in (made.train, made.validation, made.test):
        owner = np.repeat(np.arange(CLIENTS), np.diff(split.offsets))
        split.y[:] = (split.y + owner % 2) % 10
    return made


def pairs_found(found: Fit) -> tuple[float, float]:
    """Shares of the pairs of one kind, and of the pairs of two, that learn from one another."""
    partners = found.partners()
    kinds = np.array([int(client) % 2 for client in partners.clients])
    same, others = kinds[:, None] == kinds, ~np.eye(len(kinds), dtype=bool)
    near = partners.weights > 0
    return float(near[same & others].mean()), float(near[~same].mean())


def found_claims(labels: str, pairs: np.ndarray) -> list[Claim]:
    """How often the groups come out: repetitions are counted, as one that finds none is far from one that finds all."""
    exact, wrong = int(((pairs[:, 0] == 1) & (pairs[:, 1] == 0)).sum()), int((pairs[:, 1] > 0).sum())
    return [
        effect(f"{labels} labels: share of repetitions that find the two groups exactly", "above 0.5",
               share_of(exact, len(pairs)), above=0.5, source="here"),
        effect(f"{labels} labels: share of repetitions that join clients of two kinds", "below 0.5",
               share_of(wrong, len(pairs)), below=0.5, source="here"),
    ]  # fmt: skip


def share_of(times: int, of: int) -> Mean:
    """A share with its exact interval (Clopper and Pearson), which none and all have, too.

    >>> [round(end, 3) for end in share_of(4, 4).interval]
    [0.398, 1.0]
    """
    low, high = stats.binomtest(times, of).proportion_ci(0.95)
    return Mean(times / of, float("nan"), (float(low), float(high)))


def claims_of(labels: str, right: Mapping[str, list[float]], quick: bool) -> list[Claim]:
    """What a user is promised of the defaults; differences are paired by repetition."""
    less = lambda rival: mean_of(np.subtract(right["all_for_all"], right[rival]))
    claim = lambda what, ours, **range: effect(f"{labels} labels: {what}", _words(range), ours, source="here", **range)
    rivals = {"training alone": "local", "fed_avg": "fed_avg", "ditto": "ditto", "ifca": "ifca"}
    claims = [claim(f"all_for_all less {said}, points", less(rival), above=0.0) for said, rival in rivals.items()]
    # Groups that are missed now and then decide this one, and four repetitions do not meet them.
    return (
        claims
        if quick
        else [*claims, claim("all_for_all less the true groups, points", less("true groups"), above=-2.0)]
    )


def _words(range: Mapping[str, float]) -> str:
    return ", ".join(f"{side} {end:g}" for side, end in range.items())


def _row(mean: Mean) -> dict[str, float]:
    return {"mean": round(mean.value, 2), "low": round(mean.interval[0], 2), "high": round(mean.interval[1], 2)}
