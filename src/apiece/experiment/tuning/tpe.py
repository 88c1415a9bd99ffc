"""Many trials: Optuna's TPE behind ask and tell, its study in a database of the folder that several processes share.

A row begins with the spread-out points that few trials would have; then the sampler proposes. It works on the unit
cube that `experiment/tune.py` maps to values: zero, logarithms and rounding are then the same for both strategies.
"""

import contextlib
import functools
import hashlib
import importlib.util
import math
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from apiece.errors import UserError
from apiece.experiment.tune import between, share_of
from apiece.experiment.tuning.search import Asked, Budget, Trial
from apiece.experiment.tuning.workers import PATIENCE, Worker

LOOKS = 8  # at validation on the way of a trial: where it may be given up
WARM_UP = 2  # of them, before which nobody is
AT_ONCE = 4  # proposals that do not know of each other's results
SPREAD_FIRST = 8  # points before the sampler's first
AGAIN = 10  # proposals that were tried before, or are too dear, in a row: then there is nothing left to try
PRUNERS = ("median", "hyperband", "none")
TOLD = ("state", "validation", "rounds", "gradients", "seconds")  # of a trial, beside its options
Range = tuple[float, float]


def need_optuna(why: str) -> None:
    """Raise a `UserError` that names the extra, if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise UserError(f"{why} is searched by Optuna, which is not installed: pip install 'apiece[tune]'; or take "
                        f"at most {SPREAD_FIRST} trials, or --strategy spread")  # fmt: skip


class Tpe:
    """The search of one row in a study of its own, by its name.

    Args:
        path: the database. worker: this process. name: the row's. ranges, grid: where to look, as in `Variant`.
        stands: options that every setting has. points: those to begin with. budget: what may be spent. by: what is
            chosen by, and whether more of it is better. seed: of the proposals. pruner: who gives trials up.
    """

    at_once, looks = AT_ONCE, LOOKS

    def __init__(
        self,
        path: Path,
        worker: Worker,
        name: str,
        *,
        ranges: dict[str, Range],
        grid: dict[str, list[Any]],
        stands: dict[str, Any],
        points: Sequence[dict[str, Any]],
        budget: Budget,
        by: tuple[str, bool],
        seed: int,
        pruner: str = "median",
    ) -> None:
        self._worker, self._name, self._budget, self._seed = worker, name, budget, seed
        self._ranges, self._grid, self._stands, self._by = ranges, grid, stands, by
        self._points = list(points)
        self._asked: dict[int, Any] = {}  # trials of this process, by number
        with worker.turn():
            self._study = _open_study(path, name, pruner)

    def ask(self, most: int) -> list[Asked]:
        """The next proposals, or what a process that is gone had begun."""
        found: list[Asked] = []
        with self._worker.turn(), _quiet():
            self._give_up_the_lost()
            in_vain = 0
            while len(found) < most and in_vain < AGAIN:
                known = self._begun()
                spent = sum(map(_cost, known))
                if not self._affordable(known, spent):
                    break
                self._study.sampler = self._sampler(len(known), in_vain)
                if (point := self._waiting(known)) is not None:
                    shares = {option: self._share(option, value) for option, value in point.items() if self._is(option)}
                    self._study.enqueue_trial(shares, user_attrs={"point": point})
                trial = self._study.ask(self._space())
                options = trial.user_attrs.get("point") or self._options(trial.params)
                tried = any(other.user_attrs["begun"]["options"] == options for other in known)
                if tried or not self._budget.affords(options, spent, len(known)):
                    trial.set_user_attr("why", "tried before" if tried else "beyond the budget")
                    self._study.tell(trial, state=_states().FAIL)
                    in_vain += 1
                    continue
                cost = self._budget.cost(options)
                planned = 0.0 if math.isnan(cost) else cost
                begun = {"options": options, "worker": self._worker.name, "planned": planned}
                trial.set_user_attr("begun", begun)  # one of all: each is a write to the disk
                self._asked[trial.number] = trial
                found.append(Asked(trial.number, options))
                in_vain = 0
        return found

    def enough(self, asked: Asked, look: int, value: float) -> bool:
        """Whether the pruner gives it up, by what others had seen at the same look."""
        trial = self._asked[asked.number]
        if math.isfinite(value):
            trial.report(value, look)
            return bool(trial.should_prune())
        return False

    def tell(self, trials: Sequence[Trial]) -> None:
        """Into the study; the sampler learns from pruned and diverged ones, too."""
        with self._worker.turn():
            for one in trials:
                trial = self._asked.pop(one.number)
                told = one._asdict()
                trial.set_user_attr("told", {key: told[key] for key in TOLD})
                if one.state == "pruned":
                    self._study.tell(trial, state=_states().PRUNED)
                else:
                    self._study.tell(trial, value_of(one, self._by), state=_states().COMPLETE)

    def trials(self) -> list[Trial]:
        """All that were begun and have ended, numbered in this order."""
        ended = [trial for trial in self._all() if trial.state.is_finished() and "begun" in trial.user_attrs]
        return [_plain(at, trial) for at, trial in enumerate(ended)]

    def running(self) -> int:
        """How many trials processes are at that are still there."""
        begun = [trial.user_attrs["begun"] for trial in self._all([_states().RUNNING]) if "begun" in trial.user_attrs]
        return sum(self._worker.is_at_work(trial["worker"]) for trial in begun)

    def _all(self, states: list[Any] | None = None) -> list[Any]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _begun(self) -> list[Any]:
        """The trials that count towards the budget: not those that were lost, which are done again."""
        states = _states()
        every = self._all([states.COMPLETE, states.PRUNED, states.RUNNING])
        return [trial for trial in every if "begun" in trial.user_attrs]

    def _affordable(self, known: Sequence[Any], spent: float) -> bool:
        least = min((trial.user_attrs["begun"]["planned"] for trial in known), default=0.0)
        return len(known) < self._budget.trials and spent + least <= self._budget.gradients * (1 + 1e-9)

    def _give_up_the_lost(self) -> None:
        """What a process had begun that is gone."""
        for trial in self._all([_states().RUNNING]):
            if not self._worker.is_at_work(trial.user_attrs.get("begun", {}).get("worker", "")):
                self._study.tell(trial.number, state=_states().FAIL)

    def _waiting(self, known: Sequence[Any]) -> dict[str, Any] | None:
        """What comes before the sampler's proposals: what was lost, in its order, and then the points to begin with."""
        lost = [trial.user_attrs["begun"]["options"] for trial in self._all([_states().FAIL])
                if "begun" in trial.user_attrs]  # fmt: skip
        tried = [trial.user_attrs["begun"]["options"] for trial in known]
        return next((point for point in [*lost, *self._points] if point not in tried), None)

    def _sampler(self, begun: int, in_vain: int) -> Any:
        """A sampler for the next proposal: seeded by how many there were, so that a killed search goes on as it was."""
        import optuna

        digest = hashlib.sha256(f"{self._seed} {self._name} {begun} {in_vain}".encode()).digest()
        return optuna.samplers.TPESampler(
            n_startup_trials=4, multivariate=True, constant_liar=True, seed=int.from_bytes(digest[:4], "big")
        )

    def _space(self) -> dict[str, Any]:
        from optuna.distributions import FloatDistribution, IntDistribution

        numbers = {option: FloatDistribution(0.0, 1.0) for option in self._ranges}
        return numbers | {option: IntDistribution(0, len(values) - 1) for option, values in self._grid.items()}

    def _options(self, params: dict[str, Any]) -> dict[str, Any]:
        numbers = {option: between(*ends, params[option]) for option, ends in self._ranges.items()}
        return self._stands | numbers | {option: values[params[option]] for option, values in self._grid.items()}

    def _is(self, option: str) -> bool:
        return option in self._ranges or option in self._grid

    def _share(self, option: str, value: Any) -> float | int:
        return share_of(*self._ranges[option], value) if option in self._ranges else self._grid[option].index(value)


