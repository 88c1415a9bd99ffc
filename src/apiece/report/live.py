"""A run on its way, for a terminal: what is going on, the time left, and each run's curve and clients."""

import itertools
from typing import Any

from rich.console import Group
from rich.text import Text

from apiece.report.fitted import FittedTable
from apiece.report.numbers import number

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24  # of a curve, in letters
ROWS = 12  # runs that are shown, the last ones


def show_live(told: dict[str, Any]) -> Group:
    """What live.json tells.

    >>> looks = [{"round": k, "validation_loss": 1 / k, "visits": 27.0 * k, "refused": 0} for k in (1, 2, 3)]
    >>> run = {"row": "ditto", "seed": 0, "looks": looks}
    >>> told = {"what": "ditto: seed 0", "done": 30, "first": 0, "total": 90, "began": 0, "at": 60, "runs": [run]}
    >>> show_live(told).renderables[0].plain
    'ditto: seed 0: 33 % of all rounds, tuning included; about 2 min left'
    """
    share = 100 * told["done"] / max(told["total"], 1)
    head = f"{told['what']}: {share:.0f} % of all rounds, tuning included{_left(told)}"
    rows = [_row(run) for run in told["runs"][-ROWS:]]
    if not rows:
        return Group(Text(head, style="bold"))
    titles = ["method", "seed", "round", "validation\nloss", "its curve", "clients\na round", "refused"]
    return Group(Text(head, style="bold"), Text(), FittedTable(titles, rows))


def _left(told: dict[str, Any]) -> str:
    done = told["done"] - told["first"]
    if done <= 0 or told["done"] >= told["total"]:
        return ""
    return f"; about {in_words((told['at'] - told['began']) / done * (told['total'] - told['done']))} left"


def in_words(seconds: float) -> str:
    """A time that nobody needs exactly.

    >>> in_words(42), in_words(125), in_words(9000)
    ('42 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _row(run: dict[str, Any]) -> list[str]:
    looks = run["looks"]
    last = looks[-1]
    before = looks[-2] if len(looks) > 1 else {"round": 0, "visits": 0}
    since = last["round"] - before["round"]
    answered = (last.get("visits", 0) - before.get("visits", 0)) / since if since > 0 else 0
    loss = last.get("validation_loss")
    curve = draw_curve([one.get("validation_loss") for one in looks])
    told = "diverged" if loss is None else f"{loss:.4f}"
    rounds, refused = f"{last['round']:.0f}", f"{last.get('refused', 0):.0f}"
    return [run["row"], str(run["seed"]), rounds, told, curve, number(answered), refused]


def draw_curve(values: list[float | None], width: int = WIDTH) -> str:
    """Values as bars of a terminal, the last `width` means; what is no number is a gap.

    >>> draw_curve([4.0, 3.0, None, 1.0])
    '█▆ ▁'
    """
    if len(values) > width:
        edges = [round(k * len(values) / width) for k in range(width + 1)]
        values = [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    bar = lambda value: BARS[round((value - low) / (high - low) * (len(BARS) - 1))] if high > low else BARS[0]
    return "".join(" " if value is None else bar(value) for value in values)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
