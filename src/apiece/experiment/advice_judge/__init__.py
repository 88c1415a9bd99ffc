"""Is an advice right? A judge that owns the test data, meters what the advisor spends, and tries everything itself."""

from apiece.experiment.advice_judge.judge import Judged, judge_advice, summarize_judged
from apiece.experiment.advice_judge.meter import BudgetSpent, Meter, metered
from apiece.experiment.advice_judge.sweep import SWEPT, Swept, sweep_methods

__all__ = ["SWEPT", "BudgetSpent", "Judged", "Meter", "Swept", "judge_advice", "metered", "summarize_judged",
           "sweep_methods"]  # fmt: skip
