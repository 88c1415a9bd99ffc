"""The cross-silo cases: heart disease by hospital, exam scores by school, vehicles by sensor.

No paper has this experiment: all claims are made here. Few clients that are always there: 4 hospitals (73 to 181
patients to train on; sick or not, from 32 numbers), 23 sensors (4 to 320 rows, 100 numbers; one of two vehicles) and
139 schools (exam scores, a regression on 28 numbers). Everybody takes part in every round, 10 steps of full
gradients; models are softmax and linear regressions. Of the sensors and schools a fifth never trains: they come later
as new clients, with 1, 3, ... of their examples. What is uncertain here is the deal of the rows more than the
training: everything is repeated on new random splits (60 % train, 20 % validation, 20 % test), and on each split
every method is tuned anew on validation over its grid, trained once and tested once. Splits share rows, so intervals
over them are widened (Nadeau and Bengio 2003). Errors are in points: hundredths of the test examples, or of the
variance of the test targets. "Fewer mistakes", "better": the interval of the difference lies above 0. "Hurt" is
against tuned `local`, by more than a point, as `apiece.evaluate.hurt` defines it, split by split. Because splits share
rows, more of them narrow an interval by a quarter (hospitals) to a half (schools) at the most.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation, source
from apiece.data.splits import SPLITS
from apiece.experiment import contest
from apiece.experiment.spec import make_spec
from apiece.experiment.train import Watch
from apiece.report.figure import Figure
from apiece.reproduce.cross_silo.pictures import clients_panel, figure_of, newcomers_panel
from apiece.reproduce.cross_silo.rivals import FEW, IMPERSONAL, RIDGE, SHOWN, Sizes, rivals
from apiece.reproduce.cross_silo.silos import Silos, compete
from apiece.reproduce.verdict import Claim, Reproduction, effect, over_splits, within

COUNTS = (1, 3, 10, 30, 100)


class Case(NamedTuple):
    """A federation by split, rounds, numbers of splits (quick, full), and step sizes that suit it."""

    what: str
    make: Callable[[int], Federation]
    rounds: int
    splits: tuple[int, int]
    sizes: Sizes


def heart(seed: int) -> Federation:
    """Four hospitals; all of them train. A level that no training row has leaves a column of zeros at the end."""
    federation = source("heart_by_hospital", seed=seed)
    lacking = 32 - federation.train.x.shape[1]
    wide = lambda split: replace(split, x=np.pad(split.x, ((0, 0), (0, lacking))))
    parts = {part: wide(getattr(federation, part)) for part in SPLITS}
    return replace(federation, features=(*federation.features, *["not seen"] * lacking), **parts)


def vehicle(seed: int) -> Federation:
    """Sensors; five of 23 are new, the same in every split."""
    return source("vehicle_by_sensor", seed=seed).hold_out_clients(0.2)


def schools(seed: int) -> Federation:
    """Schools; 28 of 139 are new, the same in every split. The others' statistics scale the features."""
    return source("school_by_school", standardize=False, seed=seed).hold_out_clients(0.2).standardized()


CASES = {
    "hospitals": Case("mistakes", heart, 40, (5, 10), Sizes((0.02, 0.1, 0.5), (0.1, 0.5, 2.0), 0.05)),
    "sensors": Case("mistakes", vehicle, 40, (4, 6), Sizes((0.02, 0.1, 0.3), (0.05, 0.15, 0.5), 0.05)),
    "schools": Case("error", schools, 30, (0, 4), Sizes((0.01, 0.03), (0.01, 0.03, 0.1), 0.02)),
}


