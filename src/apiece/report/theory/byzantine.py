"""`apiece theory byzantine`: how many forgers, how large a step, how late a reply is proved to be withstood (FFGG)."""

import numpy as np

from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.report.theory import Prediction, require
from apiece.theory import ffgg


def byzantine(
    convexity: float,
    smoothness: float,
    similarity: float,
    honest: int,
    forgers: int,
    growth: float = 1.0,
    rule: float = 1.0,
    active: int = 8,
    delay: int = 10,
) -> Prediction:
    """Steps and rates with forged and with late replies, and whether so many forgers are within what is proved.

    >>> found = byzantine(0.5, 1.5, 1.5, 16, 4)
    >>> found.numbers["withstood"], round(found.numbers["largest_share"], 6), round(found.numbers["step"], 6)
    (False, 0.039062, 0.116822)
    """
    require("above 0", convexity=convexity, smoothness=smoothness, similarity=similarity, rule=rule)
    require("at least 0", forgers=forgers)
    require("at least 1", honest=honest, growth=growth, active=active, delay=delay)
    share = forgers / (honest + forgers)
    same = {"growth": growth, "rule": rule}
    largest = min(ffgg.byzantine_share(convexity, smoothness, similarity, honest, **same), 0.5)
    step = ffgg.byzantine_step(smoothness, similarity, honest, share, **same)
    factor = ffgg.byzantine_rate(convexity, smoothness, step)
    late = ffgg.late_step(smoothness, active, delay)
    proved = bool(share <= largest)
    numbers = {
        "share": share,
        "largest_share": largest,
        "withstood": proved,
        "step": step,
        "rate": factor,
        "rounds_to_a_tenth": float(np.log(10) / -np.log(factor)),
        "honest_step": 1 / smoothness,
        "late_step": late,
        "settings": {
            "convexity": convexity, "smoothness": smoothness, "similarity": similarity, "honest": honest,
            "forgers": forgers, "active": active, "delay": delay, **same,
        },
    }  # fmt: skip
    if_proved = lambda text: text if proved else f"{text} (not proved)"
    rows = [
        ["share of forgers", number(share)],
        ["largest share that is proved to be withstood", number(largest)],
        ["step with these forgers", if_proved(number(step))],
        ["factor on the squared distance, a round", if_proved(number(factor, 5))],
        ["rounds for a tenth of it", if_proved(number(numbers["rounds_to_a_tenth"]))],
        ["step with honest clients alone", number(1 / smoothness)],
        [f"step with {active} at work, replies up to {delay} late", number(late)],
    ]
    verdict = "within" if proved else "beyond"
    notes = (
        f"{forgers} of {honest + forgers} clients forge: {verdict} what is proved.",
        "For clients that share an optimum, and bucketing with Krum, the median or the geometric median. The proof is "
        "careful: in experiments Krum and the median withstood a fifth of forgers. If optima differ an error remains, "
        "and no rule removes it under every attack.",
        "similarity: how fast honest gradients grow apart; equal clients have 0. growth: 1 for exact replies.",
    )
    figure = _figure(convexity, smoothness, similarity, honest, share, same, active, delay)
    return Prediction(numbers, Grid("Forged and late replies", ("", "value"), rows), figure, notes)


def _figure(mu: float, L: float, l: float, honest: int, share: float, same: dict, active: int, delay: int) -> Figure:
    unlike = np.geomspace(min(l, 0.01 * L), max(l, 10 * L), 121)
    delays = np.geomspace(1, max(100.0, 2 * delay), 121)
    counts = sorted({max(2, honest // 4), honest, 4 * honest})
    capped = lambda count: np.minimum(ffgg.byzantine_share(mu, L, unlike, count, **same), 0.5)
    steps = []
    for unlikeness in (l / 10, l, 10 * l):
        most = ffgg.byzantine_share(mu, L, unlikeness, honest, **same)
        withstood = np.linspace(0, min(most, 0.49), 60)
        steps.append((unlikeness, withstood, ffgg.byzantine_step(L, unlikeness, honest, withstood, **same)))
    return Figure(
        "Forged and late replies (FFGG)",
        f"mu = {number(mu)}, L = {number(L)}, similarity {number(l)}, {honest} honest clients, share of forgers "
        f"{number(share)}. Proved conditions, each line as far as it is proved; what is possible is more.",
        [
            Panel("How many forgers", "similarity constant of honest clients", "largest share of forgers",
                  [Line(f"{count} honest clients", unlike, capped(count)) for count in counts], log_x=True),
            Panel("How large a step", "share of forgers", "step",
                  [Line(f"similarity {number(unlikeness)}", at, values) for unlikeness, at, values in steps]),
            Panel("How late a reply", "delay, in versions of the server", "step",
                  [Line(f"{count} at work", delays, ffgg.late_step(L, count, delays))
                   for count in sorted({max(1, active // 4), active, 4 * active})], log_x=True, log_y=True),
        ],
    )  # fmt: skip
