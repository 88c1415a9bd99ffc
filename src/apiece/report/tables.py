"""The rows of the report's tables, as text ready to be shown."""

from typing import Any, NamedTuple

from apiece.experiment.record import Diverged
from apiece.experiment.tables import ClientMeans
from apiece.methods import CATALOG
from apiece.report.findings import counted_points
from apiece.report.look import shortened
from apiece.report.numbers import DASH, fixed, known, listed, number, percent, plus_minus, size, span
from apiece.report.story import Story

CLIENTS = 200  # rows of the client table; all are in clients.parquet


class ReportTable(NamedTuple):
    """Column heads, each with what it means, and rows whose first cell is the row's head.

    In `strong` rows the first number stands out; where rows are `marked`, what validation chooses is.
    """

    heads: list[tuple[str, str]]
    rows: list[list[str]]
    strong: frozenset[str] = frozenset()
    marked: bool = False


def described(name: str) -> str:
    """A method in one sentence, from the catalog's docstring; nothing for a method that is not in it.

    >>> described("local")
    'Every client trains alone from the initial model: what collaboration has to beat.'
    """
    doc = CATALOG[name].__doc__ if name in CATALOG else None
    return doc.strip().splitlines()[0] if doc else ""


STATISTICS = {
    "mean_weighted": ("weighted mean", "every test example counts once"),
    "mean": ("plain mean", "every client counts once"),
    "median": ("median", "over clients"),
    "worst10": ("worst tenth", "mean of the tenth of the clients that fare worst"),
    "top10_by_samples": ("largest tenth", "the tenth of the clients with most training examples, weighted"),
    "spread": ("spread", "standard deviation over clients"),
}


def results(story: Story) -> ReportTable:
    """Test results, best first; strong is what the seeds do not tell apart from the best."""
    order, metric, unit = story.order, story.metric, f", {story.metric.unit}" if story.metric.unit else ""
    heads = [("method", ""), *((name + unit, why) for name, why in STATISTICS.values())]
    new = any(story.score(name, "new_clients") for name in order)
    heads += [("new clients" + unit, "weighted mean over clients that never trained")] if new else []
    rows = []
    for name in order:
        write = lambda found: plus_minus(found, metric.factor, metric.places)
        row = [name, *(write(story.score(name, "test", statistic)) for statistic in STATISTICS)]
        row += [write(story.score(name, "new_clients"))] if new else []
        rows.append(row if story.score(name) else [name, "diverged", *row[2:]])
    for name, constant in story.record.constants.items():
        write = lambda found: plus_minus(found, metric.factor, metric.places)
        found = [constant.statistic("test", metric.key, statistic) for statistic in STATISTICS]
        found += [constant.statistic("new_clients", metric.key, "mean_weighted")] if new else []
        rows.append([f"no method: {name.replace('_', ' ')}", *map(write, found)])
    behind = story.record.ranking.behind
    strong = {name for name, gap in behind.items() if not gap.told_apart} | set(order[:1])
    return ReportTable(heads, rows, frozenset(strong if story.seeds > 1 and behind else ()), marked=True)


def hurt_table(story: Story) -> ReportTable | None:
    """Against the baseline, or None without one."""
    heads = [
        ("method", ""),
        ("mean gain, points", "over training clients, each counting once"),
        ("proved hurt", f"a lower bound: 5 % false discoveries among the named{_so_far(story)}"),
        ("expected hurt", "mean probability of being hurt, with its interval over clients"),
        ("gain of the worst-off tenth, points", "posterior mean: the raw worst is mostly noise"),
        ("look worse (if tied)", "raw share below zero, beside what chance makes of a tie"),
    ]
    rows = []
    for name in story.order:
        found = story.methods[name].hurt
        if found is None:
            continue
        if isinstance(found, Diverged):
            why = "diverged" if story.score(name) is None else f"{story.baseline} diverged"
            rows.append([name, why, *[DASH] * (len(heads) - 2)])
            continue
        between = span(found.hurt_expected_low, found.hurt_expected_high)
        worst, tied = found.worst_tenth, found.naive_if_tied
        rows.append([
            name,
            plus_minus(found.gain, 1, 1, sign=True),
            f"{round(found.hurt_proved * found.clients):,} of {found.clients:,}"
            + (" so far" if found.so_far else "")
            + _names(found.named),
            percent(found.hurt_expected) + (f" [{between}]" if between else ""),
            fixed(-worst, sign=True) if known(worst) else DASH,
            f"{percent(found.naive)} ({percent(tied)})" if known(tied) else DASH,
        ])  # fmt: skip
    return ReportTable(heads, rows) if rows else None


