"""`advise`: should one personalize, how much, with whom, by which method, at what cost, and whom will it hurt?"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece import files
from apiece.advise import questions as q
from apiece.advise.advice import Advice
from apiece.advise.choose import Choice, pick_candidates, weigh_candidates
from apiece.advise.differ import Difference, measure_difference
from apiece.advise.foresee import Foreseen, foresee
from apiece.advise.keep import Kept
from apiece.advise.network import COST, SAMPLED, network_of, run_network_pilot, sampled_clients
from apiece.advise.network_choice import choose_of_network, network_recipe, private_part
from apiece.advise.pilot import FEWEST_FOR_GROUPS, Pilot, Tell, outputs_of, run_pilot
from apiece.advise.private_choice import as_pilot, choose_privately, foresee_privately, nothing_measured, with_privacy
from apiece.advise.private_pilot import ask_own_share, private_step, run_private_pilot
from apiece.advise.recipe import Recipe, best_pull, make_recipe, make_spec_values, step_size
from apiece.advise.release import Purse
from apiece.advise.stacking import pooled_scores
from apiece.advise.write_up import with_private, write_up
from apiece.data import Federation
from apiece.engines.engine import Engine
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment.claim import claim_folder
from apiece.experiment.criterion import criterion_of, named_metrics
from apiece.experiment.metric import metrics_of
from apiece.experiment.spec import make_spec
from apiece.methods.local_ridge import check_linear

Watch = Callable[[str, int, int], None]
SUPPORTED = 0.5  # a client's own share of its posterior, above which it is told apart from everybody
DEAR = 2_000_000  # numbers (rows, features, classes) whose candidates are not solved at every look
FEW_ROWS = 20_000  # up to which all four folds are held out: it is cheap, and a choice by few rows needs every one
LEVELS = {"whole": 4, "mid": 2, "lean": 1, "bare": 1}  # folds
PASSES = {"whole": 1900, "mid": 900, "lean": 550, "bare": 300}  # roughly; the last without groups


def advise(
    federation: Federation | str | Path,
    model: Any = None,
    *,
    metric: str | None = None,
    budget: str | int | None = None,
    seed: int = 0,
    folds: int | None = None,
    out: str | Path | None = None,
    watch: Watch = lambda what, done, total: None,
    engine: str = "vectorized",
    data: dict[str, Any] | None = None,
    private: float | None = None,
    delta: float = 1e-5,
) -> Advice:
    """How much to personalize, with whom, and by which method, from a cheap pilot on held-out training examples.

    The test split is never read, nor is validation: rows are held out of the training split.

    Args:
        federation: a Federation, a source by name, or a path. model: as for `fit`; a network must tell its features.
        metric: what the spec ranks by. budget: "60s", or a number of gradients (one client's, over all its rows).
        seed: of the folds, and of the spec. folds: 1, 2 or 4 of four folds are held out, one after the other;
            default: 4, or 2 of more than FEW_ROWS training rows.
        out: a folder for advice.json, spec.toml, and what an interrupted advice has found so far, which goes on.
        watch: called with (what, done, total). engine: "vectorized" or "remote".
        data: the [data] table that a spec needs to find the federation again, if it is given as one.
        private: an epsilon: whatever clients answer is then clipped and noised, so that all of it together keeps this
            promise to each client, with `delta` as the chance that it does not (docs/explanation-privacy.md).

    >>> from apiece.data import source
    >>> found = advise(source("linear", clients=8, examples=12, features=2), folds=1)
    >>> found.method in ("fed_avg", "rtfa", "local_ridge", "stack"), len(found.answer)
    (True, 3)
    """
    folder = None if out is None else Path(out)
    how = _Asked(metric, budget, seed, folds, engine, None if private is None else (private, delta))
    if folder is None:
        return _advise(federation, model, how, None, watch, data)
    if not (folder / "pilot").is_dir() and not (folder / "federation").is_dir():  # of an earlier advice, to go on from
        files.make_folder(folder)
    with claim_folder(folder):
        found = _advise(federation, model, how, folder, watch, data)
        if "source" in found.spec.get("data", {}):
            files.write_toml(folder / "spec.toml", found.spec)
        files.write_json(folder / "advice.json", found.plain())
    return found


class _Asked(NamedTuple):
    """How an advice was asked for; `private`: with which epsilon and delta."""

    metric: str | None
    budget: Any
    seed: int
    folds: int | None
    engine: str
    private: tuple[float, float] | None


class _Found(NamedTuple):
    """What a pilot came to."""

    pilot: Pilot
    choice: Choice
    seen: Foreseen
    difference: Difference
    recipe: Recipe
    step: float
    folds: int
    own: float | None = None
    finish: Callable[[Advice], Advice] = lambda advice: advice


def _advise(
    given: Any, model: Any, how: _Asked, folder: Path | None, watch: Watch, data: dict[str, Any] | None
) -> Advice:
    if how.folds not in (None, 1, 2, 4):
        raise UserError(f"folds = {how.folds}: one, two or all of four folds are held out, one after the other")
    federation, table = _federation(given, data, folder)
    values = (
        {"model": {"name": "auto" if model is None else model}} if not isinstance(model, dict) else {"model": model}
    )
    spec = make_spec({**values, "data": table, **({"rank": how.metric} if how.metric else {})}, "advise")
    place = _place(federation, spec, how.private is not None)
    plan = make_spec({"train": {"engine": how.engine}}, "advise").train
    runs = setup.engine_of(place, "fed_avg", {}, plan)[0]
    init = jax.tree.map(np.asarray, place.model.init(jax.random.key(0)))
    tell = lambda what, share: watch(what, round(100 * share), 100)
    home = None if folder is None else folder / "pilot"
    if how.private is not None:
        found = _privately(place, runs, init, how, home, tell)
    elif is_linear(place):
        found = _of_linear(place, runs, init, how, home, tell)
    else:
        found = _of_network(place, runs, init, how, home, tell)
    classes = len(federation.classes) if federation.task == "classification" else 0
    rows = found.pilot.sizes.sum() if how.private is not None else len(place.x)
    dear = int(rows * np.prod(place.x.shape[1:])) * max(classes, 1) > DEAR
    told = (how.engine, how.metric, how.seed)
    final = make_spec_values(found.recipe, table, _told_model(values["model"]), *told, dear)
    make_spec(final, "the advised spec")
    advice = write_up(place, *found[:5], final, found.step, plan, how.seed, found.folds, folder, found.own)
    seconds = _seconds(how.budget, federation) if str(how.budget or "").strip().endswith("s") else None
    advice = tell_of_budget(found.finish(advice), seconds)
    tell("done", 1.0)
    return advice


def tell_of_budget(advice: Advice, seconds: float | None) -> Advice:
    """The advice, with a word on it if it took longer than it was given, which the leanest pilot may."""
    if seconds is None or advice.cost.seconds <= seconds:
        return advice
    word = (f"It took {advice.cost.seconds:.0f} s where {seconds:.0f} s were given: which pilot fits is an estimate, "
            "and no leaner one was at hand.")  # fmt: skip
    return advice.model_copy(update={"doubts": [*advice.doubts, word]})


def _of_linear(place: setup.Arena, runs: Engine, init: Any, how: _Asked, home: Path | None, tell: Tell) -> _Found:
    of = _linear(place)
    wanted = how.folds or (4 if place.federation.train.rows <= FEW_ROWS else 2)
    level, seed = _level(how.budget, place.federation, wanted), how.seed
    folds, groups = LEVELS[level], level != "bare"
    kept = Kept(home, _made_of(place, seed, folds, groups, how.engine))
    pilot = run_pilot(place, runs, of, init, folds=folds, seed=seed, groups=groups, kept=kept, tell=tell)
    tell("weighing", 0.92)
    found, outputs = measure_difference(pilot, of.classes), outputs_of(init)
    picked = pick_candidates(pooled_scores(pilot.first, of.classes, outputs), pilot.names)
    alike = _alike(place, found)
    choice, told = weigh_candidates(pilot.held, pilot.first, picked, kept, of.classes, outputs, alike)
    seen = foresee(choice, told, _scale(place, of.classes), bool(of.classes), seed)
    step = step_size(place, runs, seed)
    return _Found(pilot, choice, seen, found, make_recipe(choice, pilot, step), step, folds)


def _of_network(place: setup.Arena, runs: Engine, init: Any, how: _Asked, home: Path | None, tell: Tell) -> _Found:
    network, seed = network_of(place, init), how.seed
    classes = len(place.federation.classes) if place.federation.task == "classification" else 0
    seconds = _seconds(how.budget, place.federation)
    kept = Kept(home, _made_of(place, seed, "network", how.engine))
    pilot, trained = run_network_pilot(place, runs, network, init, seed=seed, seconds=seconds, kept=kept, tell=tell)
    tell("weighing", 0.92)
    found, alone = measure_difference(pilot, classes), sampled_clients(place.population, SAMPLED / place.population)
    choice, told = choose_of_network(pilot, kept, classes, _alike(place, found), alone)
    seen = foresee(choice, told, _scale(place, classes), bool(classes), seed, alone)
    part = private_part(place, network, choice, pilot, trained)
    recipe = network_recipe(choice, pilot, trained)
    return _Found(pilot, choice, seen, found, recipe, float(trained.lr), 1, finish=lambda a: with_private(a, part))


def _privately(place: setup.Arena, runs: Engine, init: Any, how: _Asked, home: Path | None, tell: Tell) -> _Found:
    """By noised sums alone; what cannot be had so is refused by name, or left out and said."""
    assert how.private is not None
    if how.budget is not None:
        raise UserError("a private pilot has one size: leave the budget out, or private")
    if place.federation.task != "classification":
        raise UserError(f"a private advice is about classes, and {place.federation.name} has numbers: their errors "
                        "have no bound that would not be a guess about the data; leave private out")  # fmt: skip
    if not is_linear(place):
        raise UserError(f"a private advice is about linear models, and {place.model.name} is a network, whose pilot "
                        "trains for many rounds: the noise would drown it; leave private or the model out")  # fmt: skip
    of, seed = _linear(place), how.seed
    kept = Kept(home, _made_of(place, seed, "private", *how.private, how.engine))
    purse = Purse(*how.private, place.population, kept)
    pilot = run_private_pilot(place, runs, of, init, purse, seed=seed, tell=tell)
    tell("weighing", 0.85)
    choice, weighed, decided = choose_privately(pilot, purse)
    seen = foresee_privately(choice, weighed, pilot, purse)
    shown = as_pilot(pilot, place.population)
    own = ask_own_share(pilot, of, best_pull(choice, shown) * pilot.usual, purse)
    step = private_step(pilot, of.classes)
    finish = lambda advice: with_privacy(advice, purse, pilot, weighed, decided)
    return _Found(shown, choice, seen, nothing_measured(), make_recipe(choice, shown, step), step, 1, own, finish)


def _linear(place: setup.Arena) -> q.Linear:
    classes = len(place.federation.classes) if place.federation.task == "classification" else 0
    return q.Linear(place.objective.loss, place.model.apply, classes)


def _scale(place: setup.Arena, classes: int) -> float:
    """What a point is a hundredth of."""
    return 1.0 if classes else max(float(np.var(np.asarray(place.federation.train.y, np.float64))), 1e-12)


def _alike(place: setup.Arena, found: Difference) -> bool:
    """Whether many clients show no difference."""
    return place.population >= FEWEST_FOR_GROUPS and found.z < 2 and not found.memorised


def _federation(given: Any, data: dict[str, Any] | None, folder: Path | None) -> tuple[Federation, dict[str, Any]]:
    """(the federation, the [data] table of a spec that finds it again)."""
    if isinstance(given, str | Path):
        table = {"source": str(given), **(data or {})}
        return setup.federation_of(make_spec({"data": table}, "advise").data), table
    if not isinstance(given, Federation):
        raise UserError(f"advise needs a Federation, a source by name or a path, not {given!r}")
    if data is not None:
        return given, dict(data)
    if folder is None:
        return given, {"new_clients": 0.0}
    home = folder / "federation"
    if not home.exists():
        given.save(home)
    return given, {"source": str(home), "new_clients": 0.0}


def _place(federation: Federation, spec: Any, private: bool) -> setup.Arena:
    """The federation laid out, or an error that says why there is no advice about it."""
    wanted = setup.scaling_wanted(spec.data)
    if private and (wanted or spec.data.options.get("standardize")):
        raise UserError("standardize = true takes exact means and spreads of everybody's features, which private does "
                        "not allow; bring features to unit scale by constants that are no secret")  # fmt: skip
    if federation.task not in ("classification", "regression"):
        raise UserError(f"advice is for classes and numbers, and the task of {federation.name} is '{federation.task}'; "
                        "apiece compare tries methods on it")  # fmt: skip
    if federation.clients < 2:
        raise UserError(f"{federation.name} has one client that trains: there is nobody to share with, and nothing to "
                        "advise; train it alone: apiece run local_ridge")  # fmt: skip
    if federation.task == "classification" and len(np.unique(np.asarray(federation.train.y))) < 2:
        raise UserError(f"all training labels of {federation.name} are the same class: there is nothing to learn; "
                        "look at the label column with apiece data check")  # fmt: skip
    if federation.task == "regression" and float(np.ptp(np.asarray(federation.train.y))) == 0:
        raise UserError(f"all training targets of {federation.name} are the same number: there is nothing to learn; "
                        "look at the label column with apiece data check")  # fmt: skip
    if int(np.asarray(federation.train.sizes).max()) < 4:
        raise UserError(f"no client of {federation.name} has four training examples: nothing can be held out; "
                        "take clients that are larger, or run fed_avg")  # fmt: skip
    place = setup.scaled_arena(federation, *setup.model_and_objective(spec.model, federation), (),
                               False if private else wanted)  # fmt: skip
    criterion_of(spec, federation, place.score, metrics_of(named_metrics(spec, federation, False)))
    return place


def is_linear(place: setup.Arena) -> bool:
    """Whether the model is linear in its parameters, one matrix and a bias; else it is taken for a network."""
    try:
        check_linear(place.model, place.model.init(jax.random.key(0)), place.client_shapes())
    except UserError:
        return False
    return True


def _level(budget: Any, federation: Federation, folds: int) -> str:
    """How thorough the pilot is: what the budget allows."""
    if budget is None:
        return next(level for level, count in LEVELS.items() if count == folds)
    text = str(budget).strip()
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", text):
        # Multiplications of a pass, forward and back, at about a tenth of what a core does; programs come on top.
        rows, width = federation.train.rows, int(np.prod(federation.train.x.shape[1:])) + 1
        each = 6 * rows * width * max(len(federation.classes), 1) / 2e9 + 2e-5 * federation.clients
        fits = [
            name for name, passes in PASSES.items() if LEVELS[name] <= folds and 8 + passes * each <= float(match[1])
        ]
        return fits[0] if fits else "bare"
    if not re.fullmatch(r"\d+", text):
        raise UserError(f"budget = '{budget}': seconds, as in 60s, or a number of gradients")
    able = [name for name in PASSES if LEVELS[name] <= folds]
    fits = [name for name in able if PASSES[name] * federation.clients <= int(text)]
    if not fits:
        raise UserError(f"a budget of {text} gradients is too small: the leanest pilot takes about "
                        f"{PASSES['bare'] * federation.clients} on {federation.clients} clients")  # fmt: skip
    return fits[0]


def _seconds(budget: Any, federation: Federation) -> float:
    """How long a network's pilot may train: what a budget of seconds says."""
    text = str(budget or "").strip()
    if not text:
        return float("inf")
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", text):
        return float(match[1])
    if not re.fullmatch(r"\d+", text):
        raise UserError(f"budget = '{budget}': seconds, as in 60s, or a number of gradients")
    if int(text) < COST * federation.clients:
        raise UserError(f"a budget of {text} gradients is too small: a network's pilot takes up to "
                        f"{COST * federation.clients} on {federation.clients} clients")  # fmt: skip
    return float("inf")


def _made_of(place: setup.Arena, *about: Any) -> str:
    """What the pilot's files are made of: another federation, model or question makes them anew."""
    seen = hashlib.sha256(repr((place.model.name, *about)).encode())
    for part in (place.x, place.y, place.offsets):
        seen.update(np.ascontiguousarray(np.asarray(part)).tobytes())
    return seen.hexdigest()


def _told_model(model: dict[str, Any]) -> dict[str, Any] | None:
    return None if model == {"name": "auto"} else model
