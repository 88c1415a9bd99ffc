"""The sweep that an advice is judged against: every method tuned and trained until validation rests, and a mixture."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation
from apiece.evaluate import per_client
from apiece.experiment.advice_judge.meter import metered
from apiece.experiment.compare import run_spec
from apiece.experiment.opened import open as open_run
from apiece.experiment.spec import make_spec

SWEPT = ("local_ridge", "fed_avg", "ftfa", "rtfa", "ditto", "fed_clup", "apfl", "ifca", "all_for_all")
GRIDS: dict[str, dict[str, Any]] = {
    "apfl": {"mix": {"range": [0.1, 0.9]}, "lr": {"range": [0.03, 3.0]}},
    "ifca": {"groups": {"grid": [2, 3, 4]}, "lr": {"range": [0.03, 3.0]}},
}
MIXED = tuple(np.linspace(0.1, 0.9, 9).round(1).tolist())  # shares of the shared model in a mixture of predictions
SHARED_START = ("ftfa", "rtfa")  # begin with FedAvg's model: a sweep that shares what it can trains that once


class Swept(NamedTuple):
    """What became of one method: its setting, validation (log loss or squared error, clients alike), test, and passes.

    `errors` are the test errors of all examples, client by client, in points. `tried`: (options, validation) of the
    trials, as they stood when tuning chose.
    """

    method: str
    options: dict[str, Any]
    validation: float
    points: float
    passes: float
    errors: list[float]
    tried: Sequence[Any] = ()


def train_method(
    federation: Federation,
    name: str,
    table: Mapping[str, Any],
    *,
    model: Any = None,
    tune: int = 8,
    rounds: int | str = "auto",
    seed: int = 0,
    predicted: dict[str, Any] | None = None,
) -> Swept:
    """One method tuned, trained and tested by the ordinary engine; `predicted` is filled with its predictions."""
    with tempfile.TemporaryDirectory() as place, metered(federation, model) as meter:
        source = federation.save(Path(place) / "federation")
        values = {
            "data": {"source": str(source), "new_clients": 0.0},
            "model": {"name": "auto" if model is None else model},
            "train": {"rounds": rounds, "newcomer_examples": [], "checkpoint_seconds": 1e6},
            "methods": {name: dict(table)},
            "baselines": False,
            "seeds": [seed],
            "tune": tune,
        }
        found = run_spec(make_spec(values, "the judge"), Path(place) / "run")
        outcome, told = found.trials[name][seed], found.record.methods[name]
        options = {**found.rows[name].options, **told.tuning[told.chosen or 0].options}
        if predicted is not None:
            predicted |= _predictions(Path(place) / "run", federation)
    scale = 100.0 / _scale(federation)
    loss, offsets = outcome.scores("validation", "loss" if federation.classes else "error")
    errors, ends = outcome.scores("test", "error")
    mean = lambda values, offsets: float(np.nanmean(per_client(values, offsets)[np.diff(offsets) > 0]))
    tried = [[each.options, each.validation_loss] for each in told.tuning]
    return Swept(name, options, mean(loss, offsets), scale * mean(errors, ends), meter.passes,
                 np.round(scale * np.asarray(errors, np.float64), 3).tolist(), tried)  # fmt: skip


def sweep_methods(
    federation: Federation,
    *,
    model: Any = None,
    methods: tuple[str, ...] = SWEPT,
    tune: int = 8,
    rounds: int | str = "auto",
    seed: int = 0,
    known: Mapping[str, Swept] | None = None,
    keep: Callable[[Swept], None] = lambda swept: None,
) -> dict[str, Swept]:
    """Every method of the sweep; those that are `known` are not run again, `keep` is told of the others."""
    found = dict(known or {})
    said: dict[str, dict[str, Any]] = {}
    for name in methods:
        wanted = name in ("fed_avg", "local_ridge") and "mixture" not in found
        if name in found and not wanted:
            continue
        predicted: dict[str, Any] = {}
        how: dict[str, Any] = dict(model=model, tune=tune, rounds=rounds, seed=seed)
        made = train_method(federation, name, GRIDS.get(name, {}), predicted=predicted if wanted else None, **how)
        said[name] = predicted
        if name not in found:
            found[name] = made
            keep(made)
    if "mixture" not in found and {"fed_avg", "local_ridge"} <= set(said):
        found["mixture"] = _mixture(federation, said["fed_avg"], said["local_ridge"])
        keep(found["mixture"])
    return found


def cost_of_sweep(found: Mapping[str, Swept]) -> tuple[float, float]:
    """(passes of the usual sweep, of one that trains what begins with FedAvg's model once).

    `local_ridge` is not counted: how long its Newton steps go on only the run tells, and a sweep must not seem dearer
    than it is.

    >>> swept = lambda name, passes: Swept(name, {}, 0.0, 0.0, passes, [])
    >>> cost_of_sweep({name: swept(name, 100.0) for name in ("fed_avg", "ftfa", "rtfa")})
    (300.0, 100.0)
    """
    total = sum(one.passes for one in found.values() if one.method != "local_ridge")
    return total, total - sum(found[name].passes for name in SHARED_START if name in found)


def winner_of(found: Mapping[str, Swept]) -> Swept:
    """The best by validation, which is what a user gets."""
    return min(found.values(), key=lambda one: one.validation if np.isfinite(one.validation) else np.inf)


def _scale(federation: Federation) -> float:
    """One for mistakes; the variance of the targets for squared errors."""
    return 1.0 if federation.classes else float(np.var(np.asarray(federation.train.y, np.float64))) or 1.0


def _predictions(run: Path, federation: Federation) -> dict[str, list[np.ndarray]]:
    """What every client's model says of its held-out examples: probabilities of classes, or values."""
    opened = open_run(run)
    said: dict[str, list[np.ndarray]] = {}
    for part in ("validation", "test"):
        split = getattr(federation, part)
        most, found = int(split.sizes.max()), []
        for at, name in enumerate(federation.ids):
            x = split.client(at)[0]
            if not len(x):
                continue
            # All alike, so that one program serves everybody.
            padded = np.concatenate([x, np.zeros((most - len(x), *x.shape[1:]), x.dtype)])
            told = opened.predict(str(name), padded)
            found.append((told.probabilities if told.values is None else told.values.reshape(-1))[: len(x)])
        said[part] = found
    return said


def _mixture(federation: Federation, shared: dict[str, Any], local: dict[str, Any]) -> Swept:
    """Shared and local predictions mixed in one share for all, chosen on validation; nothing more is trained."""
    classes = bool(federation.classes)
    scale = 100.0 / _scale(federation)

    def scores(part: str, share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        split = getattr(federation, part)
        labels = [split.client(at)[1] for at in range(federation.clients) if len(split.client(at)[1])]
        losses, errors = [], []
        for ours, theirs, y in zip(shared[part], local[part], labels, strict=True):
            if classes:
                mixed = share * ours + (1 - share) * theirs
                losses.append(-np.log(np.maximum(mixed[np.arange(len(y)), y], 1e-9)))
                errors.append((mixed.argmax(1) != y).astype(float))
            else:
                mixed = share * ours + (1 - share) * theirs
                losses.append((mixed - y) ** 2)
                errors.append((mixed - y) ** 2)
        return losses, errors

    mean = lambda values: float(np.mean([np.mean(each) for each in values]))
    every = {share: mean(scores("validation", share)[0]) for share in MIXED}
    best = min(every, key=lambda share: every[share])
    errors = scores("test", best)[1]
    return Swept("mixture", {"share": best}, every[best], scale * mean(errors), 0.0,
                 np.round(scale * np.concatenate(errors), 3).tolist())  # fmt: skip
