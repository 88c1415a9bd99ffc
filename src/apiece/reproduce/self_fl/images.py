"""Self-FL on images: a thousand clients with two digits each.

Chen, Ding et al. 2022 cut MNIST into 1,000 clients with two digits each and power-law sizes, and train a multinomial
logistic model with step size 0.03, batches of 10, a tenth of the clients a round, 200 rounds, 20 local steps for the
other methods and at most 40 for Self-FL. Their numbers are for FEMNIST (200 clients, five letters each), which is not
at hand: Table 1 has the accuracy of the tenth of the clients with most samples and of the worst tenth (FedAvg 70.48 /
0, Ditto 70.58 / 0, pFedMe 72.76 / 17.97, Per-FedAvg 74.95 / 24.51, Self-FL 76.24 / 37.01), and the text says that of
the three adjustments that of the start contributes most, and that a fiftieth of the clients a round is slow. What is
asked for here, on MNIST, is the order, not the numbers.

"self_fl" is as printed: variances by how models move from round to round (over the whole model, not per coordinate),
the printed rule, and x <- (1 - C) x + C x'. "self_fl (bayes)" is the rule of the posterior mean with bootstrapped
variances, not smoothed. Chosen here: the pull of Ditto and of pFedMe, on validation; pFedMe with 4 outer steps of 5
inner ones, which are 20 gradients a visit; Per-FedAvg of first order with 20 steps of personalization (a single one
leaves it at FedAvg's accuracy); 50 clients more that never train. One cut; the seeds are those of training.
"A above B": the 95% interval of the paired difference over seeds lies above 0.
"""

from typing import Any

import jax
import numpy as np

from apiece.evaluate import interval
from apiece.experiment import contest as ground
from apiece.experiment.build import Arena, arena, model_of
from apiece.experiment.contest import Result, Rival
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.experiment.train import Watch
from apiece.methods.self_fl import Register
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.lines import curve, newcomer_lines
from apiece.reproduce.self_fl.accuracies import LARGEST, WEIGHTED, WORDS, WORST, Scores, above, accuracies, table
from apiece.reproduce.self_fl.state import local_steps, shared_accuracy
from apiece.reproduce.self_fl.two_digit_clients import two_digit_clients
from apiece.reproduce.verdict import Claim, Reproduction, effect, mean_of

BASE: dict[str, Any] = dict(lr=0.03, batch=10)
SELF: dict[str, Any] = dict(l_max=40, l_default=20, summed=True, **BASE)
PRINTED: dict[str, Any] = dict(rule="paper", variance="welford", smoothing=True, **SELF)
BAYES: dict[str, Any] = dict(rule="bayes", variance="bootstrap", tune_lr=0.03, tune_steps=30, refits=3, **SELF)
PULLS = (0.1, 1.0, 3.0, 10.0)
RIVALS = {
    "local": Rival("local", dict(steps=20, **BASE)),
    "fed_avg": Rival("fed_avg", dict(steps=20, **BASE)),
    "ditto": Rival("ditto", dict(steps=20, **BASE), dict(lam=PULLS)),
    "pfedme": Rival("pfedme", dict(steps=4, prox_steps=5, prox_lr=0.03, **BASE), dict(lam=(1.0, 5.0, 15.0))),
    "maml_fl": Rival("maml_fl", dict(steps=20, tune_epochs=None, tune_steps=20, tune_lr=0.03, **BASE)),
    "self_fl": Rival("self_fl", PRINTED),
    "self_fl (bayes)": Rival("self_fl", BAYES),
}
QUICK = ("local", "fed_avg", "ditto", "self_fl", "self_fl (bayes)")
ADJUSTED = {"start": "adapt_init", "steps": "adapt_steps", "weights": "adapt_weights"}
NONE = "none"  # no adjustment: own models, 20 steps from the shared one, equal weights
ALONE = {
    f"{part} alone" if option else NONE: Rival(
        "self_fl", PRINTED | {each: each == option for each in ADJUSTED.values()}
    )
    for part, option in {**ADJUSTED, NONE: ""}.items()
}
UNSMOOTHED = {"unsmoothed": Rival("self_fl", PRINTED | dict(smoothing=False))}
SLOW = {"smoothed": Rival("self_fl", PRINTED), **UNSMOOTHED}
FEMNIST = {  # accuracy of the tenth with most samples, and of the worst tenth
    "fed_avg": (70.48, 0.0), "ditto": (70.58, 0.0), "pfedme": (72.76, 17.97), "maml_fl": (74.95, 24.51),
    "self_fl": (76.24, 37.01),
}  # fmt: skip
FEMNIST_WEIGHTED = {"ditto": 71.33, "pfedme": 68.87, "maml_fl": 71.08, "self_fl": 76.93}


