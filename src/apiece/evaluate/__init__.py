"""What a run says about its clients: NumPy arrays in, numbers with their doubt out.

`per_client` turns per-example outcomes into one number for each client, `summarize` turns those into the table's
columns, `interval` and `paired_interval` speak over seeds, `hurt` says who is worse off than alone, `ranked` and
`gap_to_best` who is best and by how much, `trend_of` whether a run has come to rest.
"""

from apiece.evaluate.binary import (
    auc,
    binary_per_client,
    false_accepts,
    has_both_classes,
    rates,
    summarize_defined,
    threshold,
)
from apiece.evaluate.clients import per_client, sizes_of
from apiece.evaluate.convergence import Trend, trend_of, trend_of_seeds
from apiece.evaluate.hurt import Hurt, hurt, hurt_from_sums
from apiece.evaluate.metrics import Interval, interval, paired_interval, r2, summarize
from apiece.evaluate.outputs import balanced_accuracy, macro_auc, macro_f1
from apiece.evaluate.ranking import excludes_tie, gap_to_best, half_over_clients, ranked
from apiece.evaluate.regression import has_variance, r2_per_client, rmse, rmse_per_client
from apiece.evaluate.tasks import binary_metrics, regression_metrics

__all__ = [
    "Hurt",
    "Interval",
    "Trend",
    "auc",
    "balanced_accuracy",
    "binary_metrics",
    "binary_per_client",
    "excludes_tie",
    "false_accepts",
    "gap_to_best",
    "half_over_clients",
    "has_both_classes",
    "has_variance",
    "hurt",
    "hurt_from_sums",
    "interval",
    "macro_auc",
    "macro_f1",
    "paired_interval",
    "per_client",
    "r2",
    "r2_per_client",
    "ranked",
    "rates",
    "regression_metrics",
    "rmse",
    "rmse_per_client",
    "sizes_of",
    "summarize",
    "summarize_defined",
    "threshold",
    "trend_of",
    "trend_of_seeds",
]
