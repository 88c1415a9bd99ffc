"""From noised sums to a choice, to expectations whose intervals include the noise, and to what has to be said of it.

The rule is that of the plain advice, but for one thing: a difference that the noise could have made moves nothing. What
is then advised is the middle of the path, which has least to lose.
"""

import importlib.metadata
from typing import Any

import numpy as np
from scipy import stats

from apiece.advise.advice import Advice, AdvicePrivacy, ReleasedSum
from apiece.advise.choose import SURE_OF_STACK, WORTH_STACK, Choice
from apiece.advise.differ import Difference
from apiece.advise.foresee import FEW, LEVEL, UNSURE, Expected, Foreseen
from apiece.advise.pilot import Pilot
from apiece.advise.private_answers import LEVELS_CLIP, PREDICTORS, SETTING
from apiece.advise.private_pilot import PrivatePilot, Weighed, weigh_privately, work_of
from apiece.advise.questions import Moments
from apiece.advise.release import Purse
from apiece.advise.stacking import FEWEST
from apiece.advise.weigh import KAPPAS, WIDTH, Told

BEYOND_NOISE = 1.645  # deviations of the noise that a difference must exceed to count
MIDDLE = 1  # where the grids of the path and of ridges are taken if noise hides which is best


def unseen(noise: float) -> float:
    """The largest difference between two noised means that their noise alone makes, once in twenty times."""
    return float(BEYOND_NOISE * np.sqrt(2) * noise)


def choose_privately(pilot: PrivatePilot, purse: Purse) -> tuple[Choice, Weighed, bool]:
    """(the choice, what it was weighed by, whether the noise lets see that personal models differ from the shared)."""
    names, scores, hides = pilot.names, pilot.scores, unseen(pilot.score_noise)
    find = lambda word: [at for at, name in enumerate(names) if word in name.split()]
    path, local = find("path"), find("local")
    at_path = _best(scores, path, path[MIDDLE], hides)
    at_local = _best(scores, local, local[MIDDLE], hides)
    nearer = at_path + 1 if at_path + 1 in path else None
    chosen = {"shared": 0, "path": at_path} | ({} if nearer is None else {"nearer": nearer}) | {"local": at_local}
    kinds, at = list(chosen), list(chosen.values())
    found = weigh_privately(pilot, at, purse)
    kappa = np.inf
    if purse.clients >= FEWEST:
        mixtures = [WIDTH + k for k in range(len(KAPPAS))]
        kappa = KAPPAS[_best(found.loss, mixtures, mixtures[-1], unseen(found.noise)) - WIDTH]
    best = _best(scores, at, at_path, hides)
    single = kinds[at.index(best)]
    if single == "local" and purse.clients < FEWEST:
        gain, noise = gain_over(found, kinds.index("local"), kinds.index("path"), pilot.level.told)
        single = "path" if gain < noise else single
    better, doubt = gain_over(found, WIDTH + KAPPAS.index(kappa), kinds.index(single), pilot.level.told)
    named = "stack" if better > max(SURE_OF_STACK * doubt, WORTH_STACK, unseen(found.noise)) else single
    levels = pilot.level.loss + scores
    where = (path.index(at_path), None if nearer is None else path.index(nearer), local.index(at_local), None)
    choice = Choice(kinds, at, levels, *where, single, named, found.weights, kappa, better, doubt, np.zeros(0, int))
    # What must be seen is whether to personalize at all: how much is a matter of degree, from the path to alone.
    seen = abs(min(scores[at_path], scores[at_local])) > hides
    return choice, found, bool(seen)


def _best(means: np.ndarray, among: list[int], usual: int, hides: float) -> int:
    """The least of these or, where its lead is within the noise, the usual one."""
    best = among[int(np.argmin(means[among]))]
    return best if means[usual] - means[best] > hides else usual


def gain_over(found: Weighed, one: int, other: int, count: float, errors: bool = False) -> tuple[float, float]:
    """(how much less one predictor loses than another, its standard error with the noise)."""
    means, first = (found.error, PREDICTORS) if errors else (found.loss, 0)
    a, b = first + one, first + other
    if one == other:
        return 0.0, 0.0
    variance = max(found.spread[a, a] + found.spread[b, b] - 2 * found.spread[a, b], 0.0)
    return float(means[other] - means[one]), float(np.sqrt(variance / count + 2 * found.noise**2))


def foresee_privately(choice: Choice, found: Weighed, pilot: PrivatePilot, purse: Purse) -> Foreseen:
    """Errors and gains in points, of models on three quarters of the data, with intervals that include the noise."""
    level, clients = pilot.level, purse.clients
    every = {name: choice.predictor(name) for name in dict.fromkeys(["advised", *choice.kinds])}
    of_level = next(each.noise for each in purse.releases if each.name == "levels") * LEVELS_CLIP / level.told
    errors: dict[str, Expected] = {}
    gains: dict[str, Expected] = {}
    loss_gains: dict[str, Expected] = {}
    for name, at in every.items():
        # Of what clients have in common nothing is known: their deviations may add up.
        spread = np.sqrt(level.error_variance) + np.sqrt(max(found.spread[PREDICTORS + at, PREDICTORS + at], 0.0))
        deviation = np.sqrt(spread**2 / level.told + of_level**2 + found.noise**2)
        told = _interval(100 * (level.error + found.error[at]), 100 * deviation, clients)
        errors[name] = Expected(*(float(np.clip(each, 0, 100)) for each in told))
    for other in choice.kinds:
        for into, errors_too, points in ((gains, True, 100.0), (loss_gains, False, 1.0)):
            mean, deviation = gain_over(found, every["advised"], every[other], level.told, errors_too)
            told = _interval(points * mean, np.hypot(points * deviation, UNSURE * points * mean), clients)
            into[other] = Expected(*(float(np.clip(each, -100, 100)) for each in told)) if errors_too else told
    nothing = np.full(clients, np.nan)
    return Foreseen(errors, gains, loss_gains, None, np.zeros(0, int), nothing, nothing, np.zeros(clients))