def run(quick: bool, watch: Watch) -> Reproduction:
    """`quick`: hospitals and sensors, three methods, fewer splits, and the claims that these are enough for."""
    deals = {name: splits for name, case in CASES.items() if (splits := case.splits[0 if quick else 1])}
    entered = {
        name: {rival: how for rival, how in rivals(CASES[name].sizes).items() if rival in FEW or not quick}
        for name in deals
    }
    total = sum(deals[name] * contest.steps(entered[name], (0,)) for name in deals)
    step = contest.counter(watch, total)
    found = {}
    for name in deals:
        case = CASES[name]
        plan = make_spec({"train": {"rounds": case.rounds, "evaluate_every": case.rounds}}).train
        found[name] = compete(name, case.make, entered[name], plan, deals[name], COUNTS, step)
    claims = [claim for name, silos in found.items() for claim in claims_of(silos, CASES[name].what, quick)]
    settings: dict[str, Any] = {"splits": deals, "rounds": {name: CASES[name].rounds for name in deals}}
    for name, silos in found.items():
        settings[f"methods on the {name}"] = per_method(silos)
        settings[f"chosen on the first split of the {name}"] = chosen(silos)
        if len(silos.places[0].ids) <= 30:
            settings[f"errors of the {name}, points"] = per_client(silos)
        if len(silos.places[0].new):
            settings[f"errors of new {name} by their examples, points"] = per_newcomer(silos)
    notes = [leaders(silos) for silos in found.values()] + ([] if not quick else [QUICK])
    return Reproduction(claims, figure(found), settings, tuple(notes))


QUICK = "A quick run has no schools, and local, FedAvg and Ditto alone: which method leads is for the full run to say."


def claims_of(silos: Silos, what: str, quick: bool) -> list[Claim]:
    """What is claimed of one federation; who is personal and best is chosen by validation, never by test."""
    name, points = silos.name, silos.points
    fewer = f"less {what}" if what == "error" else f"fewer {what}"
    behind = lambda method, other: points(method) - points(other)
    claims = [
        above(f"{name}: FedAvg makes {fewer} than training alone", behind("local", "fed_avg")),
        nobody(f"{name}: clients that Ditto is proved to hurt", silos.proved("ditto")),
    ]
    if quick:
        return claims
    claims.append(above(f"{name}: Ditto makes {fewer} than training alone", behind("local", "ditto")))
    alone = silos.points("local", each_client=True)
    for method, called in (("fed_avg", "FedAvg"), ("ditto", "Ditto")):
        gain = np.nanmean(alone - silos.points(method, each_client=True), axis=1)
        claims.append(above(f"{name}: {called} brings a gain over training alone, every client counting once", gain))
    if len(silos.places[0].new):
        late, shared, own = (silos.newcomers(method) for method in ("local", "fed_avg", "ditto"))
        one = "with one example fares better under Ditto than alone"
        claims.append(above(f"{name}: a new client {one}", late[:, 0] - own[:, 0]))
        more = "with one example fares better under FedAvg than alone with up to 100"
        claims.append(above(f"{name}: a new client {more}", late[:, -1] - shared[:, 0]))
    best = min((m for m in silos.methods if m not in IMPERSONAL), key=silos.validation)
    chosen = f"{name}: the personalized method that validation chooses"
    claims += [
        above(f"{chosen} makes {fewer} than training alone", behind("local", best), best),
        above(f"{chosen} makes {fewer} than FedAvg", behind("fed_avg", best), best),
        nobody(f"{name}: clients that FedAvg is proved to hurt", silos.proved("fed_avg")),
        nobody(f"{name}: clients that RTFA or pFedMe is proved to hurt", silos.proved("rtfa", "pfedme")),
    ]
    risk = lambda method: 100 * silos.hurt(method, "hurt_expected")
    gentle = min(RIDGE, key=silos.validation)
    what = f"{name}: of RTFA, Ditto and pFedMe, the one that validation chooses hurts fewer clients than FedAvg"
    claims.append(above(f"{what} (expected share, points)", risk("fed_avg") - risk(gentle), gentle))
    if silos.places[0].federation.binary:
        ranks = silos.metric("fed_avg", "auc_pooled") - silos.metric("local", "auc_pooled")
        claims.append(above(f"{name}: FedAvg ranks all test examples better than own models do (AUC)", 100 * ranks))
    if len(silos.places[0].new):
        gain = silos.newcomers("fed_avg")[:, -1] - silos.newcomers(best)[:, -1]
        words = "with up to 100 examples fares better under the chosen method than under FedAvg"
        claims.append(above(f"{name}: a new client {words}", gain, best))
    return claims


