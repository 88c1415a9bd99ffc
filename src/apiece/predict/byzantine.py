"""`apiece theory byzantine`: how many forgers, how large a step, how late a reply is proved to be withstood (FFGG)."""

import numpy as np

from apiece.errors import UserError
from apiece.predict import Prediction
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
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
    if forgers < 0:
        raise UserError(f"--forgers {forgers}: a number of clients is at least 0")
    share = forgers / (honest + forgers) if honest + forgers else 0.0
    same = {"growth": growth, "rule": rule}
    largest = ffgg.byzantine_share(convexity, smoothness, similarity, honest, **same)
    step = ffgg.byzantine_step(smoothness, similarity, honest, share, **same)
    factor = ffgg.byzantine_rate(convexity, smoothness, step)
    late = ffgg.late_step(smoothness, active, delay)
    numbers = {
        "share": share,
        "largest_share": largest,
        "withstood": share <= largest,
        "step": step,
        "rate": factor,
        "rounds_to_a_tenth": float(np.log(10) / -np.log(factor)),
        "honest_step": 1 / smoothness,
        "late_step": late,
    }
    rows = [
        ["share of forgers", number(share)],
        ["largest share that is proved to be withstood", number(largest)],
        ["step with these forgers", number(step)],
        ["factor on the squared distance, a round", number(factor, 5)],
        ["rounds for a tenth of it", number(numbers["rounds_to_a_tenth"])],
        ["step with honest clients alone", number(1 / smoothness)],
        [f"step with {active} at work, replies up to {delay} late", number(late)],
    ]
    verdict = "within" if share <= largest else "beyond"
    notes = (
        f"{forgers} of {honest + forgers} clients forge: {verdict} what is proved.",
        "For clients that share an optimum, and bucketing with Krum, the median or the geometric median. The proof is "
        "careful: in experiments a fifth of forgers was withstood. Clients whose optima differ keep an error, whatever "
        "the rule.",
        "similarity: how fast honest gradients grow apart; equal clients have 0. growth: 1 for exact replies.",
    )
    figure = _figure(convexity, smoothness, similarity, honest, share, same, active, delay)
    return Prediction(numbers, Grid("Forged and late replies", ("", "value"), rows), figure, notes)


def _figure(mu: float, L: float, l: float, honest: int, share: float, same: dict, active: int, delay: int) -> Figure:
    unlike = np.geomspace(min(l, 0.01 * L), max(l, 10 * L), 121)
    shares = np.linspace(0, 0.49, 99)
    delays = np.geomspace(1, max(100.0, 2 * delay), 121)
    counts = sorted({max(2, honest // 4), honest, 4 * honest})
    capped = lambda count: np.minimum(ffgg.byzantine_share(mu, L, unlike, count, **same), 0.5)
    steps = [(factor, ffgg.byzantine_step(L, factor * l, honest, shares, **same)) for factor in (0.1, 1.0, 10.0)]
    return Figure(
        "Forged and late replies (FFGG)",
        f"mu = {number(mu)}, L = {number(L)}, similarity {number(l)}, {honest} honest clients, share of forgers "
        f"{number(share)}. Proved conditions; what is possible is more.",
        [
            Panel("How many forgers", "similarity constant of honest clients", "largest share of forgers",
                  [Line(f"{count} honest clients", unlike, capped(count)) for count in counts], log_x=True),
            Panel("How large a step", "share of forgers", "step",
                  [Line(f"similarity {number(factor * l)}", shares, values) for factor, values in steps]),
            Panel("How late a reply", "delay, in versions of the server", "step",
                  [Line(f"{count} at work", delays, ffgg.late_step(L, count, delays))
                   for count in sorted({max(1, active // 4), active, 4 * active})], log_x=True, log_y=True),
        ],
    )  # fmt: skip
