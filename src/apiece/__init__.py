"""apiece: personalized federated learning. A model apiece.

    import apiece

    result = apiece.fit("ditto", federation=apiece.data.digits(clients=20), rounds=50)
    result.personal("7")                      # client 7's own model
    result.onboard(x, y)                      # a model for a client nobody has seen
    apiece.compare("digits", ["ditto", "fed_clup"], rounds=100, seeds=3)
    print(*apiece.advise("digits").answer)    # how much to personalize, and by which method
    apiece.open("runs/compare-1").predict("7", "new.csv")     # later, from the run folder alone

Everything is loaded when first used, so that `import apiece` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apiece import (
        advise,
        aggregate,
        client,
        data,
        engines,
        errors,
        estimate,
        evaluate,
        experiment,
        methods,
        models,
        protocol,
        registry,
        report,
        split,
        testing,
        theory,
        tree,
        wrap,
    )
    from apiece.data import Federation
    from apiece.engines.devices import remember_compiled, use_all_cores
    from apiece.errors import UserError
    from apiece.experiment.compare import compare, resume
    from apiece.experiment.fit import fit
    from apiece.experiment.opened import open
    from apiece.experiment.sweep import sweep
    from apiece.experiment.tuning import tune
    from apiece.methods import CATALOG
    from apiece.protocol import Batch, Cohort, Data, Method
    from apiece.wrap import fine_tuned

_HOME = {
    "Batch": "apiece.protocol",
    "CATALOG": "apiece.methods",
    "Cohort": "apiece.protocol",
    "Data": "apiece.protocol",
    "Federation": "apiece.data",
    "Method": "apiece.protocol",
    "UserError": "apiece.errors",
    "compare": "apiece.experiment",
    "fine_tuned": "apiece.wrap",
    "fit": "apiece.experiment",
    "open": "apiece.experiment",
    "remember_compiled": "apiece.engines.devices",
    "resume": "apiece.experiment",
    "sweep": "apiece.experiment",
    "tune": "apiece.experiment.tuning",
    "use_all_cores": "apiece.engines.devices",
}
_MODULES = ("advise", "aggregate", "client", "data", "engines", "errors", "estimate", "evaluate", "experiment",
            "methods", "models", "protocol", "registry", "report", "split", "testing", "theory", "tree",
            "wrap")  # fmt: skip

# fmt: off
__all__ = [
    "fit", "sweep", "tune", "compare", "resume", "open",
    "Federation", "CATALOG", "fine_tuned", "UserError",
    "Method", "Data", "Batch", "Cohort",
    "remember_compiled", "use_all_cores",
    "advise", "aggregate", "client", "data", "engines", "errors", "estimate", "evaluate", "experiment", "methods",
    "models", "protocol", "registry", "report", "split", "testing", "theory", "tree", "wrap",
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"apiece.{name}")
    raise AttributeError(f"module 'apiece' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
