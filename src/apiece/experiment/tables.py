"""The two tables of a run folder: rounds.parquet and clients.parquet, written, read, and averaged over seeds."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from apiece.errors import UserError
from apiece.evaluate import per_client
from apiece.evaluate.binary import auc, binary_per_client
from apiece.experiment.baseline import Baseline, error_scale, targets_of
from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome, finite
from apiece.experiment.measure import Trials, client_gains
from apiece.experiment.spec import BASELINES
from apiece.files import replace_file


def round_rows(trials: Trials) -> pa.Table:
    """One row per method, seed and evaluation; costs grow in proportion to the rounds done."""
    rows = []
    for name, by_seed in trials.items():
        for seed, outcome in by_seed.items():
            for point in outcome.curve:
                share = point["round"] / outcome.costs["rounds"]
                spent = {key: outcome.costs[key] * share for key in ("bytes_up", "bytes_down", "gradients")}
                rows.append({"method": name, "seed": seed, **point, **spent})
    names = dict.fromkeys(name for row in rows for name in row)  # a method may report what others do not
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])


def client_rows(arena: Arena, trials: Trials, baseline: Baseline | None = None) -> pa.Table:
    """One row per method, seed and client: its scores, and its gains in points, of error over the usual three, and of
    the criterion over the baseline."""
    tables = []
    test = arena.score
    scale = error_scale(arena, next(iter(next(iter(trials.values())).values())))
    attack = any(outcome.attacks.any() for by_seed in trials.values() for outcome in by_seed.values())
    for name, by_seed in trials.items():
        for seed, outcome in by_seed.items():
            error = finite(per_client(*outcome.scores("test", "error")))
            who = outcome.judged
            columns: dict[str, Any] = {
                "method": [name] * len(who),
                "seed": np.full(len(who), seed),
                "client": arena.ids[who].tolist(),
                "new": who >= arena.population,
                **({"attacks": outcome.attacks} if attack else {}),
                "train_examples": np.diff(arena.offsets)[who],
                "test_examples": np.diff(outcome.scores("test", "error")[1]),
                "test_loss": finite(per_client(*outcome.scores("test", "loss"))),
                f"test_{test}": 1 - error if test == "accuracy" else error,
            }
            values = {f"test_{m.name}": outcome.arrays[f"test_metric_{m.name}"] for m in arena.metrics}
            columns |= values
            if "test_margin" in outcome.arrays:
                columns.setdefault("test_auc", _auc(arena, outcome))
            for other in BASELINES:
                if seed in trials.get(other, {}):
                    theirs = finite(per_client(*trials[other][seed].scores("test", "error")))
                    columns[f"gain_over_{other}"] = 100 * (theirs - error) / scale
            score = f"test_{arena.criterion.metric}"
            columns.setdefault(score, arena.criterion.of_clients(outcome.arrays, "test"))
            if baseline is not None and seed in baseline.trials:
                columns["gain_over_baseline"] = client_gains(arena, outcome, baseline.trials[seed])
            tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _auc(arena: Arena, outcome: Outcome) -> NDArray:
    """Every client's own AUC, of two classes; NaN where it has one of them only."""
    positive, (margin, offsets) = targets_of(arena, outcome.judged) == 1, outcome.scores("test", "margin")
    return binary_per_client(finite(margin), positive, offsets, auc)


def write_table(path: Path, table: pa.Table) -> None:
    """A Parquet file, whole or not at all."""
    with replace_file(path) as temporary:
        pq.write_table(table, temporary)


