"""What is measured about clients: how alike they are, how sure of themselves, what a split of the model would do."""

from apiece.estimate.curvature import Curvature, RangeTest, find_longest_steps, measure_curvature
from apiece.estimate.diagnose import SplitDiagnosis, diagnose_split
from apiece.estimate.similarity import (
    bias_from_distance,
    bias_of_clusters,
    combine,
    cross_evaluation,
    gradient_and_error,
    gradient_bias,
    largest_eigenvalue,
    mean_and_error,
    mean_distance,
    neighbours,
    oracle,
    total_variation,
    wasserstein,
)
from apiece.estimate.variance import bootstrap, sandwich

# fmt: off
__all__ = [
    "neighbours", "largest_eigenvalue", "combine",
    "oracle", "cross_evaluation", "gradient_bias", "bias_from_distance", "bias_of_clusters",
    "gradient_and_error", "mean_and_error", "mean_distance", "total_variation", "wasserstein",
    "bootstrap", "sandwich",
    "SplitDiagnosis", "diagnose_split",
    "Curvature", "RangeTest", "find_longest_steps", "measure_curvature",
]
