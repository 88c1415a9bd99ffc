"""Partial personalization of deep networks: which part to keep private, in three stages.

The FFGG paper trains a whole model (stage 1: FedAvg, on text FedAdam), then its shared part by Local FFGG while each
client has an input layer, output layer or low-rank adapters of its own (stage 2), and lastly tunes these for 5 epochs
(stage 3). In its transformer the first and the last *block* are private instead of the layers. Published, accuracy
weighted by test examples, 3 seeds: FEMNIST, 1,114 writers, ResNet-18 with group norm: FedAvg 93.18, input 93.60,
output 93.58, adapter 94.26; StackOverflow, 1,000 users, 4-block transformer, next word: 23.82, 24.11, 24.92, 24.80.
Here: MNIST by writer (200 writers of 60 digits or more, in 14x14 pixels; a ResNet of two blocks, 8-16 channels) and
Shakespeare by role (100 roles; a transformer of 4 blocks, 32/128, 4 heads; the next of 66 characters, sequences of 20).

As published: one local epoch; on images batches of 32, FedAvg's server step 1, client steps 0.5 in stage 1 and 0.01 in
stage 2, halved after every quarter of stage 1, 4 rounds of stage 1 to 1 of stage 2; on text FedAdam with the linear
schedule, and a tenth of both steps in stage 2. Fewer: rounds (400 + 100 for 2,000 + 500; text 240 + 60 for 1,000 +
500), clients, parameters, clients a round (4 for 10; text 4 for 50). Other on text: batches of 32, no clipping, client
and server steps 0.3 and 0.01, since so few rounds do not get far with a server step of 0.0005. FedAvg is stage 1
continued for as many rounds with the steps of stage 2; beside it stands FedAvg tuned as a whole.

The listing (Algorithm 4) starts a client's private part at random in every round, tunes it for one epoch, and then
alternates. Variants called "fresh" do so, at new draws of the untrained layer's law; with one epoch of a few batches,
the published work, such a part is hardly trained here, so more is tried. The others start every round at what stage 1
left (adapters: at no change). Inner work (by epochs) and the step of stage 3 are chosen with the first seed on
validation; stage 3 has 5 epochs or, if more, as many as the inner work. Normalization layers as the private part are
not in the paper. Intervals are for other clients and other seeds.
"""

from typing import Any

from apiece.experiment import build as setup
from apiece.experiment import contest
from apiece.experiment.build import Arena
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Watch
from apiece.models import resnet18, transformer
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.ffgg import three_stages
from apiece.reproduce.ffgg.partial_claims import FEDAVG, FRESH, TUNED, Trained, claims_of
from apiece.reproduce.ffgg.three_stages import Course, Variant, Work
from apiece.reproduce.ffgg.writers_and_roles import LENGTH, roles, writers
from apiece.reproduce.verdict import Reproduction

MORE = (Work(1.0), Work(5.0))  # epochs of inner work to choose from
BLOCKS = 4


def run(quick: bool, watch: Watch) -> Reproduction:
    """Both federations; `quick`: images alone, 20 writers, two seeds, private output layers from both starts."""
    jobs = [images(20, 6, 160, (0, 1), quick=True)] if quick else [images(200, 80, 400, (0, 1, 2)), text(100, 20, 240)]
    step = contest.counter(watch, sum(three_stages.steps(course, variants) for _, _, course, variants in jobs))
    found = []
    for what, place, course, variants in jobs:
        tell = lambda said, what=what: step(f"{what}, {said}")
        found.append(Trained(what, place, course, three_stages.followed(place, course, variants, tell)))
    claims = [claim for each in found for claim in claims_of(each)]
    settings: dict[str, Any] = {}
    for each in found:
        settings |= settings_of(each)
    return Reproduction(claims, figure(found), settings, NOTES)


NOTES = (
    "Published gains are 0.3 to 1.1 points, over a thousand clients; what this run could see stands beside each row.",
    "A quick run has images, FedAvg and private output layers alone (from both starts), and two writers a round.",
)

Job = tuple[str, Arena, Course, dict[str, Variant]]


