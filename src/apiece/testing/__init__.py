"""Does a method keep the contract? `check_method` runs every line of it (`apiece.protocol`), on every engine.

For whoever writes a method: give `check_method` the factory, and it answers with the list of what was checked, or
with an error that names the line of the contract that is broken. The federation it uses is small and ragged: clients
of 1, 3, 7 and 20 examples, and one of 5 that never takes part.

>>> from apiece.methods import fed_avg
>>> len(check_method(fed_avg, engines=("remote",), checks=["message_draws_nothing", "rows_of_others_are_never_read"]))
2
"""

from apiece.testing.case import ENGINES, Case
from apiece.testing.check import check_method, run_check
from apiece.testing.contract import CHECKS

__all__ = ["CHECKS", "ENGINES", "Case", "check_method", "run_check"]