def above(name: str, points: np.ndarray, who: str = "") -> Claim:
    """That the difference, in points, is above 0 beyond its interval over splits."""
    found = over_splits(points)
    return effect(name + (f" ({who})" if who else ""), "above 0", found, above=0, source="here")


def nobody(name: str, count: int) -> Claim:
    """That the largest number of clients proved hurt in any split is 0."""
    return within(f"{name}, most in a split", 0.0, float(count), source="here")


def per_method(silos: Silos) -> dict[str, dict[str, float]]:
    """Test error and gain in points, who is hurt, and what the task has beyond it; means over splits."""
    table = {}
    regression = silos.places[0].federation.task == "regression"
    local = silos.points("local", each_client=True)
    for method in silos.methods:
        error = over_splits(silos.points(method))
        row = {"test error": error.value, "+-": error.interval[1] - error.value}
        row["gain over local"] = float(np.nanmean(local - silos.points(method, each_client=True)))
        row["proved hurt, most"] = float("nan") if method == "local" else float(silos.proved(method))
        row["expected hurt, %"] = 100 * float(silos.hurt(method, "hurt_expected").mean())
        row["worst client's gain"] = -float(silos.hurt(method, "worst_client").mean())
        for key in ("rmse_pooled", "r2") if regression else ("auc_pooled", "false_accepts_pooled"):
            row[key.removesuffix("_pooled").replace("_", " ")] = float(silos.metric(method, key).mean())
        table[method] = row
    return table


def chosen(silos: Silos) -> dict[str, dict[str, Any]]:
    """What validation chose on the first split, of the options that were tried."""
    tried = lambda result: {key: result.options[key] for key in result.tried[0][0]}
    return {method: tried(result) for method, result in silos.results[0].items() if result.tried}


def per_client(silos: Silos) -> dict[str, dict[str, float]]:
    """A row for each method, a column for each client that trains: test error, mean over splits."""
    place = silos.places[0]
    names = place.ids[: place.population].tolist()
    mean = lambda method: np.nanmean(silos.points(method, each_client=True), axis=0).tolist()
    return {method: dict(zip(names, mean(method), strict=True)) for method in silos.methods}


def per_newcomer(silos: Silos) -> dict[str, dict[str, float]]:
    """A row for each method, a column for each number of examples: test error, mean over splits."""
    heads = [str(count) for count in COUNTS]
    return {
        method: dict(zip(heads, silos.newcomers(method).mean(axis=0).tolist(), strict=True)) for method in silos.methods
    }


def leaders(silos: Silos) -> str:
    """Who has the least test error, and who is not told apart from it; looked at once, for all methods."""
    order = sorted(silos.methods, key=lambda method: silos.points(method).mean())
    gap = lambda method: over_splits(silos.points(method) - silos.points(order[0]))
    close = [method for method in order[1:] if gap(method).interval[0] <= 0]
    clear = [method for method in order[1:] if method not in close]
    mine = over_splits(silos.points(order[0]))
    text = f"{silos.name.capitalize()}: {order[0]} has the least test error, {mine.value:.1f} points"
    text += f"; not told apart from it: {', '.join(close)}" if close else ""
    return text + (f"; clearly behind: {', '.join(clear)}." if clear else ".")


def figure(found: dict[str, Silos]) -> Figure:
    """Panels of clients that train, and of new ones."""
    return figure_of(
        [
            clients_panel(found["hospitals"], "test error, points", SHOWN),
            clients_panel(found["sensors"], "test error, points", SHOWN),
            newcomers_panel(found["sensors"], COUNTS, SHOWN),
            *(newcomers_panel(found[name], COUNTS, SHOWN) for name in ("schools",) if name in found),
        ]
    )