def images(count: int, new: int, rounds: int, seeds: tuple[int, ...], quick: bool = False) -> Job:
    """Writers and their digits."""
    federation = writers(count, new)
    place = setup.arena(federation, resnet18((14, 14), 10, width=8, blocks=(1, 1)))
    first = _plan(rounds, cohort=2 if quick else 4, schedule="exponential", schedule_options={"every": rounds // 4})
    course = Course(first, _second(first), seeds, (0.5, 0.01), tune_lrs=(0.01, 0.1), newcomers=(5, 20),
                    diagnosed=0 if quick else 40)  # fmt: skip
    inner = MORE[:1] if quick else MORE
    afresh = (Work(1.0, 0.5), Work(20.0, 0.5), Work(20.0, 2.0))
    variants = {
        FEDAVG: Variant(),
        "input": Variant("input", inner=inner),
        "output": Variant("output", inner=inner),
        "norm": Variant("norm", inner=inner),
        "adapter": Variant("adapter", inner=inner),
        f"output{FRESH}": Variant("output", "fresh", afresh),
    }
    some = (FEDAVG, "output", f"output{FRESH}") if quick else tuple(variants)
    return "images", place, course, {name: variants[name] for name in some}


def text(count: int, new: int, rounds: int) -> Job:
    """Roles and what they say."""
    federation = roles(count, new)
    network = transformer(len(federation.classes), length=LENGTH, width=32, inner=128, blocks=BLOCKS)
    place = setup.arena(federation, network)
    first = _plan(rounds, cohort=4, schedule="linear")
    course = Course(first, _second(first), (0, 1, 2), (0.3, 0.03), (0.01, 0.001), adam=True, rank=4,
                    tune_lrs=(0.03, 0.1), newcomers=(40, 160), chosen_on=40, diagnosed=0)  # fmt: skip
    last = f"block{BLOCKS - 1}"
    variants = {
        FEDAVG: Variant(),
        "first block": Variant("block0", inner=MORE),
        "last block": Variant(last, inner=MORE),
        "adapter": Variant("adapter", inner=MORE),
        f"last block{FRESH}": Variant(last, "fresh", (Work(1.0, 0.3), Work(10.0, 0.3))),
    }
    return "text", place, course, variants


def _plan(rounds: int, **how: Any) -> TrainSpec:
    return TrainSpec.model_validate(dict(rounds=rounds, evaluate_every=rounds // 4, weights="uniform") | how)


def _second(first: TrainSpec) -> TrainSpec:
    """A quarter of the rounds, of which the last is the only one to be looked at."""
    rounds = first.rounds // 4
    return first.model_copy(update={"rounds": rounds, "evaluate_every": rounds})


def settings_of(trained: Trained) -> dict[str, Any]:
    """Two tables, of methods and of splits, and the plan."""
    course = trained.course
    names = [FEDAVG, TUNED, *(name for name in trained.finished if name != FEDAVG)]
    methods = {name: {"test accuracy": trained.accuracy(name)} for name in names}
    for name in names:
        gain = trained.above(name, FEDAVG) if name != FEDAVG else None
        methods[name]["above FedAvg"] = gain.value if gain else 0.0
        methods[name]["+-"] = gain.interval[1] - gain.value if gain else 0.0
    splits = {}
    for name, each in trained.finished.items():
        work, lr = each.chosen.work, each.chosen.tune_lr
        splits[name] = {"epochs of inner work": work.epochs if name != FEDAVG else "–", "step of stage 3": lr}
        if course.diagnosed:
            found = each.diagnosis
            splits[name] |= {key: getattr(found, key) if found else "–" for key in three_stages.Diagnosis._fields}
    plan = {
        "model": trained.place.model.name,
        "clients": trained.place.population,
        "test examples": int(trained.sizes.sum()),
        "new clients": len(trained.place.new),
        "rounds": [course.first.rounds, course.second.rounds],
        "clients a round": course.first.cohort,
        "client steps": list(course.lr),
        "server steps": list(course.server_lr),
        "seeds": len(course.seeds),
    }
    return {
        f"{trained.what}: {title}": table for title, table in (("methods", methods), ("splits", splits), ("plan", plan))
    }


def figure(found: list[Trained]) -> Figure:
    """What each split gains over FedAvg, before its tuning and after; and what the diagnostic said beforehand."""
    panels = []
    for each in found:
        names = [name for name in each.finished if name != FEDAVG]
        lines = []
        for style, name in enumerate(names):
            shared, mine = each.errors(FEDAVG), each.finished[name]
            gains = [each.gain(shared - errors) for errors in (mine.before, mine.after)]
            # A part that was never tuned is a guess: off the scale, and beside the point.
            places, gains = ([2], gains[1:]) if name.endswith(FRESH) else ([1, 2], gains)
            at = [place + 0.04 * (style - len(names) / 2) for place in places]
            low, high = ([gain.interval[end] for gain in gains] for end in (0, 1))
            lines.append(Line(name, at, [gain.value for gain in gains], low, high, kind="dots", style=style))
        panels.append(Panel(each.what.capitalize(), "after stage 2, after stage 3", "points above FedAvg", lines))
    caption = (
        "Accuracy on all test examples less FedAvg's, in points, by what is private; with 95% intervals over clients "
        "and seeds. Fresh parts are guesses before stage 3, and not shown there."
    )
    return Figure("Which part of a network to keep private", caption, panels)
