"""Detectors of a word: where they set out from, and their false accepts at equal false rejects."""

from typing import NamedTuple

import numpy as np

from apiece.engines.engine import RunState
from apiece.engines.simulation.base import Simulation
from apiece.evaluate import binary_per_client, false_accepts
from apiece.experiment.build import Arena, arena
from apiece.experiment.contest import After, Result
from apiece.models import Stage, cnn, objective
from apiece.reproduce.self_fl.speakers import GROUPS, Speakers, in_parts, speakers
from apiece.reproduce.self_fl.state import shared_margins, shared_model
from apiece.reproduce.self_fl.warm_start import warm_started
from apiece.reproduce.verdict import Mean, ratio_of

WARM, SHARED, OWN, VARIANCES = "warm", "shared", "own", "variances"
PARTS = 4  # clients of each type, where there are twenty


class Ground(NamedTuple):
    """Where it happens: the speakers, an arena of users, by whom detectors are judged, one with the groups as clients
    and one with each group dealt to four clients; all warm-started."""

    people: Speakers
    users: Arena
    types: Arena
    parts: Arena


def prepared(users: int, pool_steps: int) -> Ground:
    """The same speakers for every seed; the pooled model is trained anew from each."""
    people = speakers(pooled=20, users=users, new=5)
    plain = cnn(people.federation.train.x.shape[1:], 2, [Stage(8), Stage(16)], hidden=(32,))
    judge = objective(plain, people.federation.task)
    warm = warm_started(plain, judge, people.pool, steps=pool_steps, lr=0.05, batch=32)
    federations = people.federation, people.clusters, in_parts(people.clusters, PARTS)
    return Ground(people, *(arena(each, warm, judge) for each in federations))


def margins_of(at: Ground) -> After:
    """Asked of every trained run: margins of the warm start and of the server's model (None where there is none), and
    the variances of the clients, where the server has them."""
    look = shared_margins(at.users)

    def after(engine: Simulation, run: RunState) -> dict[str, np.ndarray | None]:
        model = shared_model(run)
        told = getattr(run.server, "variances", None)
        return {WARM: look(run.params), SHARED: None if model is None else look(model), VARIANCES: told}

    return after


def false_accept_rates(at: Ground, result: Result) -> dict[str, np.ndarray]:
    """[seeds, groups]: mean false accepts of a group's users, of the warm start, the shared model and the own ones.

    At 5% false rejects: of a user's 25 or so positives one may be lost, so that a single bad recording decides nothing.
    """
    _, labels, offsets = at.users.splits["test"]
    offsets = offsets[: at.users.population + 1]
    positive = np.asarray(labels)[: offsets[-1]] == 1

    def rates(margins: np.ndarray) -> np.ndarray:
        by_user = binary_per_client(margins[: offsets[-1]], positive, offsets, false_accepts)
        return np.array([by_user[at.people.group == g].mean() for g in range(len(GROUPS))])

    own = [rates(outcome.arrays["test_margin"]) for outcome in result.outcomes.values()]
    found = {WARM: np.array([rates(asked[WARM]) for asked in result.after]), OWN: np.array(own)}
    if result.after[0][SHARED] is not None:
        found[SHARED] = np.array([rates(asked[SHARED]) for asked in result.after])
    return found


def overall(found: dict[str, np.ndarray], kind: str) -> Mean:
    """Mean false accepts over all groups, relative to the warm start's."""
    return ratio_of(found[kind].mean(axis=1), found[WARM].mean(axis=1))


def groups(found: dict[str, np.ndarray], kind: str) -> list[Mean]:
    """The same for each group; NaN for one where the warm start has no false accepts."""
    pairs = zip(found[kind].T, found[WARM].T, strict=True)
    return [ratio_of(values, warm) if warm.any() else Mean(np.nan, np.nan, (np.nan, np.nan)) for values, warm in pairs]