def run(quick: bool, watch: Watch) -> Reproduction:
    """`quick`: 150 clients, 40 rounds, five methods; no ablation and no fiftieth."""
    clients, new, rounds = (150, 10, 40) if quick else (1000, 50, 200)
    seeds = range(3)
    federation = two_digit_clients(clients, new)
    place = arena(federation, model_of(ModelSpec(name="softmax"), federation))
    rivals = {name: rival for name, rival in RIVALS.items() if not quick or name in QUICK}
    if quick:  # no tuning
        rivals["ditto"] = Rival("ditto", dict(steps=20, lam=1.0, **BASE))
    plan = TrainSpec.model_validate(dict(rounds=rounds, cohort=clients // 10, evaluate_every=rounds // 4))
    total = sum(ground.steps(group, seeds) for group in ((rivals,) if quick else (rivals, ALONE, UNSMOOTHED, SLOW)))
    how: dict[str, Any] = dict(after=asked(place), step=ground.counter(watch, total))
    how |= dict(tune_rounds=rounds // 4, costs=False)
    results = ground.contest(place, rivals, plan, seeds, newcomers=(5, 20) if quick else (2, 10, 40), **how)
    scores = {name: accuracies(place, result) for name, result in results.items()}
    claims = [*order(scores, quick), *beyond(scores, quick), *steps_taken(place, results)]
    settings: dict[str, Any] = dict(
        clients=clients, new_clients=new, rounds=rounds, cohort=clients // 10, seeds=len(seeds), model=place.model.name,
        options={name: result.options for name, result in results.items() if result.tried},
    )  # fmt: skip
    settings["accuracy in points"] = table(scores)
    settings["per method"] = ground.per_method(place, results)
    if not quick:
        alone = ground.contest(place, ALONE, plan, seeds, **how)
        parts = {name: accuracies(place, result) for name, result in alone.items()}
        tenth = {"smoothed": results["self_fl"]} | ground.contest(place, UNSMOOTHED, plan, seeds, **how)
        few = ground.contest(place, SLOW, plan.model_copy(update={"cohort": clients // 50}), seeds, **how)
        claims += [*adjustments(parts), *fiftieth(tenth, few)]
        settings["one adjustment of self_fl alone"] = table(parts)
        shares = {"a tenth": tenth, "a fiftieth": few}
        active = {f"{share} a round, {name}": one for share, of in shares.items() for name, one in of.items()}
        rows = table({name: accuracies(place, result) for name, result in active.items()})
        settings["activity"] = {
            name: {"the shared model": float(np.mean(shared(result)))} | rows[name] for name, result in active.items()
        }
    return Reproduction(claims, figure(place, results, scores), settings, NOTES)


NOTES = (
    "As printed, Self-FL drives itself to the shared model: models that are alike make the estimated spread between "
    "clients small, which asks for a single local step, which makes the models more alike.",
    "Estimating each client's variance by itself (bootstrap) and the rule of the posterior mean undo that; so does "
    "leaving the number of steps as it is (the table of adjustments).",
    "Among 1,000 clients the adjusted start differs from the shared model by a thousandth of what the client's own "
    "model does: here it changes nothing, and cannot contribute most.",
    "Self-FL with bootstrapped variances computes more: up to 40 steps a visit against 20 of the others, and at a "
    "client's first visit four fits of 30 steps.",
    "A quick run leaves out pFedMe, Per-FedAvg, the adjustments one by one and a fiftieth of the clients a round.",
)


def asked(place: Arena) -> Any:
    """Of every trained run of Self-FL: what the server knows, and how good its model is; of the others nothing."""
    accuracy = shared_accuracy(place)
    keeps = lambda server: isinstance(server, Register)
    return lambda engine, run: (run.server, accuracy(run.server.x)) if keeps(run.server) else None


def shared(result: Result) -> np.ndarray:
    """By seed: the accuracy of the shared model of Self-FL, in points."""
    return 100 * np.array([accuracy for _, accuracy in result.after])


def order(scores: Scores, quick: bool) -> list[Claim]:
    """The published order: Self-FL above every other method, for all and in both tenths; `quick`: above Ditto."""
    claims = []
    others = ["ditto"] if quick else [name for name in scores if name in FEMNIST and name != "self_fl"]
    for k, statistic in enumerate((LARGEST, WORST)):
        for other in others:
            gap = FEMNIST["self_fl"][k] - FEMNIST[other][k]
            what = f"{WORDS[statistic]}: accuracy of self_fl less that of {other}, points (published for FEMNIST)"
            claims.append(above(what, f"above 0 ({gap:.1f})", scores["self_fl"][statistic], scores[other][statistic]))
    for other in (name for name in others if name in FEMNIST_WEIGHTED):
        gap = FEMNIST_WEIGHTED["self_fl"] - FEMNIST_WEIGHTED[other]
        what = f"{WORDS[WEIGHTED]}: accuracy of self_fl less that of {other}, points (published for FEMNIST)"
        claims.append(above(what, f"above 0 ({gap:.1f})", scores["self_fl"][WEIGHTED], scores[other][WEIGHTED]))
    return claims


def beyond(scores: Scores, quick: bool) -> list[Claim]:
    """What the corrected rule with better variances is worth, and training alone; `quick`: what is plain to see."""
    claims = []
    plain = [("self_fl (bayes)", "fed_avg"), ("self_fl (bayes)", "self_fl"), ("self_fl", "local")]
    close = [("self_fl (bayes)", "local"), ("self_fl (bayes)", "ditto")]
    for name, other in plain if quick else [*plain, *close]:
        for statistic in (WEIGHTED, WORST):
            what = f"{WORDS[statistic]}: accuracy of {name} less that of {other}, points"
            claims.append(above(what, "above 0", scores[name][statistic], scores[other][statistic], "here"))
    return claims


def steps_of(place: Arena, result: Result) -> np.ndarray:
    """Everybody's number of local steps at the end, of all seeds."""
    sizes, parameters = np.diff(place.offsets), sum(leaf.size for leaf in jax.tree.leaves(result.after[0][0].x))
    return np.concatenate([local_steps(server, sizes, result.options, parameters) for server, _ in result.after])


def steps_taken(place: Arena, results: dict[str, Result]) -> list[Claim]:
    """Do clients differ in how long they train? The published histogram says so."""
    claims = []
    for name, source in (("self_fl", "paper"), ("self_fl (bayes)", "here")):
        single = float((steps_of(place, results[name]) == 1).mean())
        what = f"{name}: share of clients that take a single local step at the end, below a half"
        claims.append(effect(what, "numbers of steps differ", single, below=0.5, source=source))
    return claims


def adjustments(parts: Scores) -> list[Claim]:
    """Each of the three alone, and none of them."""
    claims = []
    for statistic in (WEIGHTED, WORST):
        start, *rest = (parts[f"{part} alone"][statistic] for part in ADJUSTED)
        what = f"{WORDS[statistic]}: the start adjusted alone, less no adjustment, points"
        claims.append(above(what, "above 0", start, parts[NONE][statistic]))
        best = max(rest, key=np.mean)
        what = f"{WORDS[statistic]}: the start adjusted alone, less the better of steps and weights alone, points"
        claims.append(above(what, "above 0: it contributes most", start, best))
    return claims


def fiftieth(tenth: dict[str, Result], few: dict[str, Result]) -> list[Claim]:
    """The shared model after as many rounds with a fiftieth of the clients a round, less than with a tenth."""
    smooth, plain = (mean_of(shared(tenth[name]) - shared(few[name])) for name in SLOW)
    what = "shared model of self_fl: accuracy with a tenth of the clients a round less that with a fiftieth"
    return [
        effect(f"{what}, points, above 1", "slow", smooth, above=1),
        effect(f"{what}, unsmoothed, points, below 1", "not slow", plain, below=1, source="here"),
    ]


def figure(place: Arena, results: dict[str, Result], scores: Scores) -> Figure:
    """Curves, both tenths, the numbers of steps, new clients."""
    style = {name: k for k, name in enumerate(RIVALS)}
    curves = [curve(name, result, style[name]) for name, result in results.items()]
    tenths = []
    for name, found in scores.items():
        worst, largest = (interval(found[statistic]) for statistic in (WORST, LARGEST))
        tenths.append(Line(name, [largest.mean], [worst.mean], [worst.low], [worst.high], "dots", style[name]))
    bins = np.arange(1, SELF["l_max"] + 1)
    counts = []
    for name in ("self_fl", "self_fl (bayes)"):
        taken = steps_of(place, results[name])
        counts.append(Line(name, bins, [float((taken == k).mean()) for k in bins], style=style[name]))
    fresh = [line._replace(style=style[line.name], low=None, high=None) for line in newcomer_lines(results)]
    caption = (
        "Means over seeds; bands from the worst seed to the best (curves) or 95% intervals; of new clients means only. "
        "self_fl: as printed, with smoothing; (bayes): the rule of the posterior mean, bootstrapped variances, not "
        "smoothed."
    )
    panels = [
        Panel("Clients that train", "rounds", "validation accuracy", curves),
        Panel("The largest clients and the worst", "accuracy of the tenth with most samples, %",
              "accuracy of the worst tenth, %", tenths),
        Panel("How long clients train", "local steps l_m at the end", "share of clients", counts),
        Panel("New clients", "their training examples", "test accuracy", fresh, log_x=True),
    ]  # fmt: skip
    return Figure("Self-FL on MNIST, two digits a client", caption, panels)
