"""All-for-all on a hundred means: exact, noisy and estimated similarities.

Even, Massoulié and Scaman 2022 estimate the chances p_i, uniform on [0, 1], of a hundred coins, each tossed a thousand
times, with the loss (x - toss)^2 / 2, everybody in every round, and b_ij = (p_i - p_j)^2 / 2, exact or from chances
that are up to `noise` off. The error is (1/N) sum_i (x_i - p_i)^2 / 2, against tosses a client. They publish curves,
not numbers, and no schedule. Chosen here: the start 1/2; phases of precision 1/2, 1/4, ... with the theory's steps for
L = mu = 1 and sigma^2 = 1/4; ten repetitions. "all_for_all (balanced)" instead lets the precision follow the noise
that is left in every round, and "(short phases)" has phases half as long. Beyond the paper: b estimated from the tosses
themselves, by the plain squared difference of means, by that freed of noise ("unbiased"), or by an upper bound one
standard error up ("upper"); what happens when models do not start together, or keep going when b is estimated anew; and
three statements about steps and bounds that do not hold as printed. The reference numbers come from a NumPy program on
the same tosses.
"""

from typing import Any

import numpy as np

from apiece.estimate import similarity
from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.all_for_all import coins
from apiece.reproduce.all_for_all.coins import (
    CLIENTS,
    LOOKS,
    Tosses,
    chances_of,
    clusters,
    error,
    estimated,
    followed,
    tossed,
)
from apiece.reproduce.all_for_all.steps import lemma, one_clients_bound, speedups, star
from apiece.reproduce.verdict import Claim, Reproduction, effect, mean_of, ratio_of, stated, weakest, within
from apiece.theory.all_for_all import sharing

TIMES = (10, 30, 100, 300, 1000)
AT = [LOOKS.index(t) for t in TIMES]
NOISES = (0.02, 0.08, 0.18, 0.32, 0.5)
SHORT = "all_for_all (short phases)"
SOME = 6  # repetitions with b estimated
REFERENCE = {
    "local": (0.008513, 0.002760, 0.000941, 0.000285, 0.000085),
    "fed_avg": (0.041068, 0.040954, 0.040957, 0.040950, 0.040948),
    "mixed running means": (0.000986, 0.000388, 0.000218, 0.000096, 0.000038),
    "all_for_all": (0.001270, 0.000419, 0.000164, 0.000081, 0.000038),
    "all_for_all (balanced)": (0.000980, 0.000317, 0.000161, 0.000075, 0.000033),
    SHORT: (0.000708, 0.000231, 0.000134, 0.000065, 0.000032),
    "noise 0.02": (0.001445, 0.000491, 0.000209, 0.000128, 0.000071),
    "noise 0.08": (0.002444, 0.001260, 0.000915, 0.000751, 0.000615),
    "noise 0.18": (0.005860, 0.004190, 0.003577, 0.003094, 0.002583),
    "noise 0.32": (0.012619, 0.010749, 0.009568, 0.008578, 0.007267),
    "noise 0.5": (0.020697, 0.018062, 0.015994, 0.014321, 0.012269),
}
# At t = 1000, by how b is estimated, with phases started anew: for uniform chances, and for four kinds of coins.
ESTIMATES = {
    "plain": (1.28e-4, 4.0e-5),
    "unbiased": (1.39e-4, 2.6e-5),
    "upper": (9.3e-5, 7.3e-5),
    "oracle": (3.2e-5, 4e-6),
}
# Other starts: the options of `estimated`, and the error for uniform chances.
UNSTARTED = "b unbiased, phases go on"
STARTS: dict[str, tuple[dict[str, Any], float]] = {
    UNSTARTED: (dict(how="unbiased", restart=False), 6.1e-3),
    "b oracle, phases go on": (dict(how="oracle", restart=False), 3.5e-5),
    "b oracle, begun at local means": (dict(how="oracle", restart=False, common=False), 0.0118),
}

Errors = dict[str, np.ndarray]  # by method: [repetitions, looks]


def run(quick: bool, watch: Watch) -> Reproduction:
    """`quick`: 3 of the 10 repetitions, two noise levels, and b known."""
    repetitions, noises = (3, (0.08, 0.5)) if quick else (10, NOISES)
    watch("b known", 0, 4)
    errors = known(repetitions, noises, quick)
    claims = [*agreement(errors, quick), *collaboration(errors, noises)]
    found: Errors = {}
    if not quick:
        watch("b estimated", 1, 4)
        found = unknown([tossed(r, chances_of(r)) for r in range(SOME)])
        claims += starting_points(found, errors["local"][:SOME])
        watch("b estimated, four kinds of coins", 2, 4)
        claims += separated([tossed(r, clusters()) for r in range(SOME)])
    watch("steps and bounds", 3, 4)
    claims += [*star(), *([] if quick else lemma()), *one_clients_bound(50 if quick else 200), *speedups()]
    settings = dict(
        clients=CLIENTS, tosses=coins.TOSSES, repetitions=repetitions, estimated_repetitions=len(found) and SOME
    )
    return Reproduction(claims, figure(errors, found), settings, NOTES)


NOTES = (
    "A quick run leaves out what has b estimated, the other two schedules and three noise levels.",
    "Noise in b is a bias that more tosses do not remove: from about a hundred tosses on, coins whose chances are "
    "believed to be closer than they are do worse together than alone, unless the noise is small (0.02).",
    "With a continuum of coins no estimate of b made from the same tosses beat training alone; with four separate "
    "kinds of coins each did.",
)


def known(repetitions: int, noises: tuple[float, ...], quick: bool) -> Errors:
    """Every method with the true b, and all-for-all with noisy ones."""
    runs = [tossed(r, chances_of(r)) for r in range(repetitions)]
    off = lambda models, runs: np.array([error(m, tosses.chances) for m, tosses in zip(models, runs, strict=True)])
    means = followed(coins.alone, runs)
    errors = {"local": off(means, runs), "fed_avg": off(followed(coins.as_one, runs), runs)}
    errors["mixed running means"] = np.array([mixed(m, tosses) for m, tosses in zip(means, runs, strict=True)])
    noisy = [tossed(r, chances_of(r), noise) for noise in noises for r in range(repetitions)]
    found = off(followed(coins.in_phases([*runs, *noisy]), [*runs, *noisy]), [*runs, *noisy])
    names = ["all_for_all", *(f"noise {noise:g}" for noise in noises)]
    errors |= dict(zip(names, found.reshape(len(names), repetitions, -1), strict=True))
    if not quick:
        errors["all_for_all (balanced)"] = off(followed(coins.balanced(runs), runs), runs)
        errors[SHORT] = off(followed(coins.in_phases(runs, 0.5), runs), runs)
    return errors


def mixed(means: np.ndarray, tosses: Tosses) -> np.ndarray:
    """[looks]: everybody's mixture of all running means, as naive all-for-one would have it, the precision balanced."""
    eps = coins.balance(tosses.b)[np.array(LOOKS) - 1]
    shared = [similarity.combine(similarity.neighbours(tosses.b, e), m) for e, m in zip(eps, means, strict=True)]
    return error(np.array(shared), tosses.chances)


def agreement(errors: Errors, quick: bool) -> list[Claim]:
    """With the reference: the same tosses in a full run; in a quick run, the first of them, up to 30%."""
    share, claims, agreed = (0.3 if quick else 0.0), [], 0
    for name, samples in errors.items():
        for t, at, wanted in zip(TIMES, AT, REFERENCE[name], strict=True):
            who = f"all_for_all, {name}" if name.startswith("noise") else name
            claim = within(
                f"{who}: error at t = {t}", wanted, float(samples[:, at].mean()), share, 1e-6, source="reference"
            )
            agreed += claim.holds
            claims += [claim] if name in ("all_for_all", SHORT) or t == 1000 else []
    number = len(errors) * len(TIMES)
    every = stated("numbers of the reference table that come out", number, agreed, agreed == number, source="reference")
    return [*claims, every]


def collaboration(errors: Errors, noises: tuple[float, ...]) -> list[Claim]:
    """Is learning together better than alone, and than as one?"""
    mean = {name: samples.mean(axis=0) for name, samples in errors.items()}
    gains = [ratio_of(errors[other][:, at] - errors["all_for_all"][:, at], errors[other][:, at])
             for at in range(len(LOOKS)) for other in ("local", "fed_avg")]  # fmt: skip
    name = "b exact: least share of the error of local and of fed_avg that all_for_all saves, t >= 10"
    claims = [effect(name, "above 0", weakest(gains), above=0)]
    for t, at, wanted in zip(TIMES, AT, (6.7, 6.6, 5.7, 3.5, 2.2), strict=True):
        ratio = ratio_of(errors["local"][:, at], errors["all_for_all"][:, at])
        claims.append(
            within(
                f"b exact: error of local over that of all_for_all, t = {t}", wanted, ratio.value, 0.3, 0, "reference"
            )
        )
    for noise in noises:
        for t, at in ((10, 0), (1000, -1)):
            ratio = ratio_of(errors[f"noise {noise:g}"][:, at], errors["local"][:, at])
            name = f"b with noise {noise:g}: error over that of local, t = {t}"
            claims.append(effect(name, "below 1 at every noise level", ratio, below=1))
    better = np.flatnonzero(mean["noise 0.08"] < mean["local"])
    since = LOOKS[better[-1] + 1]
    name = "b with noise 0.08: tosses from which on it does worse than local"
    claims.append(effect(name, "about 100", float(since), above=70, below=200, source="reference"))
    return claims


