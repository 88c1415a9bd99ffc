"""Self-FL on images: five digits a client, and two digits a client.

Chen, Ding et al. 2022 have 200 clients with five of ten lower-case letters each (FEMNIST, sizes 1 to 206): multinomial
logistic regression, step size 0.01, batches of 10, a tenth of the clients a round, 200 rounds, 20 local steps for the
other methods and at most 40 for Self-FL. Figure 2b takes Algorithm 1 apart, by the accuracy of the *global* model: all
three adjustments, the start alone, the steps alone, the weights alone; "the start contributes most". Table 1: own
models of the tenth with most samples and of the worst tenth (FedAvg 70.48 / 0, Ditto 70.58 / 0, pFedMe 72.76 / 17.97,
Per-FedAvg 74.95 / 24.51, Self-FL 76.24 / 37.01). With 40 local steps for everybody: Ditto 71.33, pFedMe 68.87,
Per-FedAvg 71.08, Self-FL 76.93. Figure 11: numbers of local steps at round 100. Figure 10: MNIST, 1,000 clients with
two digits each, step size 0.03, a fiftieth of the clients a round: slower than FedAvg and Ditto.

Those letters are not at hand: digits stand for them, with the same clients, classes, and settings. What is asked for is
the order, not the numbers. The paper's CIFAR-10 (20 clients with three classes each) is not run.

"self_fl" is Algorithm 1 as printed, slips included: rho = lr / (B s), the mean's move not squared (its length, where
the listing adds a vector to a number), variances over the whole model, x <- (1 - C) x + C x'. "(corrected)": these two
mended; "(unsmoothed)": these and x <- x' (the claims are judged of it, too, in case that the authors' program had no
such slips). "(default)": this library's, by a measured pull. "ftfa" is FedAvg with 20 or 40 steps of one's own from the
shared model: what one gets for Self-FL's work without its rules. Chosen here: the pull of Ditto and of pFedMe, on
validation; pFedMe with 4 outer steps of 5 inner ones, 20 gradients a visit; Per-FedAvg of first order with as many
steps of personalization as local ones (one alone leaves it at FedAvg's accuracy). One cut each; the seeds are those of
training. "A less B": the paired difference over seeds.
"""

from typing import Any

import numpy as np

from apiece.evaluate import interval
from apiece.experiment import contest as ground
from apiece.experiment.build import Arena, arena, model_of
from apiece.experiment.contest import Result, Rival
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.lines import curve
from apiece.reproduce.self_fl import image_claims as claims
from apiece.reproduce.self_fl.accuracies import LARGEST, WORST, Scores, accuracies, table
from apiece.reproduce.self_fl.digit_clients import digit_clients
from apiece.reproduce.self_fl.state import shared_accuracy, shared_model
from apiece.reproduce.verdict import Reproduction

