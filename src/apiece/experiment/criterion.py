"""The criterion of a comparison: what methods are ranked by, what tuning chooses by, and in what gains are told.

It is the user's (`rank` in a spec, `--metric` on the command line): a score of the task (accuracy, error, log_loss,
rmse), a metric by name (auc, f1, balanced_accuracy), or one's own. Tuning goes by it, too, unless `choose` says
otherwise. Who names none is ranked by accuracy, or by the squared error of numbers, and tuned by the loss; where
accuracy means little, because one class has most of the labels, by AUC.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from apiece.data import Federation
from apiece.data.splits import Split
from apiece.errors import UserError, suggest
from apiece.experiment.metric import METRICS, Criterion, Metric
from apiece.experiment.spec import Spec

# A majority of 80 %: a constant has four fifths of the scale, and of a hundred test examples twenty tell methods apart.
SKEWED = 0.8


def named_metrics(spec: Spec, federation: Federation, own_outcomes: bool) -> dict[str, Any]:
    """The metrics by name that a spec ranks or chooses by and does not define itself."""
    wanted = {spec.rank or _by_labels(federation, own_outcomes)[0], spec.choose} - set(spec.metrics)
    return {name: METRICS[name] for name in METRICS if name in wanted}


def criterion_of(
    spec: Spec, federation: Federation, score: str, metrics: Sequence[Metric], own_outcomes: bool = False
) -> Criterion:
    """The criterion of a spec on a federation; `score` is the one of its task.

    >>> from apiece.data import digits
    >>> criterion_of(Spec(), digits(), "accuracy", ())
    Criterion(metric='accuracy', higher=True, chosen_by=('validation_loss', False), harm='error', why='')
    >>> try: criterion_of(Spec(rank="rmse"), digits(), "accuracy", ())
    ... except UserError as error: print(error)
    rank = 'rmse' is for numbers, and digits has classes: take accuracy, log_loss, auc, f1 or a metric of your own
    """
    numbers = federation.task == "regression"
    known = {"loss": False, score: score == "accuracy"} | {metric.name: metric.higher_is_better for metric in metrics}
    known |= {"rmse": False} if numbers and score == "error" else {}
    by_labels, why = _by_labels(federation, own_outcomes) if spec.rank is None else (None, "")
    rank = _plain(spec.rank or by_labels or score, score)
    choose = _plain(spec.choose or (rank if spec.rank else "loss"), score)
    _refuse_undefined(spec, federation)
    if rank not in known:
        if rank in ("rmse", "accuracy"):
            kind, other = ("numbers", "classes") if rank == "rmse" else ("classes", "numbers")
            instead = "accuracy, log_loss, auc, f1" if rank == "rmse" else "error, rmse, loss"
            raise UserError(f"rank = '{rank}' is for {kind}, and {federation.name} has {other}: take {instead} or a "
                            "metric of your own")  # fmt: skip
        raise UserError(f"rank = '{spec.rank}': {suggest(rank, [*known, *METRICS])}")
    looks = {"loss": ("loss", False), "error": ("error", False), "accuracy": ("error", False), "rmse": ("error", False)}
    looks |= {metric.name: (metric.name, metric.higher_is_better) for metric in metrics}
    if score not in looks:
        looks[score] = ("error", False)  # what an objective of one's own calls its error
    if choose not in looks:
        raise UserError(f"choose = '{spec.choose}': {suggest(choose, looks)}")
    name, higher = looks[choose]
    harm = "loss" if rank in ("loss", "auc") else "error"
    return Criterion(rank, known[rank], (f"validation_{name}", higher), harm, why)


def _plain(name: str, score: str) -> str:
    same = {"log_loss": "loss"} | ({"error": "accuracy"} if score == "accuracy" else {})
    return same.get(name, name)


def _refuse_undefined(spec: Spec, federation: Federation) -> None:
    """A metric of classes for numbers, or an AUC that no client has, is a mistake that can be told beforehand."""
    for key, name in (("rank", spec.rank), ("choose", spec.choose)):
        if name is None or name not in METRICS or name in spec.metrics:
            continue
        if not federation.classes:
            raise UserError(f"{key} = '{name}' is for classes, and {federation.name} has none: take error, rmse, loss "
                            "or a metric of your own")  # fmt: skip
        part = federation.test if key == "rank" else federation.validation
        if name == "auc" and not _mixed(part):
            raise UserError(f"{key} = 'auc': no client of {federation.name} has several classes among its "
                            f"{'test' if key == 'rank' else 'validation'} examples; take log_loss")  # fmt: skip


def _mixed(part: Split) -> int:
    """How many clients have several classes among these examples."""
    ends = np.cumsum(np.asarray(part.sizes))[:-1]
    return sum(len(np.unique(mine)) > 1 for mine in np.split(np.asarray(part.y), ends))


def _by_labels(federation: Federation, own_outcomes: bool) -> tuple[str | None, str]:
    """(what to rank by where accuracy would mean little, why); (None, "") where it means something."""
    train, test = federation.train, federation.test
    if federation.task != "classification" or own_outcomes or np.ndim(train.y) != 1 or not train.rows:
        return None, ""
    counts = np.bincount(np.asarray(train.y), minlength=len(federation.classes))
    share = counts.max() / counts.sum()
    if share < SKEWED:
        return None, ""
    sizes, mixed = np.asarray(test.sizes), _mixed(test)
    often = federation.classes[int(counts.argmax())]
    why = f"{100 * share:.0f} % of the training labels are '{often}', and to say so always would be as accurate: "
    if 2 * mixed < (sizes > 0).sum():
        few = f"AUC is defined for {mixed} clients only, those with several classes among their test examples"
        return "loss", f"{why}methods are ranked by log loss ({few}); --metric accuracy ranks by accuracy"
    return "auc", f"{why}methods are ranked by AUC and tuned by log loss; --metric accuracy ranks by accuracy"
