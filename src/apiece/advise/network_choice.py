"""From a network's pilot to a choice, the part to keep private, and a method that runs it."""

from typing import Any, NamedTuple

import numpy as np

from apiece.advise import stacking
from apiece.advise.choose import Choice, Picked, choose, mean_and_doubt
from apiece.advise.keep import Kept
from apiece.advise.network import Network, Trained
from apiece.advise.pilot import Pilot
from apiece.advise.recipe import Recipe, best_pull, rounded
from apiece.advise.stacking import client_means
from apiece.advise.weigh import Told
from apiece.estimate.diagnose import diagnose_split
from apiece.experiment.build import Arena

KAPPA = 10.0  # what was best for networks in the study; few clients have no weights of their own
DIAGNOSED = 30  # clients whose gradients tell about a split
DIAGNOSE_STEPS = 20
SURE = 1.645


class Tuning(NamedTuple):
    """What is fine-tuned, and for how many passes."""

    part: str
    passes: int

    @classmethod
    def of(cls, name: str) -> "Tuning":
        """From a candidate's name.

        >>> Tuning.of("tuned all 3")
        Tuning(part='', passes=3)
        """
        _, part, passes = name.split()
        return cls("" if part == "all" else part, int(passes))


def network_scores(pilot: Pilot, classes: int, alone: np.ndarray) -> np.ndarray:
    """[candidates]: pooled scores; those of local networks as far from the shared one's as `alone`'s clients say."""
    scores = stacking.pooled_scores(pilot.first, classes)
    means = client_means(pilot.first.every[:, 0], pilot.first.count[:, 0])[alone]
    scale = 1.0 if classes else 1 / (2 * stacking.variance_of(pilot.first, classes)[0])
    for at, name in enumerate(pilot.names):
        if name.startswith("local"):
            scores[at] = scores[0] + scale * float(np.nanmean(means[:, at] - means[:, 0])) if len(means) else scores[0]
    return scores


def pick_of_network(scores: np.ndarray, names: list[str]) -> Picked:
    """The best of each kind; local is last, to compare with, and no part of the mixture."""
    find = lambda word: [at for at, name in enumerate(names) if name.split()[0] == word]
    best = lambda some: some[int(np.argmin(scores[some]))]
    path = find("path")
    here = best(path)
    nearer = here + 1 if here + 1 in path else None
    chosen = {"shared": 0, "path": here} | ({"nearer": nearer} if nearer is not None else {})
    chosen |= {"tuned": best(find("tuned")), "local": best(find("local"))}
    return Picked(list(chosen), list(chosen.values()), scores, path.index(here),
                  None if nearer is None else path.index(nearer), 0, None)  # fmt: skip


def choose_of_network(pilot: Pilot, kept: Kept, classes: int, share: bool, alone: np.ndarray) -> tuple[Choice, Told]:
    """(the choice, what clients told for it)."""
    picked = pick_of_network(network_scores(pilot, classes, alone), pilot.names)
    variance = stacking.variance_of(pilot.first, classes)
    weights = kept.tree("weights", lambda: pilot.held.weigh(picked.at, variance))[1]  # without local
    told = Told(*kept.tree("told", lambda: pilot.held.tell(picked.at, weights, variance)))
    kappa = KAPPA if len(pilot.sizes) >= stacking.FEWEST else float("inf")
    choice = choose(told, picked, weights, share, kappa=kappa, reference="local")
    better = told.loss[:, 0, choice.predictor("advised")] - told.loss[:, 0, choice.predictor("local")]
    gain, doubt = mean_and_doubt(client_means(better, told.count[:, 0])[alone])
    return (choice._replace(named="local") if gain > SURE * doubt else choice), told


def network_recipe(choice: Choice, pilot: Pilot, trained: Trained) -> Recipe:
    """The method and its options."""
    lr, rounds = rounded(float(trained.lr)), max(int(trained.rounds), 1)
    train: dict[str, Any] = {"lr": lr, "epochs": 1}
    if choice.named == "shared":
        return Recipe("fed_avg", train, rounds)
    if choice.named == "local":
        return Recipe("local", train, int(pilot.names[choice.at[-1]].split()[1]))
    tuning = Tuning.of(pilot.names[choice.at[choice.kinds.index("tuned")]])
    if choice.named == "tuned" and not tuning.part:
        return Recipe("ftfa", train | {"tune_epochs": tuning.passes, "tune_lr": lr}, rounds)
    near = choice.path if choice.nearer is None else choice.nearer
    options = {"lam": rounded(best_pull(choice, pilot) * pilot.usual),
               "nearer": rounded(float(pilot.pulls[near]) * pilot.usual), "tune_part": tuning.part,
               "tune_epochs": tuning.passes, "tune_lr": lr}  # fmt: skip
    options |= {f"on_{kind}": round(choice.weight_of(kind), 4) for kind in ("shared", "path", "nearer", "tuned")}
    own = choice.named == "stack" and np.isfinite(choice.kappa)
    return Recipe("stack_tuned", options | {"trust": rounded(1 / choice.kappa) if own else 0.0} | train, rounds)


def private_part(place: Arena, of: Network, choice: Choice, pilot: Pilot, trained: Trained) -> dict[str, Any]:
    """Which part to keep private: held-out losses with one part of one's own each, and what gradients say of it."""
    names = np.array(pilot.names)
    least = lambda some: float(choice.scores[some].min())
    tried = {"nothing": float(choice.scores[0]), "output": least(np.char.startswith(names, "path"))}
    for part in of.parts:
        tried[part or "all"] = least(np.char.startswith(names, f"tuned {part or 'all'} "))
    best = min(tried, key=lambda part: tried[part])
    looked = best if best not in ("nothing", "all") else "output"
    last = int(place.offsets[min(DIAGNOSED, place.population)])
    found = diagnose_split(of.loss, trained.params, place.x[:last], place.y[:last],
                           place.offsets[: min(DIAGNOSED, place.population) + 1], private=looked,
                           steps=DIAGNOSE_STEPS, lr=float(trained.lr))  # fmt: skip
    return {"part": best, "losses": tried, "diagnosed": looked, "diagnosis": found.advice,
            "left": float(np.nanmedian(found.ratio)), "agreement": found.agreement}  # fmt: skip
