"""A run's pictures as figures of plain numbers: what is drawn on the page without a client, and as PNG or SVG."""

import numpy as np

from apiece.experiment.tables import Progress
from apiece.report.figure import Figure, Line, Panel, checked
from apiece.report.numbers import counted, known, listed, number
from apiece.report.score import Metric
from apiece.report.story import Story
from apiece.report.tables import ReportTable

NAMED = 8  # methods that a sentence lists


def styles(story: Story) -> dict[str, int]:
    """Every method's place among the colours, the same in every picture."""
    return {name: style for style, name in enumerate(story.methods)}


def curve_panel(story: Story, of: str = "loss", against: str = "rounds") -> Panel | None:
    """Validation while training, a line for each method; None without any."""
    progress = story.progress if of == "loss" else story.errors
    style, lines = styles(story), []
    for name, found in progress.items():
        mean, low, high = (turned(story, of, values) for values in (found.mean, found.least, found.largest))
        line = Line(name, spent_until(found, against), mean, style=style.get(name, 0))
        lines.append(line._replace(low=np.fmin(low, high), high=np.fmax(low, high)) if story.seeds > 1 else line)
    if not lines:
        return None
    label = "validation loss" if of == "loss" else f"validation {task_label(story.of_task)}"
    return _only(Panel("", AGAINST[against], label, lines))


AGAINST = {
    "rounds": "rounds",
    "megabytes": "megabytes sent, up and down, all clients",
    "gradients": "batch gradients, all clients",
    "seconds": "seconds of training on this machine",
    "clock": "simulated time",
}


def task_label(metric: Metric) -> str:
    """The score of the task with its unit."""
    return metric.label + (f", {metric.unit}" if metric.unit else "")


def turned(story: Story, of: str, values: np.ndarray) -> np.ndarray:
    """Errors as the task tells them: mistakes as accuracy in percent; others, and losses, as they are."""
    return 100 * (1 - values) if of != "loss" and story.of_task.key == "accuracy" else values


def spent_until(found: Progress, against: str) -> np.ndarray:
    """What was spent at each look."""
    own = {"rounds": found.rounds, "megabytes": found.bytes_sent / 1e6}
    return own[against] if against in own else found.spent[against]


def newcomers_panel(story: Story) -> Panel | None:
    """The score of new clients against the number of their examples, a line for each method; None without any."""
    found = {name: mine for name in story.order if (mine := story.methods[name].newcomers)}
    metric, lines = story.of_task, []
    for name, mine in found.items():
        mean, low, high, _ = metric.factor * np.array(mine.scores, np.float64).T
        line = Line(name, mine.examples, mean, style=styles(story)[name])
        if np.isfinite(low).any():  # no score is below 0, no share above 100 %: neither is a band
            line = line._replace(low=np.maximum(low, 0), high=np.minimum(high, 100) if metric.higher else high)
        lines.append(line)
    if not lines:
        return None
    means = np.concatenate([line.y for line in lines])
    means = means[np.isfinite(means)]
    log = bool(not metric.higher and means.size and means.min() > 0 and means.max() / means.min() > 30)
    label = f"test {task_label(metric)}" + (" (logarithmic)" if log else "")
    return _only(Panel("", "training examples of a new client, at most", label, lines, log_x=True, log_y=log))


def tuning_panels(story: Story) -> list[Panel]:
    """What was tried: validation loss against each tuned number, a panel for each, methods side by side."""
    tried: dict[str, list[Line]] = {}
    for name, method in story.methods.items():
        if method.chosen is None:
            continue
        for option in method.tuning[0].options:
            pairs = [(one.options[option], one.validation_loss) for one in method.tuning]
            pairs = sorted(pair for pair in pairs if _is_number(pair[0]) and known(pair[1]))
            if len({x for x, _ in pairs}) > 1:
                x, y = np.array(pairs, np.float64).T
                tried.setdefault(option, []).append(Line(name, x, y, kind="dots", style=styles(story)[name]))
    panels = []
    for option, lines in tried.items():
        x = np.concatenate([line.x for line in lines])
        log = bool((x > 0).all() and x.max() / x.min() > 8)
        panels.append(_only(Panel(option, option, "validation loss", lines, log_x=log)))
    return panels