def value_of(trial: Trial, by: tuple[str, bool]) -> float:
    """What the sampler minimizes: what is chosen by, with its sign; infinity of a trial that diverged.

    >>> told = {"validation_loss": 0.5, "validation_f1": 0.75}
    >>> value_of(Trial(0, {}, "finished", told, 5, 10.0, 0.1), ("validation_f1", True))
    -0.75
    """
    name, higher = by
    found = trial.validation.get(name)
    if trial.state == "diverged" or found is None or not math.isfinite(found):
        return math.inf
    return -found if higher else found


def _cost(trial: Any) -> float:
    """What a trial has cost, or will."""
    found = trial.user_attrs.get("told", {}).get("gradients")
    return trial.user_attrs["begun"]["planned"] if found is None or math.isnan(found) else found


def _plain(number: int, trial: Any) -> Trial:
    options, told = trial.user_attrs["begun"]["options"], trial.user_attrs.get("told")
    return Trial(number, options, "lost", {}, 0, 0.0, 0.0) if told is None else Trial(number, options, **told)


def _open_study(path: Path, name: str, pruner: str) -> Any:
    import optuna
    from optuna.pruners import HyperbandPruner, MedianPruner, NopPruner

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    who: dict[str, Any] = {
        "median": lambda: MedianPruner(n_startup_trials=4, n_warmup_steps=WARM_UP),
        "hyperband": lambda: HyperbandPruner(min_resource=WARM_UP, max_resource=LOOKS, reduction_factor=2),
        "none": NopPruner,
    }
    with _quiet():
        file = path.resolve()
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}", engine_kwargs={"creator": lambda: _connect(file)})
        return optuna.create_study(storage=storage, study_name=name, load_if_exists=True, pruner=who[pruner]())


def _connect(path: Path) -> sqlite3.Connection:
    """The database with a log of what is written ahead: nothing is lost with a process, and nobody waits for a disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
    found.execute("PRAGMA journal_mode=WAL")
    found.execute("PRAGMA synchronous=NORMAL")
    return found


@functools.cache
def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's warnings that parts of it are new."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield
