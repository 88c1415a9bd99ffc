"""Partial personalization of deep networks: which part to keep private, in three stages.

The FFGG paper trains a whole model (stage 1: FedAvg, on text FedAdam), then its shared part by Local FFGG while each
client has an input layer, output layer or low-rank adapters of its own (stage 2), and lastly tunes these for 5 epochs
(stage 3). Published, accuracy weighted by test examples, 3 seeds: FEMNIST, 1,114 writers, ResNet-18 with group norm:
FedAvg 93.18, input 93.60, output 93.58, adapter 94.26; StackOverflow, 1,000 users, 4-block transformer, next word:
23.82, 24.11, 24.92, 24.80. Here: MNIST by writer (80 writers of 60 digits or more, in 14x14 pixels; a ResNet of three
blocks, 8-16-32 channels) and Shakespeare by role (40 roles; a transformer of 2 blocks, 64/256, 4 heads; the next of 66
characters, sequences of 20).

As published: one local epoch; on images batches of 32, FedAvg's server step 1, client steps 0.5 in stage 1 and 0.01 in
stage 2, halved after every quarter of stage 1, 4 rounds of stage 1 to 1 of stage 2; on text FedAdam with the linear
schedule, and a tenth of both steps in stage 2. Fewer: rounds (480 + 120 for 2,000 + 500; text 160 + 40 for 1,000 +
500), clients, parameters, clients a round (4 for 10; text 4 for 50). Other on text: batches of 32, no clipping, client
and server steps 0.3 and 0.01, since so few rounds do not get far with a server step of 0.0005. Stage 3 takes the step
that is best on validation: of the published one and larger ones on images, as these clients have fewer examples and so
fewer steps; of 0.03, 0.1 (published) and 0.3 on text. Training alone takes as many epochs as FedAvg's average client.
FedAvg is stage 1 continued for as many rounds with the steps of stage 2; beside it stands FedAvg tuned as a whole.
"Re-initialised" private parts are taken to start every round at what stage 1 left (adapters: at no change); a variant
whose output layers start at random values, the other reading, is run beside it on images.
"""

from typing import Any

import numpy as np

from apiece.experiment import build as setup
from apiece.experiment import contest
from apiece.experiment.build import Arena
from apiece.experiment.contest import Rival
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Watch
from apiece.models import resnet18, transformer
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.ffgg import three_stages
from apiece.reproduce.ffgg.partial_claims import AFRESH, FEDAVG, SPLITS, Trained, claims_of, left_over
from apiece.reproduce.ffgg.three_stages import Course, Variant
from apiece.reproduce.ffgg.writers_and_roles import LENGTH, roles, writers
from apiece.reproduce.lines import newcomer_lines
from apiece.reproduce.verdict import Reproduction

EXAMPLES = {"images": (5, 10, 20), "text": (10, 40, 160)}


def run(quick: bool, watch: Watch) -> Reproduction:
    """Both federations; `quick`: images alone, with 20 writers, two seeds and one split."""
    jobs = [images(20, 6, 160, (0, 1), quick=True)] if quick else [images(80, 30, 480, (0, 1, 2)), text(40, 10, 160)]
    total = sum(_steps(variants, course, quick) for _, _, course, variants, _ in jobs)
    step = contest.counter(watch, total)
    found = []
    for what, place, course, variants, alone in jobs:
        tell = lambda said, what=what: step(f"{what}, {said}")
        finished = three_stages.followed(place, course, variants, tell)
        how: dict[str, Any] = dict(newcomers=course.newcomers, step=tell)
        local = {} if quick else contest.contest(place, {"local": alone}, as_long(place, course), course.seeds, **how)
        found.append(Trained(what, place, course, finished, local))
    claims = [claim for each in found for claim in claims_of(each)]
    settings: dict[str, Any] = {}
    for each in found:
        settings |= settings_of(each)
    return Reproduction(claims, figure(found), settings, NOTES)


NOTES = (
    "Published gains are 0.3 to 1.1 points, over a thousand clients; with some 1,800 test digits and three seeds, "
    "half a point can hardly be told from chance here.",
    "A quick run has images, FedAvg and private output layers alone, a network of two blocks, and two writers a round.",
)

Job = tuple[str, Arena, Course, dict[str, Variant], Rival]


def images(count: int, new: int, rounds: int, seeds: tuple[int, ...], quick: bool = False) -> Job:
    """Writers and their digits."""
    federation = writers(count, new)
    place = setup.arena(federation, resnet18((14, 14), 10, width=8, blocks=(1, 1) if quick else (1, 1, 1)))
    first = _plan(rounds, cohort=2 if quick else 4, schedule="exponential", schedule_options={"every": rounds // 4})
    course = Course(first, _second(first), seeds, (0.5, 0.01),
                    tune_lrs=(0.01, 0.1) if quick else (0.01, 0.03, 0.1), newcomers=EXAMPLES["images"],
                    diagnosed=0 if quick else 40)  # fmt: skip
    variants = {FEDAVG: Variant()} | {name: s for name, s in SPLITS.items() if not quick or name == "output"}
    variants |= {} if quick else {AFRESH: Variant("output", "random")}
    return "images", place, course, variants, Rival("local", {"epochs": 1}, {"lr": (0.1, 0.3)})


def text(count: int, new: int, rounds: int) -> Job:
    """Roles and what they say."""
    federation = roles(count, new)
    place = setup.arena(federation, transformer(len(federation.classes), length=LENGTH, width=64, inner=256, blocks=2))
    first = _plan(rounds, cohort=4, schedule="linear")
    course = Course(first, _second(first), (0, 1, 2), (0.3, 0.03), (0.01, 0.001), adam=True, inner_steps=5, rank=4,
                    tune_lrs=(0.03, 0.1, 0.3), newcomers=EXAMPLES["text"])  # fmt: skip
    return "text", place, course, {FEDAVG: Variant()} | SPLITS, Rival("local", {"epochs": 1}, {"lr": (0.1, 0.3)})


def _plan(rounds: int, **how: Any) -> TrainSpec:
    return TrainSpec.model_validate(dict(rounds=rounds, evaluate_every=rounds // 4, weights="uniform") | how)


def _second(first: TrainSpec) -> TrainSpec:
    return first.model_copy(update={"rounds": first.rounds // 4})


def _steps(variants: dict[str, Variant], course: Course, quick: bool) -> int:
    return three_stages.steps(course, variants) + (0 if quick else 2 + len(course.seeds))


def as_long(place: Arena, course: Course) -> TrainSpec:
    """A plan of training alone, an epoch a round: as many as FedAvg's average client takes in both stages."""
    cohort = course.first.cohort or place.population
    epochs = round((course.first.rounds + course.second.rounds) * cohort / place.population)
    return TrainSpec.model_validate({"rounds": epochs, "evaluate_every": epochs})


def settings_of(trained: Trained) -> dict[str, Any]:
    """Two tables, of methods and of splits, and the plan."""
    results, course = trained.results, trained.course
    methods = contest.per_method(trained.place, results)
    for name, row in methods.items():
        row["gain over FedAvg"] = float(np.mean(trained.accuracy(results[name]) - trained.accuracy(results[FEDAVG])))
    splits = {}
    for name in trained.splits:
        each = trained.finished[name]
        before, after = (float(trained.accuracy(result).mean()) for result in each[:2])
        splits[name] = {"before stage 3": before, "after": after, "step of stage 3": each.after.options["tune_lr"]}
        if each.diagnosis is not None:
            found = each.diagnosis
            splits[name] |= {"private parameters": found.private, "shared": found.shared}
            splits[name] |= {"gradient left": left_over(each), "agreement": found.agreement}
    plan = {
        "model": trained.place.model.name,
        "clients": trained.place.population,
        "new clients": len(trained.place.new),
        "rounds": [course.first.rounds, course.second.rounds],
        "clients a round": course.first.cohort,
        "client steps": list(course.lr),
        "server steps": list(course.server_lr),
        "epochs alone": as_long(trained.place, course).rounds,
        "seeds": len(course.seeds),
        "seconds of stage 2": {name: round(sum(each.after.seconds), 1) for name, each in trained.finished.items()},
    }
    return {
        f"{trained.what}: {title}": table for title, table in (("methods", methods), ("splits", splits), ("plan", plan))
    }


def figure(found: list[Trained]) -> Figure:
    """What each method gives new clients, and what the split diagnostic said beforehand."""
    panels = []
    for each in found:
        # Bands of so few seeds would hide one another.
        lines = [line._replace(low=None, high=None) for line in newcomer_lines(each.results)]
        title = f"{each.what.capitalize()}: clients that never trained"
        panels.append(Panel(title, "examples to tune on", "test accuracy", lines))
        styles = {name: style for style, name in enumerate(each.results)}
        dots = []
        for name in [name for name in each.splits if each.finished[name].diagnosis]:
            gain = each.above(name, FEDAVG)
            low, high = gain.interval
            at = left_over(each.finished[name])
            dots.append(Line(name, [at], [gain.value], [low], [high], kind="dots", style=styles[name]))
        if dots:
            title = f"{each.what.capitalize()}: the split diagnostic and the gain"
            panels.append(Panel(title, "share of the shared gradient left", "points above FedAvg", dots))
    caption = (
        "Left: test accuracy of clients that took no part in training, by the number of examples from which their "
        "private part (or model) is tuned, mean over seeds. Right: gain in accuracy over FedAvg, with 95% "
        "intervals over seeds, against the share of the shared part's gradient that is left when the private part has "
        "been tuned at the model of stage 1."
    )
    return Figure("Which part of a network to keep private", caption, panels)