def _interval(mean: float, deviation: float, clients: int) -> Expected:
    at = (1 + LEVEL) / 2
    width = (stats.t.ppf(at, clients - 1) if 1 < clients < FEW else stats.norm.ppf(at)) * deviation
    return Expected(float(mean), float(mean - width), float(mean + width))


def as_pilot(pilot: PrivatePilot, clients: int) -> Pilot:
    """What is written up: in the place of everybody's size stands the noised usual one."""
    usual = max(round(pilot.usual), 4)
    held, nothing = np.full((clients, 2), max(usual // 4, 1)), np.zeros(0)
    told = Told(held, *[nothing] * 5)
    return Pilot(SETTING, np.full(clients, usual), pilot.usual, pilot.scale, pilot.shared, Moments(*[nothing] * 4), 0.0,
                 {}, pilot.names, pilot.pulls, pilot.ridges, told, pilot.held, None,  # type: ignore[arg-type]
                 (nothing, nothing), False, work_of(pilot))  # fmt: skip


def nothing_measured() -> Difference:
    """Moments of single clients' gradients and rows are not asked for."""
    nan = float("nan")
    return Difference(nan, nan, nan, nan, nan, nan, nan, False)


ASSUMES = (
    "whoever runs the advice is trusted with single answers, which are clipped at the clients, summed and noised",
    "noise is drawn from the operating system's randomness",
    "that a client takes part, and how many clients there are, is no secret",
    "each further advice on the same clients spends its epsilon once more",
)
LEFT_OUT = (
    "groups, which need models of single clients",
    "who is worse off, and clients that are told apart",
    "moments: how far true models lie apart, how rows and labels differ",
    "extrapolation to all data: errors are those of models on three quarters of it",
)
NOT_COVERED = (
    "columns, words, classes and fills that were agreed on when the data were read",
    "training what is advised: [train.private] spends an epsilon of its own",
)


def with_privacy(advice: Advice, purse: Purse, pilot: PrivatePilot, found: Weighed, decided: bool) -> Advice:
    """The advice with its promise, and with the words that belong to it."""
    hidden, points = unseen(pilot.score_noise), 100 * unseen(found.noise)
    spent = purse.spent()
    privacy = AdvicePrivacy(
        epsilon=spent, delta=purse.delta, asked=purse.epsilon, clients=purse.clients,
        adjacency="add or remove one client's answers", decided=decided, hidden_loss=hidden, hidden_points=points,
        steps=pilot.steps, accountant=f"dp-accounting {importlib.metadata.version('dp-accounting')}, RDP",
        releases=[ReleasedSum(**each._asdict()) for each in purse.releases], assumptions=list(ASSUMES),
        left_out=list(LEFT_OUT), not_covered=list(NOT_COVERED))  # fmt: skip
    if decided:
        last = "Who would be worse off than alone is not told under privacy."
    else:
        last = (f"The noise hides differences below {hidden:.2g} in log loss ({points:.1f} points): this is what to "
                "fall back on, not a finding; who would be worse off than alone is not told.")  # fmt: skip
    more = [
        f"Private: epsilon = {spent:.3g} at delta = {purse.delta:g} for all that a client answered "
        f"({len(purse.releases)} noised sums; {privacy.accountant}). The noise hides differences below {hidden:.2g} in "
        f"log loss and {points:.1f} points: a point of the path, alone or a mixture that leads by less is not taken.",
        f"The pilot's shared model was made in {pilot.steps} noised step{'s' * (pilot.steps > 1)}: one that is trained "
        "without noise is better than it looks here.",
        f"Left out under privacy: {'; '.join(LEFT_OUT)}.",
        f"The promise does not cover {'; '.join(NOT_COVERED)}.",
        "Step sizes follow from a noised mean of squares: lower lr if training diverges.",
    ]
    groups = "Groups were not looked for"  # the budget's words
    doubts = [*more, *(each for each in advice.doubts if not each.startswith(groups))]
    theory = advice.theory.model_copy(update={"holds": False, "why": "moments are not asked for under privacy"})
    changed: dict[str, Any] = dict(privacy=privacy, answer=[*advice.answer[:2], last], doubts=doubts, theory=theory)
    # A mean with noise may lie below 0; no loss does.
    tried = [each.model_copy(update={"loss": max(each.loss, 0.0)}) for each in advice.tried]
    return advice.model_copy(update=changed | {"notes": [], "tried": tried})
