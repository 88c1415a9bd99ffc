"""What a task has beyond loss and error: R2 and RMSE of a regression, AUC and false accepts of two classes."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apiece.evaluate.binary import auc, binary_per_client, false_accepts, has_both_classes, summarize_defined
from apiece.evaluate.clients import sizes_of
from apiece.evaluate.metrics import r2
from apiece.evaluate.regression import has_variance, r2_per_client, rmse, rmse_per_client


def regression_metrics(
    squared_error: ArrayLike, target: ArrayLike, offsets: ArrayLike, train_sizes: ArrayLike | None = None
) -> dict[str, Any]:
    """`rmse` and `r2_clients` over clients (as `summarize` has it), `rmse_pooled` and `r2` of all rows together.

    >>> found = regression_metrics([0.0, 1.0, 4.0, 4.0], [1.0, 2.0, 5.0, 5.0], [0, 2, 4])
    >>> found["rmse_pooled"], round(found["r2"], 3), found["rmse"]["max"], found["r2_clients"]["clients_undefined"]
    (1.5, 0.294, 2.0, 1)
    """
    target = np.asarray(target)
    sizes = sizes_of(offsets)
    found: dict[str, Any] = {
        "rmse": summarize_defined(
            rmse_per_client(squared_error, offsets), sizes, sizes > 0, False, train_sizes=train_sizes
        ),
        "rmse_pooled": rmse(squared_error),
    }
    if target.ndim > 1:  # several targets have no one variance
        return found
    own = r2_per_client(squared_error, target, offsets)
    found["r2"] = r2(squared_error, target)
    found["r2_clients"] = summarize_defined(own, sizes, has_variance(target, offsets), True, train_sizes=train_sizes)
    return found


def binary_metrics(
    score: ArrayLike, label: ArrayLike, offsets: ArrayLike, train_sizes: ArrayLike | None = None
) -> dict[str, Any]:
    """`auc` and `false_accepts` (at 5 % false rejects) over clients and, as `..._pooled`, of all rows together.

    `score` is the logit of the second class minus that of the first, `label` the class, 0 or 1. Pooled, one threshold
    serves all clients, so scores must be comparable among them; over clients, each has a threshold of its own.

    >>> found = binary_metrics([3.0, 1.0, 2.0, 0.5], [1, 0, 1, 1], [0, 2, 4])
    >>> found["auc_pooled"], found["auc"]["clients"], found["auc"]["clients_undefined"]
    (0.6666666666666666, 1, 1)
    """
    positive = np.asarray(label) == 1
    sizes, both = sizes_of(offsets), has_both_classes(positive, offsets)
    found: dict[str, Any] = {}
    for name, metric, higher in (("auc", auc, True), ("false_accepts", false_accepts, False)):
        own = binary_per_client(score, positive, offsets, metric)
        found[name] = summarize_defined(own, sizes, both, higher, train_sizes=train_sizes)
        found[f"{name}_pooled"] = metric(score, positive)
    return found
