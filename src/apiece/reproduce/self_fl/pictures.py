"""Self-FL on CIFAR-10: 20 clients with three classes each, a quarter of them a round, a small network."""

from typing import Any

from apiece.data.sources.real import cifar10_subset
from apiece.experiment import contest as ground
from apiece.experiment.build import arena
from apiece.experiment.contest import Rival
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Watch
from apiece.models import Stage, cnn
from apiece.reproduce.self_fl.accuracies import WEIGHTED, WORDS, above, accuracies, table
from apiece.reproduce.verdict import Claim

STEPS, ROUNDS = 40, 25
BASE: dict[str, Any] = dict(lr=0.01, batch=10)
PRINTED: dict[str, Any] = dict(
    rule="paper", variance="welford", smoothing=True, summed=True, printed=True, l_max=STEPS, l_default=STEPS
)
RIVALS = {
    "local": Rival("local", dict(steps=STEPS, **BASE)),
    "fed_avg": Rival("fed_avg", dict(steps=STEPS, **BASE)),
    "ftfa, 40 steps": Rival("ftfa", dict(steps=STEPS, tune_epochs=None, tune_steps=STEPS, tune_lr=0.01, **BASE)),
    "ditto": Rival("ditto", dict(steps=STEPS, lam=0.1, **BASE)),
    "self_fl": Rival("self_fl", PRINTED | BASE),
    "self_fl (unsmoothed)": Rival("self_fl", PRINTED | BASE | dict(smoothing=False, printed=False)),
}


def on_pictures(watch: Watch, seeds: range = range(3)) -> tuple[list[Claim], dict[str, dict[str, float]]]:
    """Claims, and a table of accuracies."""
    federation = cifar10_subset(clients=20, partition="by_classes", k=3)
    place = arena(federation, cnn((32, 32, 3), 10, [Stage(8), Stage(16)], hidden=(32,)))
    plan = TrainSpec.model_validate(dict(rounds=ROUNDS, cohort=5, evaluate_every=ROUNDS))
    step = ground.counter(
        lambda what, done, total: watch(f"cifar-10, {what}", done, total), ground.steps(RIVALS, seeds)
    )
    results = ground.contest(place, RIVALS, plan, seeds, step=step, costs=False)
    scores = {name: accuracies(place, result) for name, result in results.items()}
    claims = []
    for name in ("self_fl", "self_fl (unsmoothed)"):
        for other in ("fed_avg", "ditto", "ftfa, 40 steps", "local"):
            what = f"CIFAR-10, own models, {WORDS[WEIGHTED]}: accuracy of {name} less that of {other}, points"
            mine, its = (scores[each][WEIGHTED] for each in (name, other))
            claims.append(above(what, "above 0", mine, its, "paper" if other in ("fed_avg", "ditto") else "here"))
    return claims, table(scores)
