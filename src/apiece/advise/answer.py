"""`advise`: should one personalize, how much, with whom, by which method, at what cost, and whom will it hurt?"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece import files
from apiece.advise import questions as q
from apiece.advise import sentences
from apiece.advise.advice import (
    FORMAT,
    Advice,
    ClientDegree,
    Cost,
    Degree,
    Ends,
    Groups,
    Harmed,
    Heterogeneity,
    Stacked,
    Theory,
    Tried,
)
from apiece.advise.choose import Choice, pick_candidates, weigh_candidates
from apiece.advise.differ import Difference, measure_difference, own_share
from apiece.advise.foresee import Foreseen, foresee
from apiece.advise.keep import Kept
from apiece.advise.pilot import FEWEST_FOR_GROUPS, Pilot, outputs_of, run_pilot
from apiece.advise.recipe import Recipe, best_pull, make_recipe, make_spec_values, step_size
from apiece.advise.stacking import pooled_scores
from apiece.data import Federation
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment.bench import Bench
from apiece.experiment.claim import claim_folder
from apiece.experiment.criterion import criterion_of
from apiece.experiment.environment import environment
from apiece.experiment.metric import METRICS
from apiece.experiment.spec import make_spec
from apiece.experiment.spec_tables import TrainSpec
from apiece.methods.local_ridge import check_linear

Watch = Callable[[str, int, int], None]
SUPPORTED = 0.5  # a client's own share of its posterior, above which it is told apart from everybody
DEAR = 2_000_000  # numbers (rows, features, classes) whose candidates are not solved at every look
PASSES = {"mid": 900, "lean": 550, "bare": 300}  # roughly: two folds; one; one without groups


def advise(
    federation: Federation | str | Path,
    model: Any = None,
    *,
    metric: str | None = None,
    budget: str | int | None = None,
    seed: int = 0,
    folds: int = 2,
    out: str | Path | None = None,
    watch: Watch = lambda what, done, total: None,
    engine: str = "vectorized",
    data: dict[str, Any] | None = None,
) -> Advice:
    """How much to personalize, with whom, and by which method, from a cheap pilot on held-out training examples.

    The test split is never read, nor is validation: rows are held out of the training split.

    Args:
        federation: a Federation, a source by name, or a path. model: as for `fit`; linear and softmax regression.
        metric: what the spec ranks by. budget: "60s", or a number of gradients (one client's, over all its rows).
        seed: of the folds, and of the spec. folds: 1 or 2 of four folds are held out, one after the other.
        out: a folder for advice.json, spec.toml, and what an interrupted advice has found so far, which goes on.
        watch: called with (what, done, total). engine: "vectorized" or "remote".
        data: the [data] table that a spec needs to find the federation again, if it is given as one.

    >>> from apiece.data import source
    >>> found = advise(source("linear", clients=8, examples=12, features=2), folds=1)
    >>> found.method in ("fed_avg", "rtfa", "local_ridge", "stack"), len(found.answer)
    (True, 3)
    """
    folder = None if out is None else Path(out)
    if folder is None:
        return _advise(federation, model, metric, budget, seed, folds, None, watch, engine, data)
    if not (folder / "pilot").is_dir() and not (folder / "federation").is_dir():  # of an earlier advice, to go on from
        files.make_folder(folder)
    with claim_folder(folder):
        found = _advise(federation, model, metric, budget, seed, folds, folder, watch, engine, data)
        if "source" in found.spec.get("data", {}):
            files.write_toml(folder / "spec.toml", found.spec)
        files.write_json(folder / "advice.json", found.plain())
    return found


def _advise(
    given: Any, model: Any, metric: str | None, budget: Any, seed: int, folds: int, folder: Path | None, watch: Watch,
    engine: str, data: dict[str, Any] | None,
) -> Advice:  # fmt: skip
    if folds not in (1, 2):
        raise UserError(f"folds = {folds}: one or two of four folds are held out")
    federation, table = _federation(given, data, folder)
    values = (
        {"model": {"name": "auto" if model is None else model}} if not isinstance(model, dict) else {"model": model}
    )
    spec = make_spec({**values, "data": table, **({"rank": metric} if metric else {})}, "advise")
    place = _place(federation, spec)
    plan = make_spec({"train": {"engine": engine}}, "advise").train
    runs = setup.engine_of(place, "fed_avg", {}, plan)[0]
    classes = len(federation.classes) if federation.task == "classification" else 0
    of = q.Linear(place.objective.loss, place.model.apply, classes)
    init = jax.tree.map(np.asarray, place.model.init(jax.random.key(0)))
    level = _level(budget, federation, folds)
    folds, groups = (folds if level == "mid" else 1), level != "bare"
    kept = Kept(None if folder is None else folder / "pilot", _made_of(place, seed, folds, groups, engine))
    tell = lambda what, share: watch(what, round(100 * share), 100)
    pilot = run_pilot(place, runs, of, init, folds=folds, seed=seed, groups=groups, kept=kept, tell=tell)
    tell("weighing", 0.92)
    found = measure_difference(pilot, classes)
    alike = len(pilot.sizes) >= FEWEST_FOR_GROUPS and found.z < 2 and not found.memorised
    outputs = outputs_of(init)
    picked = pick_candidates(pooled_scores(pilot.first, classes, outputs), pilot.names)
    choice, told = weigh_candidates(pilot.held, pilot.first, picked, kept, classes, outputs, alike)
    scale = 1.0 if classes else max(float(np.var(np.asarray(place.federation.train.y, np.float64))), 1e-12)
    seen = foresee(choice, told, scale, bool(classes), seed)
    step = step_size(place, runs, seed)
    recipe = make_recipe(choice, pilot, step)
    told = _told_model(values["model"])
    dear = int(np.prod(place.x.shape)) * max(classes, 1) > DEAR
    final = make_spec_values(recipe, table, told, engine, metric, seed, dear)
    make_spec(final, "the advised spec")
    advice = _write_up(place, pilot, choice, seen, found, recipe, final, step, plan, seed, folds, folder)
    tell("done", 1.0)
    return advice


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


def _place(federation: Federation, spec: Any) -> setup.Arena:
    """The federation laid out, or an error that says why there is no advice about it."""
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
                               setup.scaling_wanted(spec.data))  # fmt: skip
    criterion_of(
        spec,
        federation,
        place.score,
        [_known_metric(spec.rank)] if spec.rank is not None and spec.rank in METRICS else [],
        False,
    )
    try:
        check_linear(place.model, place.model.init(jax.random.key(0)), place.client_shapes())
    except UserError:
        raise UserError(f"advice is for linear models so far, and {place.model.name} is another: ask for it without "
                        "--model, and carry its degree over; or compare local, fed_avg, ftfa and rtfa with this model"
                        ) from None  # fmt: skip
    return place


def _known_metric(name: str) -> Any:
    from apiece.experiment.metric import metrics_of

    return metrics_of({name: METRICS[name]})[0]


def _level(budget: Any, federation: Federation, folds: int) -> str:
    """How thorough the pilot is: what the budget allows."""
    if budget is None:
        return "mid" if folds == 2 else "lean"
    text = str(budget).strip()
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", text):
        # Multiplications of a pass, forward and back, at about a tenth of what a core does; programs come on top.
        rows, width = federation.train.rows, int(np.prod(federation.train.x.shape[1:])) + 1
        each = 6 * rows * width * max(len(federation.classes), 1) / 2e9 + 2e-5 * federation.clients
        fits = [name for name, passes in PASSES.items() if 8 + passes * each <= float(match[1])]
        return fits[0] if fits else "bare"
    if not re.fullmatch(r"\d+", text):
        raise UserError(f"budget = '{budget}': seconds, as in 60s, or a number of gradients")
    fits = [name for name, passes in PASSES.items() if passes * federation.clients <= int(text)]
    if not fits:
        raise UserError(f"a budget of {text} gradients is too small: the leanest pilot takes about "
                        f"{PASSES['bare'] * federation.clients} on {federation.clients} clients")  # fmt: skip
    return fits[0]


def _made_of(place: setup.Arena, *about: Any) -> str:
    """What the pilot's files are made of: another federation, model or question makes them anew."""
    seen = hashlib.sha256(repr((place.model.name, *about)).encode())
    for part in (place.x, place.y, place.offsets):
        seen.update(np.ascontiguousarray(np.asarray(part)).tobytes())
    return seen.hexdigest()


def _told_model(model: dict[str, Any]) -> dict[str, Any] | None:
    return None if model == {"name": "auto"} else model


def _write_up(
    place: setup.Arena, pilot: Pilot, choice: Choice, seen: Foreseen, found: Difference, recipe: Recipe,
    spec: dict[str, Any], step: float, plan: TrainSpec, seed: int, folds: int, folder: Path | None,
) -> Advice:  # fmt: skip
    federation, ids = place.federation, place.ids[: place.population]
    pull = best_pull(choice, pilot) * pilot.usual
    lam, own = pull / pilot.usual, own_share(pilot, pull)
    own = {"shared": 0.0, "local": 1.0}.get(choice.named, own)
    kind, label_share = _kind(choice, found)
    score = lambda name: float(choice.scores[choice.at[choice.kinds.index(name)]])
    best = min(score(name) for name in choice.kinds)
    explain = (score("shared") - score("groups")) / (score("shared") - best) if (
        "groups" in choice.kinds and score("shared") - best > 1e-9) else 0.0  # fmt: skip
    where = str(folder / "spec.toml") if folder is not None else "spec.toml"
    tried = [Tried(name=_called(name, pilot), loss=float(value), error=_error_of(at, choice, seen))
             for at, (name, value) in enumerate(zip(pilot.names, choice.scores, strict=True))]  # fmt: skip
    return Advice(
        format=FORMAT,
        data=federation.name,
        task=federation.task,
        model=place.model.name,
        metric="error" if federation.task == "classification" else "squared error",
        answer=sentences.answer(choice, pilot, seen, lam, own, federation.task == "regression", ids),
        kind=choice.named,  # type: ignore[arg-type]  # one of its words
        method=recipe.method,
        options=recipe.options,
        heterogeneity=Heterogeneity(
            clients=place.population, examples=pilot.usual, z=found.z, radius=found.radius, noise=found.noise,
            between=found.between, features_between=found.rows_between, labels_between=found.labels_between,
            groups_explain=float(np.clip(explain, 0, 1)), kind=kind, label_share=label_share),
        degree=Degree(c=lam, pull=pull, lam=lam, own_share=own, steps=_steps(step, lam, choice), step_size=step,
                      clients=_told_apart(choice, seen, pilot, ids)),
        groups=_groups(choice, pilot, seen),
        errors={name: Ends.of(ends) for name, ends in seen.errors.items()},
        gains={name: Ends.of(ends) for name, ends in seen.gains.items()},
        loss_gains={name: Ends.of(ends) for name, ends in seen.loss_gains.items()},
        hurt=_harmed(seen, ids),
        stack=_stacked(choice),
        tried=tried,
        theory=_theory(found, pilot, federation),
        reasons=sentences.reasons(choice, pilot, seen, found, kind, label_share),
        doubts=sentences.doubts(choice, pilot, seen, found, folds, "groups" in choice.kinds),
        notes=list(federation.notes),
        spec=spec,
        next=[f"apiece run --spec {where}", "apiece predict RUN CLIENT new.csv", _compare(recipe, where)],
        cost=_cost(place, pilot, recipe, plan, seed),
        seed=seed,
        folds=folds,
        environment=environment(),
    )  # fmt: skip


def _compare(recipe: Recipe, spec: str) -> str:
    """What is advised beside two others and the baselines; the spec's rounds are those of what is advised alone."""
    others = [name for name in ("rtfa", "ifca", "ditto") if name != recipe.method][:2]
    methods = ",".join([recipe.method, *others])
    return f"apiece compare --spec {spec} --methods {methods} --baselines --rounds 100 --tune 8 --seeds 3"


def _kind(choice: Choice, found: Difference) -> tuple[Any, float]:
    """(which kind of shift, the share of the gain that own label frequencies bring)."""
    shared, frequencies = choice.scores[0], choice.scores[1]
    gain = float(shared - choice.scores.min())
    share = float(np.clip((shared - frequencies) / gain, 0, 1)) if gain > 1e-9 else 0.0
    if choice.named == "shared" or gain < 0.01 * abs(shared):
        return ("feature" if found.rows_between > 0.1 else "none"), share
    return ("label" if share >= 0.5 else "concept"), share


def _steps(step: float, lam: float, choice: Choice) -> int:
    """Steps of gradient descent that shrink about as much as the pull: 1 / (step lambda), at most 1000."""
    return 0 if choice.named == "shared" else int(np.clip(round(1 / max(step * lam, 1e-9)), 1, 1000))


def _told_apart(choice: Choice, seen: Foreseen, pilot: Pilot, ids: np.ndarray) -> list[ClientDegree]:
    """Clients of whom their own data say more than everybody's: those that are better off alone."""
    found = []
    for i in choice.alone.tolist():
        found.append(ClientDegree(client=str(ids[i]), examples=int(pilot.sizes[i]), advice="alone",
                                  gain=float(seen.client_gains[i]), doubt=float(seen.client_doubts[i])))  # fmt: skip
    return found


def _groups(choice: Choice, pilot: Pilot, seen: Foreseen) -> Groups | None:
    if choice.groups is None or pilot.members is None or choice.weight_of("groups") < 0.05:
        return None
    members = pilot.members[:, choice.groups - 2]
    sizes = np.bincount(members, minlength=choice.groups).tolist()
    return Groups(count=choice.groups, sizes=sizes, members=members.tolist(), gain=Ends.of(seen.gains["groups"]))


def _harmed(seen: Foreseen, ids: np.ndarray) -> Harmed | None:
    found = seen.hurt
    if found is None:
        return None
    riskiest = np.argsort(-np.nan_to_num(found.risk))[: sentences.NO_MORE]
    name = lambda at: str(ids[seen.judged[at]])
    return Harmed(proved=found.hurt_proved, expected=found.hurt_expected, expected_low=found.hurt_expected_low,
                  expected_high=found.hurt_expected_high, worst_tenth=found.worst_tenth,
                  named=[name(at) for at in np.flatnonzero(found.proved)],
                  at_risk={name(at): float(found.risk[at]) for at in riskiest if found.risk[at] > 0.05})  # fmt: skip


def _stacked(choice: Choice) -> Stacked:
    weights = dict(zip(choice.kinds, choice.weights.tolist(), strict=True))
    kappa = choice.kappa if np.isfinite(choice.kappa) else float("nan")
    return Stacked(weights=weights, kappa=kappa, gain=choice.better, doubt=choice.doubt)


def _theory(found: Difference, pilot: Pilot, federation: Federation) -> Theory:
    lam = found.pull / pilot.usual
    if federation.task != "regression":
        return Theory(lam=lam, holds=False, why="its risks are of linear regression; of classes this is a rough guide")
    unlike = float(pilot.sizes.max() / max(pilot.sizes.min(), 1))
    wrong = [word for word, so in (
        ("clients have unequal numbers of examples", unlike > 2),
        ("rows of different clients are differently distributed", found.rows_between > 0.1),
        ("no difference between clients is visible", not found.z >= 2)) if so]  # fmt: skip
    return Theory(
        lam=lam, holds=not wrong, why="; ".join(wrong) or "linear regression, clients alike in size and inputs"
    )


def _error_of(at: int, choice: Choice, seen: Foreseen) -> Ends | None:
    return Ends.of(seen.errors[choice.kinds[choice.at.index(at)]]) if at in choice.at else None


def _called(name: str, pilot: Pilot) -> str:
    word, _, number = name.partition(" ")
    if word == "path":
        return f"path, lambda = {pilot.pulls[int(number)]:.2g}"
    return f"local, ridge = {pilot.ridges[int(number)]:.2g}" if word == "local" else name


def _cost(place: setup.Arena, pilot: Pilot, recipe: Recipe, plan: TrainSpec, seed: int) -> Cost:
    bench = Bench(place, recipe.method, recipe.options, plan)
    engine, hyper = bench.engine({})
    run = engine.start(place.model.init, seed, hyper)
    per, sizes = engine.visit_costs(run), np.asarray(engine.sizes[: engine.population])
    one = next(iter(per.values()))
    count = lambda what: sum(int((sizes == size).sum()) * int(getattr(cost, what)) for size, cost in per.items())
    gradients = recipe.rounds * count("gradients") + count("gradients_personal")
    visits = recipe.rounds * place.population
    # A gradient of training is one of a batch; the pilot's are over all rows of a client.
    batch = min(32.0, float(sizes.mean()))
    seconds = pilot.work.pace * gradients * batch / max(float(sizes.sum()), 1)
    return Cost(passes=pilot.work.passes, exchanges=pilot.work.exchanges,
                gradients=round(pilot.work.passes * place.population), seconds=pilot.work.seconds, rounds=recipe.rounds,
                bytes_up=visits * one.bytes_up, bytes_down=visits * one.bytes_down, training_gradients=gradients,
                training_seconds=seconds)  # fmt: skip