BASE: dict[str, Any] = dict(lr=0.01, batch=10)
BY_STEPS: dict[str, Any] = dict(rule="paper", variance="welford", smoothing=True, summed=True, l_max=40, l_default=20)
PRINTED = BY_STEPS | dict(printed=True)
TUNED: dict[str, Any] = dict(tune_epochs=None, tune_lr=0.01)
LONGER = 40  # local steps where others work as much as Self-FL at most
RIVALS = {
    "local": Rival("local", dict(steps=20, **BASE)),
    "fed_avg": Rival("fed_avg", dict(steps=20, **BASE)),
    "ftfa, 20 steps": Rival("ftfa", dict(steps=20, tune_steps=20, **BASE, **TUNED)),
    "ftfa, 40 steps": Rival("ftfa", dict(steps=20, tune_steps=40, **BASE, **TUNED)),
    "ditto": Rival("ditto", dict(steps=20, **BASE), dict(lam=(0.1, 1.0, 3.0))),
    "pfedme": Rival("pfedme", dict(steps=4, prox_steps=5, prox_lr=0.01, **BASE), dict(lam=(1.0, 15.0))),
    "maml_fl": Rival("maml_fl", dict(steps=20, tune_steps=20, **BASE, **TUNED)),
    "ditto, 40 steps": Rival("ditto", dict(steps=LONGER, **BASE), like="ditto"),
    "maml_fl, 40 steps": Rival("maml_fl", dict(steps=LONGER, tune_steps=LONGER, **BASE, **TUNED)),
    "self_fl": Rival("self_fl", PRINTED | BASE),
    "self_fl (corrected)": Rival("self_fl", BY_STEPS | BASE),
    "self_fl (unsmoothed)": Rival("self_fl", BY_STEPS | BASE | dict(smoothing=False)),
    "self_fl (default)": Rival("self_fl", dict(l_default=20, **BASE)),
}
QUICK = ("local", "fed_avg", "ftfa, 40 steps", "self_fl")
SWITCHES = ("adapt_init", "adapt_steps", "adapt_weights")
ALONE = {
    part: Rival("self_fl", PRINTED | BASE | {switch: switch == on for switch in SWITCHES})
    for part, on in zip(claims.PARTS, (*SWITCHES, ""), strict=True)
}
FAST = BASE | dict(lr=0.03)
SLOW = {
    "fed_avg": Rival("fed_avg", dict(steps=20, **FAST)),
    "ditto": Rival("ditto", dict(steps=20, lam=1.0, **FAST)),
    "self_fl": Rival("self_fl", PRINTED | FAST),
    "self_fl (unsmoothed)": Rival("self_fl", PRINTED | FAST | dict(smoothing=False)),
}


