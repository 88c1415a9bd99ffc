"""How a tuning goes: by which strategy, and what every row may spend, which is the same in gradient evaluations."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from apiece.errors import UserError, suggest
from apiece.experiment.bench import Bench
from apiece.experiment.tuning.search import Budget
from apiece.experiment.tuning.tpe import LOOKS, PRUNERS, SPREAD_FIRST, need_optuna

STRATEGIES = ("auto", "spread", "tpe")
CHEAP = 4  # times as many trials as were asked for, at most, of methods that cost less: more would find nothing new


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """What was asked of a tuning, resolved: `spread` or `tpe`, trials a method, and gradient evaluations, if said.

    >>> plan_search(trials=30).strategy, plan_search().strategy
    ('tpe', 'spread')
    """

    strategy: str
    trials: int | None
    gradients: float | None
    pruner: str

    @property
    def looks(self) -> int:
        """Looks at validation in a trial."""
        return LOOKS if self.strategy == "tpe" else 1


def plan_search(
    trials: int | None = None, gradients: float | None = None, strategy: str = "auto", pruner: str | None = None
) -> SearchPlan:
    """The plan that follows from what a user says; what is wrong with it is a `UserError` that names the option.

    >>> try: plan_search(trials=8, pruner="median")
    ... except UserError as error: print(error)
    pruner = 'median': few trials are spread out and all go to their end; take strategy tpe, or more than 8 trials
    """
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
        raise UserError(f"trials = {trials!r}: a whole number of trials for each method is needed, at least 1")
    known = isinstance(gradients, int | float) and not isinstance(gradients, bool) and 0 < gradients < math.inf
    if gradients is not None and not known:
        raise UserError(f"gradients = {gradients!r}: what each method may spend is a number of gradient evaluations "
                        "above 0, such as 1e6")  # fmt: skip
    if strategy not in STRATEGIES:
        raise UserError(f"strategy = '{strategy}' is unknown: {suggest(str(strategy), STRATEGIES)}")
    if pruner is not None and pruner not in PRUNERS:
        raise UserError(f"pruner = '{pruner}' is unknown: {suggest(str(pruner), PRUNERS)}")
    if strategy == "auto":
        many = trials > SPREAD_FIRST if trials is not None else gradients is not None
        strategy = "tpe" if many else "spread"
    if strategy == "spread" and pruner not in (None, "none"):
        raise UserError(f"pruner = '{pruner}': few trials are spread out and all go to their end; take strategy tpe, "
                        f"or more than {SPREAD_FIRST} trials")  # fmt: skip
    if strategy == "tpe":
        said = f"trials = {trials}" if trials is not None else f"gradients = {gradients:g}" if gradients else ""
        need_optuna(said or "strategy = 'tpe'")
    default = SPREAD_FIRST if gradients is None else None
    return SearchPlan(strategy, trials or default, gradients, pruner or ("median" if strategy == "tpe" else "none"))


def looks_of(rounds: int, most: int) -> tuple[int, int]:
    """(rounds between looks, how many looks) of a trial, with at most so many looks.

    >>> looks_of(100, 8), looks_of(5, 8)
    ((13, 8), (1, 5))
    """
    every = -(-rounds // most)
    return every, -(-rounds // every)


def budgets_of(
    plan: SearchPlan, benches: Mapping[str, Bench], first: Mapping[str, dict[str, Any]], seed: int
) -> tuple[dict[str, Budget], list[str]]:
    """(the budget of every row, what a reader should know of them).

    All may spend as many gradient evaluations: those of `trials` trials of the dearest row, or what the user said.
    """
    costs = {name: _cost_of(bench, plan, seed) for name, bench in benches.items()}
    once = {name: costs[name](first[name]) for name in benches}
    known = {name: cost for name, cost in once.items() if not math.isnan(cost)}
    notes = [f"{name}: what a trial costs is known only when it has run, so it gets as many trials as were asked for"
             for name in once if name not in known]  # fmt: skip
    if plan.gradients is None:
        assert plan.trials is not None
        total, most = plan.trials * max(known.values(), default=math.inf), CHEAP * plan.trials
    else:
        dear = [name for name, cost in known.items() if cost > plan.gradients]
        if dear:
            raise UserError(f"gradients = {plan.gradients:g}: a single trial of '{dear[0]}' takes "
                            f"{known[dear[0]]:,.0f}; give more, fewer rounds, or leave it out")  # fmt: skip
        total = plan.gradients
        most = plan.trials or _trials_of(total, max(known.values(), default=0.0))
    asked = plan.trials or most
    return {name: Budget(total, most if name in known else asked, costs[name]) for name in benches}, notes


def _trials_of(gradients: float, dearest: float) -> int:
    """How many trials at most, where only gradients are given: as above.

    >>> _trials_of(1000.0, 100.0)
    40
    """
    return CHEAP * max(int(gradients / dearest), 1) if dearest else CHEAP * SPREAD_FIRST


def _cost_of(bench: Bench, plan: SearchPlan, seed: int) -> Any:
    rounds, known = bench.plan.tuning_rounds, {}

    def cost(options: dict[str, Any]) -> float:
        engine = id(bench.engine(options)[0])
        if engine not in known:
            known[engine] = bench.gradients(options, seed, rounds, looks_of(rounds, plan.looks)[1])
        return known[engine]

    return cost