def tuning_words(panel: Panel) -> tuple[str, ReportTable]:
    """Which value did best for each method, and every trial; the tables below the pictures say which was chosen."""
    best = [(line.name, *min(zip(line.y, line.x, strict=True))) for line in panel.lines]
    each = [f"{name} {number(x, 3)}" for name, _, x in sorted(best, key=lambda one: one[1])[:NAMED]]
    rows = [[line.name, number(x, 4), number(y, 4)]
            for line in panel.lines for x, y in zip(line.x, line.y, strict=True)]  # fmt: skip
    said = f"Every trial. Least validation loss at {panel.x_label} = {listed(each)}."
    return said, ReportTable([("method", ""), (panel.x_label, ""), (panel.y_label, "")], rows)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def gains_panel(story: Story) -> Panel | None:
    """Every training client's gain over the baseline, sorted, a line for each method; None without any."""
    lines = []
    for name in story.order:
        if name == story.baseline or name not in story.clients:
            continue
        gain = story.clients[name].gain[~story.clients[name].new]
        gain = np.sort(gain[np.isfinite(gain)])
        if gain.size:
            share = 100 * (np.arange(gain.size) + 0.5) / gain.size
            lines.append(Line(name, share, gain, style=styles(story)[name]))
    points = "points of accuracy" if story.metric.percent else "points"
    over = "alone" if story.baseline == "local" else story.baseline
    label = f"gain over {over}, {points}"
    return _only(Panel("", "clients, from the least gain to the largest, %", label, lines)) if lines else None


def sizes_panel(story: Story) -> Panel | None:
    """Test score against training examples, the best method beside the baseline."""
    best = story.record.ranking.beside_local or next(iter(story.record.ranking.scored), None)
    lines = []
    for name in dict.fromkeys(name for name in (story.baseline, best) if name in story.clients):
        mine = story.clients[name]
        old = ~mine.new & np.isfinite(mine.score) & (mine.train > 0)
        if old.any():
            score = story.metric.factor * mine.score[old]
            lines.append(Line(name, mine.train[old], score, kind="dots", style=styles(story)[name]))
    label = f"test {task_label(story.metric)}"
    return _only(Panel("", "training examples of a client", label, lines, log_x=True)) if lines else None


def _only(panel: Panel) -> Panel:
    return checked(Figure("", "", [panel])).panels[0]


def figures_of(story: Story) -> dict[str, Figure]:
    """The pictures that a paper may want, by the name of their files."""
    name = story.record.federation.name
    of = lambda title, *panels: Figure(f"{name}: {title}", "", [panel for panel in panels if panel is not None])
    found = {
        "gains": of("gain of every client", gains_panel(story)),
        "sizes": of("small and large clients", sizes_panel(story)),
        "curves": of("validation while training", curve_panel(story), curve_panel(story, against="megabytes")),
        "newcomers": of("new clients, by how much they bring", newcomers_panel(story)),
        "tuning": of("what was tried", *tuning_panels(story)),
    }
    return {name: figure for name, figure in found.items() if figure.panels}


def newcomers_caption(story: Story) -> str:
    """What must be said beneath the picture of newcomers."""
    first = next(mine for method in story.methods.values() if (mine := method.newcomers))
    most, who = first.examples[-1], counted(first.clients, "client")
    seeds = f"Band: 95 % interval over {story.seeds} seeds." if story.seeds > 1 else "One seed: no band."
    return (
        f"{who} that never trained, the same at every point, each with at most so many of its own training examples; "
        f"the largest has {most:,}. All their test examples count alike. {seeds} The clients are the same for every "
        "seed: a band says nothing about other newcomers."
    )
