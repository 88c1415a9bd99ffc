"""Does a method keep the contract? `check_method` runs every line of it (`apiece.protocol`), on every engine.

For whoever writes a method: give `check_method` the factory, and it answers with the list of what was checked, or
with an error that names the line of the contract that is broken. The federation it uses is small and ragged: clients
of 1, 3, 7 and 20 examples, and one of 5 that never takes part. The model is a softmax with the parameters w and b; for
what only layers can show (a check with `layers`), a network with the layers `hidden0` and `out`.

What it cannot find: a check on behaviour knows what every method must keep, not what this one was meant to be. A
mixture that leaves [0, 1], a pull of the wrong strength, another layer private than the paper's: each is a sound
method, only another one. Golden numbers and identities (docs/how-to-add-a-method.md) find those.

`apiece.testing.judge_advice(federation)` judges an advisor (`apiece.experiment.advice_judge`), for strangers, too.

>>> from apiece.methods import fed_avg
>>> len(check_method(fed_avg, engines=("remote",), checks=["message_draws_nothing", "rows_of_others_are_never_read"]))
2
"""

import importlib
from typing import Any

from apiece.testing.case import ENGINES, Case
from apiece.testing.check import check_method, run_check
from apiece.testing.contract import CHECKS

__all__ = ["CHECKS", "ENGINES", "Case", "check_method", "run_check"]


def __getattr__(name: str) -> Any:
    if name == "judge_advice":  # stands above this room, and belongs to it in name only
        return importlib.import_module("apiece.experiment.advice_judge").judge_advice
    raise AttributeError(f"module 'apiece.testing' has no attribute '{name}'")
