"""What a contest found, as lines of a figure."""

import numpy as np

from apiece.evaluate import interval
from apiece.experiment.contest import Result
from apiece.report.figure import Line


def curve(name: str, result: Result, style: int | None = None) -> Line:
    """Validation accuracy against rounds: the mean over seeds, and a band from the worst seed to the best."""
    accuracy = 1 - np.array([[p["validation_error"] for p in outcome.curve] for outcome in result.outcomes.values()])
    rounds = [point["round"] for point in next(iter(result.outcomes.values())).curve]
    return Line(name, rounds, accuracy.mean(0), accuracy.min(0), accuracy.max(0), style=style)


def newcomer_lines(results: dict[str, Result]) -> list[Line]:
    """New clients' accuracy against the number of their examples, with intervals over the seeds."""
    lines = []
    for style, (name, result) in enumerate(results.items()):
        found = [interval(1 - np.array(seeds)) for seeds in result.newcomers.values()]
        line = Line(name, list(result.newcomers), [f.mean for f in found], style=style)
        if len(result.outcomes) > 1:
            line = line._replace(low=[f.low for f in found], high=[f.high for f in found])
        lines.append(line)
    return lines