def run(quick: bool, watch: Watch) -> Reproduction:
    """`quick`: 100 clients, 60 rounds, four methods; no ablation, no fiftieth."""
    clients, rounds = (100, 60) if quick else (200, 200)
    seeds = range(3 if quick else 5)
    place = softmax_of(digit_clients(clients, 5))
    rivals = {name: rival for name, rival in RIVALS.items() if not quick or name in QUICK}
    plan = planned(rounds, clients // 10, looks=4)
    total = ground.steps(rivals, seeds) + (0 if quick else ground.steps(ALONE, seeds) + ground.steps(SLOW, range(3)))
    how: dict[str, Any] = dict(step=ground.counter(watch, total), tune_rounds=rounds // 4, costs=False)
    results = ground.contest(place, rivals, plan, seeds, after=asked(place), **how)
    scores = {name: accuracies(place, result) for name, result in results.items()}
    found = [*claims.order(scores), *claims.equal_work(scores), *claims.beyond(scores)]
    settings: dict[str, Any] = dict(
        clients=clients, rounds=rounds, cohort=clients // 10, seeds=len(seeds), model=place.model.name,
        options={name: result.options for name, result in results.items() if result.tried},
    )  # fmt: skip
    settings["accuracy in points"] = table(scores)
    panels = [tenths(scores)]
    if not quick:
        halfway = ground.contest(
            place, {"self_fl": RIVALS["self_fl"]}, planned(rounds // 2, clients // 10, 1), seeds, after=asked(place),
            step=lambda what: None, costs=False,
        )  # fmt: skip
        taken = {"self_fl": steps_of(halfway["self_fl"])}
        taken["self_fl (corrected)"] = steps_of(results["self_fl (corrected)"])
        found += claims.steps_taken(taken["self_fl"])
        parts = {"all three": shared(results["self_fl"])}
        parts |= {name: shared(result) for name, result in
                  ground.contest(place, ALONE, plan, seeds, after=asked(place), **how).items()}  # fmt: skip
        found += claims.ablation(parts)
        settings["accuracy of the shared model, in points"] = {
            name: {"mean": interval(values).mean, "+-": interval(values).half_width} for name, values in parts.items()
        }
        few = softmax_of(digit_clients(1000, 2))
        slow = ground.contest(few, SLOW, planned(rounds, 20, looks=4), range(3), after=asked(few), **how)
        found += claims.activity({name: looks(result) for name, result in slow.items()},
                                 {name: shared(result) for name, result in slow.items()})  # fmt: skip
        settings["a fiftieth of 1,000 clients a round, accuracy in points"] = {
            name: {"shared model": float(shared(result).mean()),
                   "own models, validation, mean of four looks": float(looks(result).mean())}
            for name, result in slow.items()
        }  # fmt: skip
        panels += [histogram(taken), Panel("A fiftieth of the clients a round", "rounds", "validation accuracy",
                                           [curve(name, result) for name, result in slow.items()])]  # fmt: skip
    return Reproduction(found, figure(results, panels), settings, NOTES)


NOTES = (
    "Self-FL's start differs from the shared model by one part in as many as there are clients of what one's own model "
    "does: among 200 it hardly moves.",
    "As printed, most clients soon take a single step: models that are alike make the estimated spread between clients "
    "small, which asks for few steps, which makes the models more alike.",
    "Ditto's shared model is FedAvg's, up to the draws of its batches.",
    "A quick run has 100 clients and 60 rounds, and leaves out the ablation and small activity.",
)


def softmax_of(federation: Any) -> Arena:
    """Logistic regression on it."""
    return arena(federation, model_of(ModelSpec(name="softmax"), federation))


def planned(rounds: int, cohort: int, looks: int) -> TrainSpec:
    """So many rounds with so many clients, looked at so often."""
    return TrainSpec.model_validate(dict(rounds=rounds, cohort=cohort, evaluate_every=rounds // looks))


def asked(place: Arena) -> Any:
    """Of every trained run: how good the shared model is, and how many steps clients last took (where that is told)."""
    accuracy = shared_accuracy(place)

    def after(engine: Any, run: Any) -> tuple[float, Any]:
        model = shared_model(run)
        return np.nan if model is None else 100 * accuracy(model), getattr(run.server, "steps", None)

    return after


def shared(result: Result) -> np.ndarray:
    """By seed: the accuracy of the shared model, in points."""
    return np.array([accuracy for accuracy, _ in result.after])


def looks(result: Result) -> np.ndarray:
    """[seeds, looks]: validation accuracy of own models, in points."""
    return 100 * (1 - np.array([[p["validation_error"] for p in o.curve] for o in result.outcomes.values()]))


def steps_of(result: Result) -> np.ndarray:
    """The number of steps that each client took when it last took part, of all seeds."""
    taken = np.concatenate([np.asarray(steps) for _, steps in result.after])
    return taken[taken > 0]


def histogram(taken: dict[str, np.ndarray]) -> Panel:
    """Numbers of steps."""
    bins = np.arange(1, BY_STEPS["l_max"] + 1)
    lines = [Line(name, bins, [float((steps == k).mean()) for k in bins]) for name, steps in taken.items()]
    return Panel("How long clients train", "local steps l_m (as printed: at round 100)", "share of clients", lines)


def tenths(scores: Scores) -> Panel:
    """The largest clients and the worst."""
    dots = []
    for style, (name, found) in enumerate(scores.items()):
        worst, largest = (interval(found[statistic]) for statistic in (WORST, LARGEST))
        dots.append(Line(name, [largest.mean], [worst.mean], [worst.low], [worst.high], "dots", style))
    return Panel("The largest clients and the worst", "accuracy of the tenth with most samples, %",
                 "accuracy of the worst tenth, %", dots)  # fmt: skip


def figure(results: dict[str, Result], panels: list[Panel]) -> Figure:
    """Curves, both tenths; of a full run the numbers of steps, and small activity."""
    curves = [curve(name, result, style) for style, (name, result) in enumerate(results.items())]
    caption = (
        "Means over seeds; bands from the worst seed to the best (curves) or 95% intervals. self_fl: Algorithm 1 as "
        "printed; (corrected): without its two slips; (default): by a measured pull; ftfa: steps of one's own from "
        "FedAvg's model."
    )
    trained = Panel("Clients that train", "rounds", "validation accuracy", curves)
    return Figure("Self-FL on digits, five a client", caption, [trained, *panels])
