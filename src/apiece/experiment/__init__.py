"""Experiments: a spec in, a run folder out."""

from apiece.experiment.compare import Comparison, compare, resume, run_spec
from apiece.experiment.fit import Fit, fit
from apiece.experiment.spec import Spec, make_spec, read_values

__all__ = ["Comparison", "Fit", "Spec", "compare", "fit", "make_spec", "read_values", "resume", "run_spec"]
