"""Tuning by itself: every method over its own space, with equal budgets of gradients; out comes a spec."""

from apiece.experiment.tuning.folder import TuningFolder, is_tuning
from apiece.experiment.tuning.given import tune
from apiece.experiment.tuning.plan import SearchPlan, plan_search
from apiece.experiment.tuning.run import Tuning, join_tuning, tune_spec

__all__ = ["SearchPlan", "Tuning", "TuningFolder", "is_tuning", "join_tuning", "plan_search", "tune", "tune_spec"]