def read_table(path: Path) -> pa.Table:
    """The table of a run folder; a `UserError` names a damaged one."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and resume to make it again") from None


COUNTED = ("gradients", "seconds", "clock")  # beside rounds and bytes
FACTS = ("test_examples", "test_loss")  # columns of tests that are not the score, which stands before all others


class ClientMeans(NamedTuple):
    """The clients of one method, means over seeds: NaN where a client has no test example or its model diverged.

    A seed in which a client attacks does not count for it.
    """

    ids: list[str]
    new: NDArray
    train: NDArray
    test: NDArray
    score: NDArray
    gain: NDArray  # over the baseline, points; all NaN without one
    attacks: NDArray = np.zeros(0)  # in how many of all seeds; the means are over the others. Empty: nobody attacks


def means_of_clients(table: pa.Table, metric: str | None = None) -> dict[str, ClientMeans]:
    """The client table with the seeds averaged away, split by method; `metric`: which score, by default the task's.

    >>> table = pa.table({"method": ["a", "a"], "seed": [0, 1], "client": ["x", "x"], "new": [False, False],
    ...                   "train_examples": [3, 3], "test_examples": [2, 2], "test_error": [1.0, 3.0]})
    >>> means_of_clients(table)["a"].score
    array([2.])
    """
    score = next(name for name in table.column_names if name.startswith("test_") and name not in FACTS)
    score = f"test_{metric}" if metric and f"test_{metric}" in table.column_names else score
    over = "gain_over_baseline" if "gain_over_baseline" in table.column_names else "gain_over_local"
    numbers = [name for name in (score, over) if name in table.column_names]
    facts = ["new", "train_examples", "test_examples"]
    wanted = [(name, "mean") for name in numbers] + [(name, "max") for name in facts]
    attack = "attacks" in table.column_names
    if attack:
        wanted.append(("attacks", "sum"))
        for name in numbers:
            honest = pc.if_else(table["attacks"], pa.scalar(None, pa.float64()), table[name])
            table = table.set_column(table.column_names.index(name), name, honest)
    # Without threads the clients keep the order of the table.
    means = table.group_by(["method", "client"], use_threads=False).aggregate(wanted)
    methods = means["method"].to_numpy()
    found = {}
    for method in dict.fromkeys(methods.tolist()):
        mine = means.filter(pa.array(methods == method))
        column = lambda name, mine=mine: mine[name].to_numpy().astype(np.float64)
        gain = column(f"{over}_mean") if over in numbers else np.full(len(mine), np.nan)
        found[method] = ClientMeans(
            mine["client"].to_pylist(),
            column("new_max").astype(bool),
            column("train_examples_max"),
            column("test_examples_max"),
            column(f"{score}_mean"),
            gain,
            column("attacks_sum") if attack else np.zeros(0),
        )
    return found


def scores_of_clients(table: pa.Table) -> dict[str, dict[str, ClientMeans]]:
    """By metric and method, every client's means over seeds: all that the client table has been judged by.

    >>> table = pa.table({"method": ["a"], "seed": [0], "client": ["x"], "new": [False], "train_examples": [3],
    ...                   "test_examples": [2], "test_loss": [0.5], "test_accuracy": [1.0]})
    >>> {metric: found["a"].score.tolist() for metric, found in scores_of_clients(table).items()}
    {'accuracy': [1.0], 'loss': [0.5]}
    """
    every = [name.removeprefix("test_") for name in table.column_names if name.startswith("test_")]
    every = [name for name in every if name not in ("examples", "loss")] + ["loss"] * ("loss" in every)
    return {metric: means_of_clients(table, metric) for metric in every}


class Progress(NamedTuple):
    """One method's validation loss, evaluation by evaluation: mean, least and largest over seeds.

    `error` is the standard error of the mean where only a sample of the clients was looked at.
    """

    rounds: NDArray
    bytes_sent: NDArray  # up and down, mean over seeds
    mean: NDArray
    least: NDArray
    largest: NDArray
    error: NDArray
    spent: dict[str, NDArray] = {}  # noqa: RUF012 - what else was counted until then: gradients, seconds, clock


def progress_of_methods(table: pa.Table, column: str = "validation_loss") -> dict[str, Progress]:
    """The table of rounds with the seeds averaged away, split by method; `column` is what is looked at.

    >>> table = pa.table({"method": ["a", "a"], "seed": [0, 1], "round": [5, 5], "validation_loss": [1.0, 3.0],
    ...                   "sampling_error": [0.0, 0.0], "bytes_up": [4.0, 4.0], "bytes_down": [6.0, 6.0]})
    >>> found = progress_of_methods(table)["a"]
    >>> found.rounds.tolist(), found.mean.tolist(), found.largest.tolist(), found.bytes_sent.tolist()
    ([5.0], [2.0], [3.0], [10.0])
    """
    if not table.num_rows or column not in table.column_names:
        return {}
    columns = {name: table[name].to_numpy() for name in table.column_names}
    every = dict.fromkeys(columns["method"].tolist())
    return {name: _progress(columns, columns["method"] == name, column) for name in every}


def _progress(columns: dict[str, NDArray], mine: NDArray, column: str) -> Progress:
    at, loss, error = (columns[name][mine] for name in ("round", column, "sampling_error"))
    error = error if column == "validation_loss" else 0 * error  # it is that of the loss
    sent = columns["bytes_up"][mine] + columns["bytes_down"][mine]
    rows = [at == number for number in np.unique(at)]
    reduce = lambda how, values: np.array([how(values[row]) for row in rows])
    return Progress(
        np.unique(at).astype(np.float64),
        reduce(np.mean, sent),
        reduce(np.mean, loss),
        reduce(np.min, loss),
        reduce(np.max, loss),
        # Seeds look at samples of their own, so that their errors are independent.
        np.sqrt(reduce(np.sum, error**2)) / reduce(len, loss),
        {name: reduce(np.mean, columns[name][mine]) for name in COUNTED if name in columns},
    )
