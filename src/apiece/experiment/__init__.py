"""Experiments: a spec in, a run folder out."""

from apiece.experiment.compare import Comparison, compare, resume, run_spec
from apiece.experiment.export import export_model
from apiece.experiment.fit import Fit, fit
from apiece.experiment.folder import RunFolder, read_record
from apiece.experiment.opened import OpenedRun, open
from apiece.experiment.prediction import Prediction
from apiece.experiment.product import Product
from apiece.experiment.record import Record
from apiece.experiment.spec import Spec, make_spec, read_values
from apiece.experiment.sweep import Sweep, sweep

__all__ = ["Comparison", "Fit", "OpenedRun", "Prediction", "Product", "Record", "RunFolder", "Spec", "Sweep",
           "compare", "export_model", "fit", "make_spec", "open", "read_record", "read_values", "resume",
           "run_spec", "sweep"]  # fmt: skip
