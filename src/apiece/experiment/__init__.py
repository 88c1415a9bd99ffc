"""Experiments: a spec in, a run folder out."""

from apiece.experiment.compare import Comparison, resume, run_spec
from apiece.experiment.spec import Spec, make_spec, read_values

__all__ = ["Comparison", "Spec", "make_spec", "read_values", "resume", "run_spec"]
