"""Metrics of one's own: a function of a client's outputs and labels that gives a number.

    def f1(outputs, labels):          # NumPy arrays: what the client's model says of its examples, and the truth
        return sklearn.metrics.f1_score(labels, outputs.argmax(1), average="macro")

More is better, unless the function has an attribute `higher_is_better` that is false (or the spec says so). NaN: this
client has no such number. A metric stands in the curve, the record, the terminal and the page under its own name.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.evaluate import balanced_accuracy, macro_auc, macro_f1, per_client
from apiece.own import import_thing, raised_in
from apiece.registry import Registry

TAKEN = ("loss", "log_loss", "error", "accuracy", "rmse")  # names that have a meaning

# By name, for `rank` and `choose`; a metric of one's own with such a name is taken instead.
METRICS = Registry("metric", group="apiece.metrics", positional=2).add(
    auc=macro_auc, f1=macro_f1, balanced_accuracy=balanced_accuracy
)


class Metric(NamedTuple):
    """A metric by its name."""

    name: str
    function: Callable[[np.ndarray, np.ndarray], float]
    higher_is_better: bool = True

    def value(self, client: str, outputs: np.ndarray, labels: np.ndarray) -> float:
        """The number of one client; whatever goes wrong names metric and client."""
        try:
            found = self.function(outputs, labels)
            return float(found)
        except Exception as error:  # the user's own code
            raise UserError(f"metric '{self.name}' failed on client '{client}' ({len(labels)} examples, outputs "
                            f"{outputs.shape}): {raised_in(error)}") from error  # fmt: skip


class Criterion(NamedTuple):
    """What is ranked by: the metric of the record, whether more is better; what tuning chooses by; what hurts.

    `harm`: "error" or "loss", what is compared example by example to say who is hurt. `why`: said where nobody chose.
    """

    metric: str
    higher: bool
    chosen_by: tuple[str, bool] = ("validation_loss", False)
    harm: str = "error"
    why: str = ""

    def of_clients(self, arrays: dict[str, np.ndarray], part: str) -> np.ndarray:
        """The score of every client on its examples of a part; NaN where it has none, or the metric is undefined.

        >>> arrays = {"test_error": np.array([0.0, 1.0, 1.0]), "test_offsets": np.array([0, 2, 3])}
        >>> Criterion("accuracy", True).of_clients(arrays, "test").tolist()
        [0.5, 0.0]
        """
        if f"{part}_metric_{self.metric}" in arrays:
            return arrays[f"{part}_metric_{self.metric}"]
        kind = "loss" if self.metric == "loss" else "error"
        mean = per_client(arrays[f"{part}_{kind}"], arrays[f"{part}_offsets"])
        mean = np.where(np.isfinite(mean), mean, np.nan)
        return 1 - mean if self.metric == "accuracy" else np.sqrt(mean) if self.metric == "rmse" else mean


def metrics_of(given: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The metrics that a spec names: functions, paths, or tables with `function` and `higher_is_better`.

    >>> [metric.name for metric in metrics_of({"hits": lambda outputs, labels: 1.0})]
    ['hits']
    >>> try: metrics_of({"loss": "math:sqrt"})
    ... except UserError as error: print(error)
    metrics.loss: that name is taken; call it something else
    """
    return tuple(_metric(name, value) for name, value in given.items())


def _metric(name: str, value: Any) -> Metric:
    where = f"metrics.{name}"
    if name in TAKEN or not name.isidentifier():
        wrong = "that name is taken" if name in TAKEN else "a name has letters, digits and _ only"
        raise UserError(f"{where}: {wrong}; call it something else")
    table = dict(value) if isinstance(value, Mapping) else {"function": value}
    if set(table) - {"function", "higher_is_better"} or "function" not in table:
        raise UserError(f"{where} is a function, or a table with 'function' and 'higher_is_better', not {value!r}")
    function = import_thing(table["function"], "metric") if isinstance(table["function"], str) else table["function"]
    if not callable(function):
        raise UserError(f"{where} is no function of (outputs, labels), but {function!r}")
    higher = table.get("higher_is_better", getattr(function, "higher_is_better", True))
    if not isinstance(higher, bool):
        raise UserError(f"{where}.higher_is_better is true or false, not {higher!r}")
    return Metric(name, function, higher)
