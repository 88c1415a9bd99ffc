"""A comparison as a table for a terminal of 80 columns, and what to say below it."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from apiece.evaluate import Interval
from apiece.experiment.baseline import ALONE
from apiece.experiment.record import Diverged, Harm, MethodRecord, Record
from apiece.report.convergence import convergence, so_far
from apiece.report.fitted import FittedTable
from apiece.report.metric_columns import OWN, POOLED, columns_of
from apiece.report.numbers import counted, fixed, number, plus_minus
from apiece.report.partners import partners
from apiece.report.score import METRICS, Metric, metric_of, ranked_by_task

MARKED = {"constant": "(constant)", "own_constant": "(own)"}  # in brackets: they are no methods
NAMED = 4  # clients that a line names
COLUMNS = 4  # of metrics beside the score: there is room for so many


def comparison(record: Record) -> Group:
    """The table of methods, best first by weighted test result, with what the numbers mean."""
    metric = metric_of(record)
    methods = {name: record.methods[name] for name in record.ranking.order}
    new = any("new_clients" in method.summary for method in methods.values())
    beside_local = any(method.hurt for method in methods.values())
    titles = ["method", "test", "worst\ntenth"]
    titles += ["new\nclients"] * new + [f"gain over\n{record.over}", "hurt %\n(proved)"] * beside_local
    unit, size = _unit(max(map(_sent, methods.values())))
    rows = []
    for name, found in methods.items():
        cell = lambda part, what, found=found: _score(found.statistic(part, metric.key, what), metric)
        row = [name, cell("test", "mean_weighted"), cell("test", "worst10")]
        row += [cell("new_clients", "mean_weighted") if "new_clients" in found.summary else ""] * new
        row += [*_hurt(found.hurt)] * beside_local
        rows.append([*row, f"{(sent := _sent(found) / size):.{1 if sent < 100 else 0}f}"])
    for name, constant in record.constants.items():
        cell = lambda part, what, found=constant: _score(found.statistic(part, metric.key, what), metric)
        row = [MARKED[name], cell("test", "mean_weighted"), cell("test", "worst10")]
        rows.append([*row, *[cell("new_clients", "mean_weighted")] * new, *["", ""] * beside_local, "0.0"])
    legend = _legend(record, metric, beside_local, unit)
    more = [_of_task(record), _newcomers(methods), *(partners(name, found) for name, found in methods.items())]
    below = [part for one in more if one is not None for part in (Text(), *one)]
    return Group(FittedTable([*titles, f"{unit}\nsent"], rows), Text("\n".join(["", *legend]), style="dim"), *below)


def _of_task(record: Record) -> tuple[FittedTable, Text] | None:
    """AUC and false accepts of two classes, RMSE and R2 of a regression, metrics of one's own; None without any."""
    shown = [column for column in columns_of(record) if column.brief and column.metric != record.ranking.metric]
    if not shown:
        return None
    shown, rest = shown[:COLUMNS], shown[COLUMNS:]
    rows = []
    for name in record.ranking.order:
        cells = [(column.find(record.methods[name]), column) for column in shown]
        write = lambda found, column: plus_minus(found, column.factor, column.places, brief=True)
        rows.append([name, *("" if found is None else write(found, column) for found, column in cells)])
    own = ", ".join(column.head for column in shown if column.statistic is not None)
    told = [POOLED] * any(column.statistic is None for column in shown)
    told += [column.aside for column in shown if column.aside]
    told += [f"{own}: {OWN}, weighted mean"] * bool(own) + ["more are in the report"] * bool(rest)
    table = FittedTable(["method", *(column.brief for column in shown)], rows)
    return table, Text("\n" + "; ".join(told) + ".", style="dim")


def _newcomers(methods: dict[str, MethodRecord]) -> tuple[Text, FittedTable] | None:
    """New clients by how many of their examples they use; without intervals, which are on the page."""
    found = {name: mine for name, method in methods.items() if (mine := method.newcomers)}
    if not found:
        return None
    first = next(iter(found.values()))
    every, percent = range(len(first.examples)), bool(first.accuracy)
    room = 7 if percent else 6
    kept = every if len(every) <= room else [*every[: room - 1], every[-1]]
    bare = lambda mean: fixed(100 * mean) if percent else number(mean, 4)
    rows = [[name, *(bare(mine.scores[at].mean) for at in kept)] for name, mine in found.items()]
    table = FittedTable(["method", *(f"{first.examples[at]}" for at in kept)], rows)
    many = f"{first.clients} new client{'s' if first.clients != 1 else ''}"
    told = f"{many}, by how many training examples each may use:"
    return Text(told + "\n", style="dim"), table


def _sent(method: MethodRecord) -> float:
    cost = method.seeds[0].costs
    return cost["bytes_up"] + cost["bytes_down"]


def _unit(count: float) -> tuple[str, float]:
    """The unit in which so many bytes are a readable number.

    >>> _unit(2600)
    ('kB', 1000.0)
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return unit, size
    return "B", 1.0


def _score(found: Interval | None, metric: Metric) -> str:
    return "diverged" if found is None else plus_minus(found, metric.factor, metric.places, brief=True)


def _hurt(found: Harm | Diverged | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    if isinstance(found, Diverged):
        return "diverged", ""
    gain = found.gain
    shares = f"{100 * found.hurt_expected:.0f} ({100 * found.hurt_proved:.0f})"
    return plus_minus(gain, 1, 1, sign=True, brief=True), shares


def _legend(record: Record, metric: Metric, beside_local: bool, unit: str) -> list[str]:
    """What the columns mean, in lines of 80 columns."""
    spec, federation = record.spec, record.federation
    seeds, held = len(spec["seeds"]), federation.new_clients
    aside = f" ({held} more held out as new)" if held else ""
    most = "at most " if spec["train"].get("until_rest") else ""
    examples = federation.examples["test"]
    one = f"; one is {100 / examples:.1g} points" if metric.percent and examples else ""
    usual = f"{metric.text} over all clients' {examples} test examples{one}"
    what = usual if ranked_by_task(record) else described(record)
    by = "" if record.ranking.chosen_by == "loss" else f" by {record.ranking.chosen_by}"
    tuned = f"{spec['tune']} tuning trials each, chosen on validation{by}." if spec["tune"] > 1 else "Not tuned."
    over = f"95% interval over {seeds} seeds: the luck of training, on this one split."
    lines = [
        f"{federation.clients} clients{aside}, {record.model}, {most}{counted(spec['train']['rounds'], 'round')}.",
        tuned,
        f"test: {what}.",
        f"±: {over}" if seeds > 1 else "One seed: no intervals.",
        "worst tenth: mean over the worst 10% of clients.",
    ]
    if beside_local:
        squares = record.ranking.metric == "error" and federation.task == "regression"
        point = ["a point: a hundredth of the variance of the test targets."] if squares else []
        lines += [*_about_gains(record), *point, *_named(record)]
    lines.append(f"{unit} sent: up and down, all clients together.")
    constants = [f"{MARKED[name]} {constant.about}" for name, constant in record.constants.items()]
    lines += [f"no methods: {'; '.join(constants)}."] if constants else []
    return lines + so_far(record) + convergence(record) + [f"note: {note}" for note in record.notes]


def described(record: Record) -> str:
    """What methods are ranked by and over what, where that is not the usual score of the task."""
    name = record.ranking.metric
    told = f"{METRICS.get(name, name)} of each client by itself, weighed by its test examples"
    first = next(iter(record.methods.values())).seeds[0].metrics["test"].get(name)
    if isinstance(first, dict) and (undefined := first.get("clients_undefined")):
        told += f"; defined for {first['clients']:,} of {first['clients'] + undefined:,} clients"
        told += ", those with several classes" if name == "auc" else ""
    return told


def _about_gains(record: Record) -> list[str]:
    name, metric = record.over, record.ranking.metric
    what = "points of test error" if metric in ("accuracy", "error") else f"points of {METRICS.get(metric, metric)}"
    over_what = "training alone" if name in ALONE else f"answering {record.constants[name].about}"
    told = f"gain over {name}: {what} a client gains on average over {over_what}"
    if record.baseline is not None and len(record.baseline.validation) > 1:
        told += ", the best baseline on validation"
    by = ", by its log loss" if metric in ("loss", "auc") else ""
    alone = "alone" if name in ALONE else f"with {name}"
    hurt = f"hurt: share of clients worse off than {alone} by more than 1 point{by}, expected (and proved)."
    return [told + "; ±: over seeds or over clients, whichever is wider.", hurt]


def _named(record: Record) -> list[str]:
    """The clients that are proved to be hurt, a few of each method."""
    found = []
    for name in record.ranking.order:
        harm = record.methods[name].harm
        if harm is not None and harm.named:
            some, rest = harm.named[:NAMED], len(harm.named) - NAMED
            found.append(f"{name}: {', '.join(some)}" + (f" and {rest} more" if rest > 0 else ""))
    return [f"proved hurt: {'; '.join(found)}."] if found else []


def methods_table(rows: list[dict[str, Any]], model: str) -> Group:
    """The catalog: one line per method, what it sends and keeps for the given model."""
    sizes = lambda row: ["-" if row["unfit"] else _bytes(row[k]) for k in ("bytes_down", "bytes_up", "bytes_kept")]
    cells = [[row["name"], row["summary"], *sizes(row)] for row in rows]
    note = f"\nbytes per visit of one client, for {model}; options: apiece methods NAME"
    if any(row["unfit"] for row in rows):
        note += "\n-: does not fit this model or these labels"
    return Group(FittedTable(["method", "what it is", "down", "up", "kept"], cells, left=2), Text(note, style="dim"))


def options_table(head: str, rows: list[dict[str, Any]]) -> FittedTable:
    """Data sources, or models: what each is, with its options."""
    options = lambda row: ", ".join(f"{name}={value}" for name, value in row["options"].items()) or "none"
    cells = [[row["name"], Text.assemble(row["summary"], ("\n" + options(row), "dim"))] for row in rows]
    return FittedTable([head, "what it is; options"], cells, left=2)


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), left: int = 1) -> Group:
    """Rows of text, the first `left` columns flush left, and what to say below them."""
    return Group(FittedTable(heads, rows, left), Text("\n".join(["", *notes]), style="dim"))


def verdicts(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Group:
    """The verdict table: intervals below their numbers, so that it fits; what does not hold stands out."""
    claim, published, ours, _, power, verdict = heads
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column(verdict, overflow="fold", min_width=9, max_width=9)
    table.add_column(claim, overflow="fold")
    for head in (published, f"{ours}\n(95 % interval)\n[{power}]"):
        table.add_column(Text(head), overflow="fold", justify="right", min_width=18, max_width=18)
    for name, wanted, found, interval, seen, judged in rows:
        found += (f"\n({interval})" if interval else "") + (f"\n[{seen}]" if seen else "")
        style = {"holds": None, "does not hold": "bold"}.get(judged, "italic")
        table.add_row(judged, name, wanted, Text(found), style=style)
    return Group(table, Text("\n".join(["", *notes]), style="dim"))


def _bytes(count: float) -> str:
    unit, size = _unit(count)
    return f"{count / size:.{0 if unit == 'B' else 1}f} {unit}"


def method_text(row: dict[str, Any], searched: dict[str, tuple[float, float]]) -> Group:
    """One method: its text, and a table of its options with defaults and where tuning looks."""
    about, _, arguments = row["text"].partition("Args:")
    rows = []
    for option, default in row["options"].items():
        low, high = searched.get(option, (None, None))
        rows.append([option, "" if default is None else str(default), "" if low is None else f"{low:g} to {high:g}"])
    table = FittedTable(["option", "default", "tuned over"], rows, left=3)
    notes = " ".join(arguments.split())
    return Group(Text(about.strip() + "\n"), table, Text("\n" + notes, style="dim"))
