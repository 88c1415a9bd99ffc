"""From what a pilot found and what was chosen to an `Advice`: numbers, sentences, and what it costs."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

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
from apiece.advise.choose import Choice
from apiece.advise.differ import Difference, own_share
from apiece.advise.foresee import Foreseen
from apiece.advise.pilot import Pilot
from apiece.advise.recipe import Recipe, best_pull
from apiece.advise.stacking import variance_of
from apiece.data import Federation
from apiece.engines.costs import visit_costs
from apiece.experiment import build as setup
from apiece.experiment.bench import Bench
from apiece.experiment.environment import environment
from apiece.experiment.spec_tables import TrainSpec

RUN = "runs/advised"  # the run folder of the commands that are named
MOST_PARTNERS = 400  # clients among whom partners are worth looking for: each of them may be that of each


def with_private(advice: Advice, private: dict[str, Any]) -> Advice:
    """The advice with what was found of the parts of a network."""
    losses = ", ".join(f"{part} {loss:.3f}" for part, loss in private["losses"].items())
    said = {"nothing": "No part of the network is better kept private", "all": "All layers are better one's own, from "
            "the shared ones"}.get(private["part"], f"The part to keep private is {private['part']}")  # fmt: skip
    more = [f"{said}: held-out losses with each part of one's own are {losses}.",
            f"Of {private['diagnosed']} as the private part, gradients say: {private['diagnosis']}"]  # fmt: skip
    return advice.model_copy(update={"private": private, "reasons": [*advice.reasons, *more]})


def write_up(
    place: setup.Arena, pilot: Pilot, choice: Choice, seen: Foreseen, found: Difference, recipe: Recipe,
    spec: dict[str, Any], step: float, plan: TrainSpec, seed: int, folds: int, folder: Path | None,
    share: float | None = None,
) -> Advice:  # fmt: skip
    """The advice, but for the part to keep private. `share`: how much of a client's model its own data decide at the
    best pull, if that is known; else it follows from the pilot's spectra."""
    federation, ids = place.federation, place.ids[: place.population]
    pull = best_pull(choice, pilot) * pilot.usual
    lam, own = pull / pilot.usual, own_share(pilot, pull) if share is None else share
    own = {"shared": 0.0, "local": 1.0}.get(choice.named, own)
    kind, label_share, feature_share = _kind(choice, found, pilot, federation.task == "regression")
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
            groups_explain=float(np.clip(explain, 0, 1)), kind=kind, label_share=label_share,
            feature_share=feature_share),
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
        reasons=sentences.reasons(choice, pilot, seen, found, kind, (label_share, feature_share),
                                  federation.task == "regression", wants_partners(choice, pilot)),
        doubts=[*sentences.doubts(choice, pilot, seen, found, folds, "groups" in choice.kinds),
                *sentences.ask_for_more(seen, pilot, ids)],
        notes=list(federation.notes),
        spec=spec,
        next=[f"apiece run --spec {shlex.quote(where)} --out {RUN}",
              f"apiece predict {RUN} {shlex.quote(str(ids[0]))} new.csv", f"apiece onboard {RUN} newcomer.csv",
              _compare(recipe, shlex.quote(where), len(pilot.ridges) > 0, wants_partners(choice, pilot))],
        cost=_cost(place, pilot, recipe, plan, seed),
        seed=seed,
        folds=folds,
        environment=environment(),
    )  # fmt: skip


def wants_partners(choice: Choice, pilot: Pilot) -> bool:
    """Whether clients differ and no group was confirmed: then only partners of each client's own could help."""
    apart = choice.named in ("path", "nearer", "stack") and choice.weight_of("groups") < 0.05
    return apart and choice.groups is not None and len(pilot.sizes) <= MOST_PARTNERS


def _compare(recipe: Recipe, spec: str, linear: bool, partners: bool) -> str:
    """What is advised beside two others and the baselines; the spec's rounds are those of what is advised alone."""
    with_whom = "all_for_all" if partners else "ifca"
    others = [name for name in (("rtfa", with_whom) if linear else ("ditto", "fed_per")) if name != recipe.method]
    methods = ",".join([recipe.method, *others])
    return f"apiece compare --spec {spec} --methods {methods} --baselines --rounds 100 --tune 8 --seeds 3"


def _kind(choice: Choice, found: Difference, pilot: Pilot, numbers: bool) -> tuple[Any, float, float]:
    """(which kind of shift, the shares of the gain that own label frequencies, and own inputs, bring)."""
    shared, frequencies = choice.scores[0], choice.scores[1]
    gain = float(shared - choice.scores.min())
    of_gain = lambda part: float(np.clip(part / gain, 0, 1)) if gain > 1e-9 and np.isfinite(part) else 0.0
    label, feature = of_gain(shared - frequencies), 0.0
    if pilot.shift is not None:
        unit = variance_of(pilot.first, 0, pilot.shared["b"].size)[0] if numbers else 1.0  # as scores have it
        feature = of_gain(float(pilot.shift[0] - pilot.shift[2]) / unit)
    if choice.named == "shared" or gain < 0.01 * abs(shared):
        return ("feature" if found.rows_between > 0.1 else "none"), label, feature
    if max(label, feature) < 0.5:
        return "concept", label, feature
    # An intercept repairs inputs that lie elsewhere, too; what explains about as much without labels is the cause.
    return ("feature" if feature >= 0.8 * label else "label"), label, feature


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
    if word == "tuned":
        return f"fine-tuned ({number.split()[0]}), {number.split()[1]} passes"
    if word == "local" and not len(pilot.ridges):
        return f"local, {number} passes"
    if word == "path":
        return f"path, lambda = {pilot.pulls[int(number)]:.2g}"
    if word == "frequencies":
        return "own frequencies"  # of the shared model; pages take "shared, ..." for the shared model itself
    return f"local, ridge = {pilot.ridges[int(number)]:.2g}" if word == "local" else name


def _cost(place: setup.Arena, pilot: Pilot, recipe: Recipe, plan: TrainSpec, seed: int) -> Cost:
    bench = Bench(place, recipe.method, recipe.options, plan)
    engine, hyper = bench.engine({})
    run = engine.start(place.model.init, seed, hyper)
    sizes = pilot.sizes
    per = visit_costs(engine.build, run.hyper, run.params, engine.example, sizes, {})
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
