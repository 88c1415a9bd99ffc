"""What is claimed of Self-FL on images, as effects."""

import numpy as np

from apiece.reproduce.self_fl.accuracies import LARGEST, WEIGHTED, WORDS, WORST, Scores, above
from apiece.reproduce.verdict import Claim, effect, mean_of

PARTS = ("start alone", "steps alone", "weights alone", "none")
FEMNIST = {  # accuracy of the tenth with most samples, and of the worst tenth
    "fed_avg": (70.48, 0.0), "ditto": (70.58, 0.0), "pfedme": (72.76, 17.97), "maml_fl": (74.95, 24.51),
    "self_fl": (76.24, 37.01),
}  # fmt: skip
LONG = {"ditto, 40 steps": 71.33, "maml_fl, 40 steps": 71.08}  # own models, all examples; Self-FL has 76.93
SELF_LONG = 76.93
FORMS = ("self_fl", "self_fl (corrected)", "self_fl (unsmoothed)")  # of Algorithm 1


def order(scores: Scores) -> list[Claim]:
    """The published order: Self-FL above every other method in both tenths, and with 40 steps for everybody."""
    found = []
    for name in (name for name in FORMS if name in scores):
        for k, statistic in enumerate((LARGEST, WORST)):
            for other in (other for other in FEMNIST if other in scores and other != "self_fl"):
                gap = FEMNIST["self_fl"][k] - FEMNIST[other][k]
                what = f"own models, {WORDS[statistic]}: accuracy of {name} less that of {other}, points"
                found.append(above(what, f"above 0 ({gap:.1f})", scores[name][statistic], scores[other][statistic]))
        for other in (other for other in LONG if other in scores):
            what = f"own models, {WORDS[WEIGHTED]}: accuracy of {name} less that of {other}, points"
            told = f"above 0 ({SELF_LONG - LONG[other]:.1f})"
            found.append(above(what, told, scores[name][WEIGHTED], scores[other][WEIGHTED]))
    return found


def equal_work(scores: Scores) -> list[Claim]:
    """Is it more than what as many steps from FedAvg's model give?"""
    found = []
    for name in (name for name in (*FORMS, "self_fl (default)") if name in scores):
        for control in (control for control in ("ftfa, 20 steps", "ftfa, 40 steps") if control in scores):
            for statistic in (WEIGHTED, WORST):
                what = f"own models, {WORDS[statistic]}: accuracy of {name} less that of {control}, points"
                found.append(above(what, "above 0", scores[name][statistic], scores[control][statistic], "here"))
    return found


def beyond(scores: Scores) -> list[Claim]:
    """Against training alone, and the library's default against Algorithm 1."""
    found = []
    pairs = [("self_fl", "local"), ("self_fl (default)", "self_fl"), ("self_fl (default)", "local"),
             ("self_fl (default)", "fed_avg"), ("self_fl (default)", "ditto")]  # fmt: skip
    for name, other in (pair for pair in pairs if all(each in scores for each in pair)):
        for statistic in (WEIGHTED, WORST):
            what = f"own models, {WORDS[statistic]}: accuracy of {name} less that of {other}, points"
            found.append(above(what, "above 0", scores[name][statistic], scores[other][statistic], "here"))
    return found


def steps_taken(taken: np.ndarray) -> list[Claim]:
    """Do clients differ in how long they train? The published histogram says so."""
    single = float((taken == 1).mean())
    what = "self_fl: share of clients that take a single local step at round 100, below a half"
    return [effect(what, "numbers of steps differ", single, below=0.5)]


def ablation(parts: dict[str, np.ndarray]) -> list[Claim]:
    """The shared model with each of the three alone, with all, and with none, which is smoothed FedAvg."""
    start, steps, weights, none = (parts[name] for name in PARTS)
    what = "shared model: accuracy with"
    return [
        above(f"{what} the start adjusted alone, less no adjustment, points", "above 0", start, none),
        above(f"{what} the start adjusted alone, less the steps alone, points", "above 0: it contributes most", start,
              steps),
        above(f"{what} the start adjusted alone, less the weights alone, points", "above 0: it contributes most", start,
              weights),
        above(f"{what} all three adjustments, less none, points", "above 0", parts["all three"], none),
    ]  # fmt: skip


def activity(curves: dict[str, np.ndarray], shared: dict[str, np.ndarray]) -> list[Claim]:
    """A fiftieth of the clients a round: slower than FedAvg and Ditto."""
    found = []
    for other in ("fed_avg", "ditto"):
        slower = mean_of((curves["self_fl"] - curves[other]).mean(axis=1))
        what = (
            f"a fiftieth of the clients a round, own models: accuracy of self_fl less that of {other}, mean of 4 looks"
        )
        found.append(effect(f"{what}, points", "below 0: slower", slower, below=0))
    what = "a fiftieth of the clients a round, shared model after 200 rounds: accuracy of"
    found.append(effect(f"{what} self_fl less that of fed_avg, points", "below 0: slower",
                        mean_of(shared["self_fl"] - shared["fed_avg"]), below=0))  # fmt: skip
    gap = mean_of(shared["self_fl (unsmoothed)"] - shared["self_fl"])
    found.append(effect(f"{what} self_fl (unsmoothed) less that of self_fl, points", "above 0", gap, above=0,
                        source="here"))  # fmt: skip
    return found