def _so_far(story: Story) -> str:
    """What "so far" means where it stands in the table."""
    some = any(method.harm and method.harm.so_far for method in story.methods.values())
    return "; so far: the baseline still improves, or the method does and may catch up" if some else ""


def _names(clients: list[str]) -> str:
    """Who they are, all of them."""
    return f": {listed([shortened(client) for client in clients])}" if clients else ""


def margin(story: Story) -> str:
    """How much worse than alone counts as hurt."""
    deltas = [method.harm.delta for method in story.methods.values() if method.harm]
    return counted_points(deltas[0] if deltas else 1.0)


def costs(story: Story) -> ReportTable:
    """What each method cost: means over seeds of a whole training run, all clients together."""
    heads = [
        ("method", ""),
        ("sent up", "by all clients, whole run"),
        ("sent down", "to all clients, whole run"),
        ("to use", "one last message to every client"),
        ("kept per client", "state a client must remember between rounds"),
        ("gradients", "batch gradients, all clients; + personalizing at the end"),
        ("seconds", "of training, on the machine below"),
        ("memory, MB", "peak of the process so far"),
    ]
    rows = []
    for name in story.order:
        spent = story.methods[name].costs
        extra = spent.get("gradients_personal")
        gradients = number(spent.get("gradients"), 4) + (f" + {number(extra, 4)}" if known(extra) and extra else "")
        amounts = [size(spent.get(f"bytes_{key}")) for key in ("up", "down", "final", "kept_per_client")]
        rows.append([name, *amounts, gradients, number(spent.get("seconds")), number(spent.get("peak_memory_mb"))])
    return ReportTable(heads, rows)


def choices(story: Story) -> list[dict[str, Any]]:
    """Per method: what it is, the options it ran with, which of them were tuned, and the trials."""
    found = []
    for name in story.order:
        method = story.methods[name]
        # A single candidate was not tried at all: there was nothing to choose from.
        tried = method.tuning if method.chosen is not None else []
        losses = [number(one.validation_loss, 4) for one in tried]
        found.append({
            "name": name,
            "what": described(name),
            "options": _options(method.options),
            "tuned": ", ".join(tried[0].options) if tried else "",
            "trials": [(_options(one.options), loss, "diverged" if loss == DASH else "")
                       for one, loss in zip(tried, losses, strict=True)],
            "chosen": method.chosen,
        })  # fmt: skip
    return found


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {_plain(value)}" for key, value in options.items() if value is not None) or "none"


def client_table(story: Story) -> tuple[ReportTable, int]:
    """(every client's score under every method, how many clients there are); the first of them if they are many."""
    order = [name for name in story.order if name in story.clients]
    first = story.clients[order[0]]
    heads = [("client", ""), ("training examples", ""), ("test examples", ""), *((name, "") for name in order)]
    metric, places = story.metric, story.metric.places
    write = lambda value: fixed(metric.factor * value, places) if places is not None else number(value)
    scores = {
        name: dict(zip(story.clients[name].ids, story.clients[name].score.tolist(), strict=True)) for name in order
    }
    rows = []
    for k, client in enumerate(first.ids[:CLIENTS]):
        who = shortened(client) + (" (new)" if first.new[k] else "") + _attacks(first, k, story.seeds)
        values = [scores[name].get(client) for name in order]
        sizes = [number(count, 9) for count in (first.train[k], first.test[k])]
        rows.append([who, *sizes, *(write(value) if known(value) else DASH for value in values)])
    return ReportTable(heads, rows), len(first.ids)


def _attacks(clients: ClientMeans, k: int, seeds: int) -> str:
    count = int(clients.attacks[k]) if clients.attacks.size else 0
    return "" if not count else " (attacks)" if count == seeds else f" (attacks in {count} of {seeds} seeds)"


def facts(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, value) pairs; what is not set is left out.

    >>> facts({"train": {"rounds": 5, "cohort": None}, "seeds": [0, 1], "sizes": {"min": 1, "median": 2.0, "max": 3}})
    [('train.rounds', '5'), ('seeds', '0, 1'), ('sizes', '1 to 3, median 2')]
    """
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict) and set(value) == {"min", "median", "max"}:
            least, median, most = (number(value[k], 6) for k in ("min", "median", "max"))
            found.append((prefix + key, f"{least} to {most}, median {median}"))
        elif isinstance(value, dict):
            found += facts(value, f"{prefix}{key}.")
        elif value is not None:
            found.append((prefix + key, _plain(value)))
    return found


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    return number(value, 9) if isinstance(value, int | float) else str(value)
