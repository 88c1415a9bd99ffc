"""(stacked replies, weight) -> one tree. Rows of weight 0 never matter, whatever they hold.

Two families. `mean` and `plain_mean` are functions of (stacked, weight). The robust rules, which bear a few replies
that are anything at all, are made by factories (`median()`, `krum(byzantine=2)`, `bucketing(krum(byzantine=2))`). Such
a `Rule` is called with (stacked, weight, key, last), the same for all: `key` is spent by `bucketing` alone, and `last`,
the rule's previous answer, is read by `centered_clipping` alone. A robust rule counts every present reply (weight > 0)
once, whatever its weight: who claims many examples is not heard more loudly. Distances are over the whole tree.

A present entry that is not a number counts as +infinity: to a rule that bears f wild replies, it is one of them.
"""

from apiece.aggregate.mean import mean, plain_mean
from apiece.aggregate.mixing import bucketing, nearest_neighbour_mixing
from apiece.aggregate.robust import centered_clipping, geometric_median, krum, median, multi_krum, trimmed_mean
from apiece.aggregate.rule import RULES, Rule, as_rule, flatten, rule

RULES.add(
    mean=lambda: as_rule(mean),
    plain_mean=lambda: as_rule(plain_mean),
    median=median,
    trimmed_mean=trimmed_mean,
    krum=krum,
    multi_krum=multi_krum,
    geometric_median=geometric_median,
    centered_clipping=centered_clipping,
    bucketing=bucketing,
    nearest_neighbour_mixing=nearest_neighbour_mixing,
)

# fmt: off
__all__ = [
    "mean", "plain_mean",
    "median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centered_clipping",
    "bucketing", "nearest_neighbour_mixing",
    "RULES", "Rule", "as_rule", "rule", "flatten",
]
