"""`apiece.tune(...)`: from Python's arguments to a spec and a plan."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apiece import files
from apiece.data import Federation
from apiece.errors import UserError
from apiece.experiment.check import check_spec
from apiece.experiment.claim import claim_new_folder
from apiece.experiment.spec import make_spec
from apiece.experiment.train import Watch
from apiece.experiment.tuning.folder import TuningFolder
from apiece.experiment.tuning.plan import plan_search
from apiece.experiment.tuning.run import Tuning, begin_tuning, check_search, go_on, tune_spec
from apiece.experiment.variant import tables_of
from apiece.methods import USUAL
from apiece.protocol import Method


def tune(
    data: str | Path | Federation = "digits",
    methods: Sequence[str | Callable[..., Method]] | dict[str, Any] = USUAL,
    *,
    trials: int | None = None,
    gradients: float | None = None,
    strategy: str = "auto",
    pruner: str | None = None,
    rounds: int | str = 100,
    seeds: int | list[int] = 3,
    out: str | Path | None = None,
    model: Any = "auto",
    objective: Any = None,
    metrics: Mapping[str, Any] | None = None,
    watch: Watch = lambda what, done, total: None,
    data_options: dict[str, Any] | None = None,
    model_options: dict[str, Any] | None = None,
    rank: str | None = None,
    choose: str | None = None,
    baselines: bool = True,
    standardize: bool | None = None,
    **how: Any,
) -> Tuning:
    """Tune methods on validation alone, with as many gradient evaluations for each; out comes a spec for `compare`.

    Args:
        data, methods, rounds, model, objective, metrics, rank, choose, baselines, standardize, how: as for `compare`.
        trials: for each method, at least (default 8): a budget of so many of the dearest method's trials; a cheaper
            one has more. With `gradients`: at most.
        gradients: the budget of each method, in gradient evaluations of all clients together.
        strategy: "spread" (points known beforehand), "tpe" (Optuna: the extra `tune`), or "auto": up to 8 trials are
            spread. pruner: who gives up trials of "tpe" on the way: "median" (default), "hyperband" or "none".
        seeds: of the spec that is written; settings are tried with the first.
        out: the folder; default: the next free runs/tune-N.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     found = tune("digits", ["ditto"], trials=2, rounds=1, baselines=False, out=place + "/tuned")
    ...     found.spec.name, sorted(found.options("ditto"))
    ('spec.toml', ['lam', 'lr'])
    """
    if isinstance(methods, str):
        raise UserError(f"methods is a list of names: ['{methods}']")
    plan = plan_search(trials, gradients, strategy, pruner)
    out = Path(out) if out is not None else files.find_free_path(Path("runs/tune"))
    given: dict[str, Any] = {
        "model": {"name": model, "options": model_options or {}, "objective": objective},
        "metrics": dict(metrics or {}),
        "train": {"rounds": rounds, **how},
        "methods": tables_of(methods),
        "seeds": list(range(seeds)) if isinstance(seeds, int) else list(seeds),
        "rank": rank,
        "choose": choose,
        "baselines": baselines,
        "data": {"standardize": standardize},
    }
    if isinstance(data, Federation):
        folder = TuningFolder(out)
        spec = make_spec(given, "tune")
        place = check_spec(spec, data, tested=False)
        steps = check_search(spec, place, plan)
        with claim_new_folder(out):
            named: dict[str, Any] = {"source": str(data.save(folder.run.federation))}
            spec = make_spec({**given, "data": given["data"] | named}, "tune")
            begin_tuning(spec, place, folder, plan, steps)
        return go_on(spec, place, folder, plan, watch)
    named = {"source": str(data), "options": data_options or {}}
    return tune_spec(make_spec({**given, "data": given["data"] | named}, "tune"), out, plan, watch)
