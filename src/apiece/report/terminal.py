"""A comparison as a table for a terminal of 80 columns, and what to say below it."""

from collections.abc import Sequence
from math import isnan
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from apiece.evaluate import Interval
from apiece.experiment.record import Diverged, Harm, MethodRecord, Record
from apiece.report.metric_columns import OWN, POOLED, MetricColumn, columns_of

WHAT = {
    "classification": "accuracy in %",
    "next_character": "accuracy in %, character by character,",
    "regression": "mean squared error",
    "custom": "loss",
}
METRICS = {"auc": "AUC", "f1": "macro F1", "balanced_accuracy": "balanced accuracy", "loss": "log loss", "rmse": "RMSE"}
MARKED = {"constant": "(constant)", "own_constant": "(own)"}  # in brackets: they are no methods
ALONE = ("local", "local_ridge")
NAMED = 4  # clients that a line names
COLUMNS = 4  # of metrics beside the score: there is room for so many


def comparison(record: Record) -> Group:
    """The table of methods, best first by weighted test result, with what the numbers mean."""
    metric = record.ranking.metric
    percent = metric == "accuracy"
    methods = {name: record.methods[name] for name in record.ranking.order}
    new = any("new_clients" in method.summary for method in methods.values())
    beside_local = any(method.hurt for method in methods.values())
    titles = ["method", "test", "worst\ntenth"]
    titles += ["new\nclients"] * new + [f"gain over\n{over(record)}", "hurt %\n(proved)"] * beside_local
    unit, size = _unit(max(map(_sent, methods.values())))
    shown = [*methods, *(MARKED[name] for name in record.constants)]
    table = _table([*titles, f"{unit}\nsent"], left=1, tight=max(map(len, shown)) >= 10)
    for name, found in methods.items():
        cell = lambda part, what, found=found: _with_interval(found.statistic(part, metric, what), percent)
        row = [name, cell("test", "mean_weighted"), cell("test", "worst10")]
        row += [cell("new_clients", "mean_weighted") if "new_clients" in found.summary else ""] * new
        row += [*_hurt(found.hurt)] * beside_local
        table.add_row(*row, f"{_sent(found) / size:.1f}")
    for name, constant in record.constants.items():
        cell = lambda part, what, found=constant: _with_interval(found.statistic(part, metric, what), percent)
        row = [MARKED[name], cell("test", "mean_weighted"), cell("test", "worst10")]
        row += [cell("new_clients", "mean_weighted")] * new + ["", ""] * beside_local
        table.add_row(*row, "0.0", style="dim")
    legend = _legend(record, percent, beside_local, unit)
    more = [_of_task(record), _newcomers(methods)]
    below = [part for one in more if one is not None for part in (Text(), *one)]
    return Group(table, Text("\n".join(["", *legend]), style="dim"), *below)


def over(record: Record) -> str:
    """What gains are told over: `local`, unless another baseline was better on validation."""
    return record.baseline.name if record.baseline is not None else "local"


def _of_task(record: Record) -> tuple[Table, Text] | None:
    """AUC and false accepts of two classes, RMSE and R2 of a regression, metrics of one's own; None without any."""
    shown = [column for column in columns_of(record) if column.brief and column.metric != record.ranking.metric]
    if not shown:
        return None
    shown, rest = shown[:COLUMNS], shown[COLUMNS:]
    tight = max(map(len, record.methods)) > 10
    table = _table(["method", *(column.brief for column in shown)], left=1, tight=tight)
    for name in record.ranking.order:
        cells = [(column.find(record.methods[name]), column) for column in shown]
        table.add_row(name, *("" if found is None else _metric(found, column) for found, column in cells))
    own = ", ".join(column.head for column in shown if column.statistic is not None)
    told = [POOLED] * any(column.statistic is None for column in shown)
    told += [column.aside for column in shown if column.aside]
    told += [f"{own}: {OWN}, weighted mean"] * bool(own) + ["more are in the report"] * bool(rest)
    return table, Text("\n" + "; ".join(told) + ".", style="dim")


def _metric(found: Interval, column: MetricColumn) -> str:
    digits = 3 if column.places is None else column.places
    return f"{column.factor * found.mean:.{digits}f}{_half(found, column.factor, digits)}"


def _newcomers(methods: dict[str, MethodRecord]) -> tuple[Table, Text] | None:
    """New clients by how many of their examples they use; without intervals, which are in the report."""
    found = {name: mine for name, method in methods.items() if (mine := method.newcomers)}
    if not found:
        return None
    first = next(iter(found.values()))
    every, percent = range(len(first.examples)), bool(first.accuracy)
    room = 7 if percent else 6
    kept = every if len(every) <= room else [*every[: room - 1], every[-1]]
    table = _table(["method", *(f"{first.examples[at]}" for at in kept)], left=1, tight=max(map(len, found)) > 10)
    bare = lambda mean: "–" if isnan(mean) else f"{100 * mean:.1f}" if percent else f"{mean:.4g}"
    for name, mine in found.items():
        table.add_row(name, *(bare(mine.scores[at].mean) for at in kept))
    many = f"{first.clients} new client{'s' if first.clients != 1 else ''}"
    told = f"{many} by how many training examples each may use; intervals over seeds are in the report."
    return table, Text("\n" + told, style="dim")


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


def _with_interval(found: Interval | None, percent: bool) -> str:
    if found is None:
        return "diverged"
    factor, digits = (100, 1) if percent else (1, 3)
    return f"{factor * found.mean:.{digits}f}{_half(found, factor, digits)}"


def _half(found: Interval, factor: float, digits: int) -> str:
    width = factor * found.half_width
    return "" if isnan(width) else f" ±{width:.{0 if width >= 10 else digits}f}"


def _hurt(found: Harm | Diverged | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    if isinstance(found, Diverged):
        return "diverged", ""
    gain = found.gain
    shares = f"{100 * found.hurt_expected:.0f} ({100 * found.hurt_proved:.0f})"
    return f"{gain.mean:+.1f}{_half(gain, 1, 1)}", shares


def _legend(record: Record, percent: bool, beside_local: bool, unit: str) -> list[str]:
    spec, federation = record.spec, record.federation
    seeds, held = len(spec["seeds"]), federation.new_clients
    metric = record.ranking.metric
    usual = metric in ("accuracy", "error") or not (metric in METRICS or metric in record.metrics)
    over = f"± 95% interval over {seeds} seeds, the luck of training alone" if seeds > 1 else "one seed: no intervals"
    by = "" if record.ranking.chosen_by == "loss" else f" by {record.ranking.chosen_by}"
    tuned = f"{spec['tune']} tuning trials each, chosen on validation{by}" if spec["tune"] > 1 else "not tuned"
    aside = f" ({held} more held out as new)" if held else ""
    examples = federation.examples["test"]
    what = WHAT[federation.task] if metric in ("accuracy", "error") else metric  # an objective's own error
    one = f"; one is {100 / examples:.1g} points" if percent and examples else ""
    what = f"{what} over all clients' {examples} test examples{one}" if usual else described(record)
    lines = [
        f"{federation.clients} clients{aside}, {record.model}, {spec['train']['rounds']} rounds; {tuned}.",
        f"test: {what} ({over}).",
        "worst tenth: mean over the worst 10% of clients.",
    ]
    if beside_local:
        lines += [*_about_gains(record), *_named(record)]
    lines.append(f"{unit} sent: up and down, all clients together.")
    constants = [f"{MARKED[name]} {constant.about}" for name, constant in record.constants.items()]
    lines += [f"no methods: {'; '.join(constants)}."] if constants else []
    return lines + [f"note: {note}" for note in record.notes]


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
    name, metric = over(record), record.ranking.metric
    what = "points of test error" if metric in ("accuracy", "error") else f"points of {METRICS.get(metric, metric)}"
    over_what = "training alone" if name in ALONE else f"answering {record.constants[name].about}"
    told = f"gain over {name}: {what} a client gains on average over {over_what}"
    if record.baseline is not None and len(record.baseline.validation) > 1:
        told += ", the best baseline on validation"
    by = ", by its log loss" if metric in ("loss", "auc") else ""
    alone = "alone" if name in ALONE else f"with {name}"
    hurt = f"hurt: share of clients worse off than {alone} by more than 1 point{by}, expected (and proved)."
    return [told + ".", hurt]


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
    table = _table(["method", "what it is", "down", "up", "kept"], left=2)
    for row in rows:
        sizes = ["-" if row["unfit"] else _bytes(row[k]) for k in ("bytes_down", "bytes_up", "bytes_kept")]
        table.add_row(row["name"], row["summary"], *sizes)
    note = f"\nbytes per visit of one client, for {model}; options: apiece methods NAME"
    if any(row["unfit"] for row in rows):
        note += "\n-: does not fit this model or these labels"
    return Group(table, Text(note, style="dim"))


def options_table(head: str, rows: list[dict[str, Any]]) -> Table:
    """Data sources, or models: what each is, with its options."""
    table = _table([head, "what it is; options"], left=2)
    for row in rows:
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items()) or "none"
        table.add_row(row["name"], Text.assemble(row["summary"], ("\n" + options, "dim")))
    return table


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), left: int = 1) -> Group:
    """Rows of text, the first `left` columns flush left, and what to say below them."""
    table = _table(list(heads), left)
    for row in rows:
        table.add_row(*row)
    return Group(table, Text("\n".join(["", *notes]), style="dim"))


def verdicts(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Group:
    """The verdict table: intervals below their numbers, so that it fits; what does not hold stands out."""
    claim, published, ours, _, holds = heads
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column(holds, no_wrap=True)
    table.add_column(claim, overflow="fold")
    for head in (published, f"{ours}\n(95 % interval)"):
        table.add_column(head, overflow="fold", justify="right", min_width=20, max_width=20)
    for name, wanted, found, interval, verdict in rows:
        found += f"\n({interval})" if interval else ""
        table.add_row(verdict, name, wanted, found, style=None if verdict == "yes" else "bold")
    return Group(table, Text("\n".join(["", *notes]), style="dim"))


def _table(titles: list[str], left: int, tight: bool = False) -> Table:
    """Columns with these titles, the first `left` ones flush left; only the first is never broken.

    `tight`: less room between columns, for long names.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False, collapse_padding=tight, pad_edge=not tight)
    for at, title in enumerate(titles):
        table.add_column(title, justify="left" if at < left else "right", no_wrap=at == 0 or at >= left)
    return table


def _bytes(count: float) -> str:
    unit, size = _unit(count)
    return f"{count / size:.{0 if unit == 'B' else 1}f} {unit}"


def method_text(row: dict[str, Any], searched: dict[str, tuple[float, float]]) -> Group:
    """One method: its text, and a table of its options with defaults and where tuning looks."""
    about, _, arguments = row["text"].partition("Args:")
    table = _table(["option", "default", "tuned over"], left=3)
    for option, default in row["options"].items():
        low, high = searched.get(option, (None, None))
        table.add_row(option, "" if default is None else str(default), "" if low is None else f"{low:g} to {high:g}")
    notes = " ".join(arguments.split())
    return Group(Text(about.strip() + "\n"), table, Text("\n" + notes, style="dim"))