def unknown(runs: list[Tosses]) -> Errors:
    """b estimated at each phase, for uniform chances."""
    found = {f"b {how}": estimated(runs, how) for how in ESTIMATES}
    return found | {name: estimated(runs, **STARTS[name][0]) for name in STARTS}


def starting_points(found: Errors, local: np.ndarray) -> list[Claim]:
    """What the estimates are worth, and where the models have to start."""
    last = {name: samples[:, -1] for name, samples in found.items()}
    least = ratio_of(min((last[name] for name in ("b plain", "b unbiased", "b upper")), key=np.mean), local[:, -1])
    kept = ratio_of(last[UNSTARTED], last["b unbiased"])
    name = "chances uniform: error with the best estimate of b over that of local, t = 1000"
    claims = [
        effect(name, "above 1", least, above=1, source="reference"),
        within("b unbiased: error if phases go on over that if each starts anew", 44, kept.value, 0.3, 0, "reference"),
    ]
    wanted = {f"b {how}": pair[0] for how, pair in ESTIMATES.items()} | {name: STARTS[name][1] for name in STARTS}
    return [*claims, *(to_two_digits(f"{name}, chances uniform", wanted[name], found[name][:, -1]) for name in wanted)]


def to_two_digits(name: str, wanted: float, samples: np.ndarray) -> Claim:
    """As many as the reference has."""
    return within(f"{name}: error at t = 1000", wanted, float(samples.mean()), 0.02, 0.5e-6, source="reference")


def separated(runs: list[Tosses]) -> list[Claim]:
    """Four kinds of coins, 25 each."""
    found = {how: estimated(runs, how, warm=10, looks=LOOKS[1:]) for how in ESTIMATES}
    alone = float(np.mean(clusters() * (1 - clusters()))) / 2000
    rows = [to_two_digits(f"b {how}, four kinds", ESTIMATES[how][1], found[how][:, -1]) for how in ESTIMATES]
    worst = mean_of(max((found[how][:, -1] for how in ESTIMATES), key=np.mean) / alone)
    ratio = ratio_of(np.full(len(runs), alone), found["oracle"][:, -1])
    speedup = sharing(runs[0].b, 0.01).speedup
    return [
        *rows,
        within("four kinds: expected error of local at t = 1000", 7.9e-5, alone, 0.02, source="reference"),
        effect("four kinds: error with the worst estimate of b over that of local", "below 1", worst, below=1,
               source="reference"),
        within("four kinds, b exact: error of local over that of all_for_all", speedup, ratio, 0.3, 0, "theory"),
    ]  # fmt: skip


def figure(errors: Errors, found: Errors) -> Figure:
    """Errors against tosses a client, b known and b estimated."""

    def line(name: str, samples: Any, style: int) -> Line:
        means = [mean_of(column) for column in samples.T]
        low, high = zip(*(mean.interval for mean in means), strict=True)
        # An interval of few repetitions may reach below 0, where the axis has no place: to the least of them, then.
        above = np.where(np.array(low) > 0, low, samples.min(axis=0))
        return Line(name, LOOKS[-samples.shape[1] :], samples.mean(axis=0), above, high, style=style)

    exact = ("local", "fed_avg", "all_for_all", "all_for_all (balanced)")
    noisy = ("local", "all_for_all", *(f"noise {noise:g}" for noise in NOISES))
    left_out = "b oracle, phases go on"  # which is hardly to be told from that with restarts
    guessed = {"local": errors["local"][:SOME]} | {name: found[name] for name in found if name != left_out}
    axes = ("tosses a client", "mean error (x_i - p_i)^2 / 2")
    style = {name: at for at, name in enumerate(dict.fromkeys((*exact, *noisy)))}
    panels = [
        Panel("b exact", *axes, [line(n, errors[n], style[n]) for n in exact if n in errors], True, True),
        Panel("b with noise", *axes, [line(n, errors[n], style[n]) for n in noisy if n in errors], True, True),
        Panel("b estimated", *axes, [line(n, s, k) for k, (n, s) in enumerate(guessed.items())], True, True),
    ]
    return Figure(
        "A hundred coins, learned together",
        "Means over repetitions with 95% intervals. all_for_all: the theory's phases, b exact unless said otherwise; "
        "noise: what is believed of the chances is up to that far off; b plain, unbiased, upper: estimated from the "
        "tosses themselves, anew at each phase, which then starts at mixed local means; b oracle: the true one.",
        panels if found else panels[:2],
    )
