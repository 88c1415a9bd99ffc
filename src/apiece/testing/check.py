"""Check a method: every line of the contract, on every engine."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from apiece.errors import UserError, suggest
from apiece.protocol import Method
from apiece.testing.case import ENGINES, Case
from apiece.testing.contract import CHECKS
from apiece.testing.line import Check


def check_method(
    factory: Callable[..., Method],
    *,
    engines: Sequence[str] = ENGINES,
    options: dict[str, Any] | None = None,
    hyper: dict[str, float] | None = None,
    checks: Iterable[str] | None = None,
) -> list[str]:
    """Check a method against every line of the contract; returns what was checked, raises at the first line broken.

    Args:
        factory: `factory(loss, **options) -> Method`, as in the catalog.
        engines: on which to run it. options: what to give the factory, beside small numbers of steps where it has
            `steps`, `batch` and the like. hyper: the options to be traced and their values; by default those whose
            default in the signature is a float. checks: names from `CHECKS`; by default all.

    >>> from apiece.methods import fed_avg
    >>> check_method(fed_avg, engines=(), checks=["states_keep_their_shapes"])
    ['line 1: A state comes out with the structure, shapes and dtypes it went in with.']
    >>> from apiece.protocol import Method
    >>> def forgetful(loss, *, lr=0.1):
    ...     average = fed_avg(loss, lr=lr)
    ...     return average._replace(merge=lambda x, replies, cohort, key: ())
    >>> check_method(forgetful)
    Traceback (most recent call last):
    AssertionError: line 1 of the contract is broken. A state comes out with the structure, shapes and dtypes it
    went in with. But in float32 the server's state after merge has another structure: ...
    """
    if not callable(factory):
        raise UserError(f"check_method is given the factory itself, not {factory!r}; apiece.CATALOG has those of names")
    names = list(CHECKS if checks is None else checks)
    for kind, given, known in (("check", names, CHECKS), ("engine", engines, ENGINES)):
        for name in given:
            if name not in known:
                raise UserError(f"unknown {kind} '{name}'; {suggest(name, known)}")
    case, done = Case(factory, options, hyper, engines), []
    for name in names:
        for engine in CHECKS[name].engines:
            if engine == "functions" or engine in engines:
                done.append(run_check(case, CHECKS[name], engine))
    return done


def run_check(case: Case, check: Check, engine: str) -> str:
    """One check on one engine; what was checked, or an AssertionError that names the line.

    >>> from apiece.methods import fed_avg
    >>> run_check(Case(fed_avg), CHECKS["message_draws_nothing"], "functions")
    'line 3: A message is a view of the state: it draws nothing and changes nothing.'
    """
    where = "" if engine == "functions" else f" on the {engine} engine"
    if check.layers and case.refuses_layers:
        return f"line {check.line}: not looked at, because the method refuses networks of two layers"
    try:
        check.run(case, engine)
    except Exception as error:
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(
            f"line {check.line} of the contract is broken{where}. {check.sentence} But {what}"
        ) from error
    return f"line {check.line}{where}: {check.sentence}"
