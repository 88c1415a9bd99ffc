"""What the page's script knows about every client: the record's tables, column by column, and nothing computed anew."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apiece.experiment.spec import BASELINES
from apiece.experiment.tables import ClientMeans
from apiece.report.embed import script_safe
from apiece.report.look import COLOURS, look, mark, shortened, thinned
from apiece.report.plots import plain
from apiece.report.score import METRICS, Metric
from apiece.report.story import Story

MOST = 20_000  # clients in a page; of more, some, evenly in the order of their gains. All are in clients.parquet
ROOM = 5_200_000  # bytes for them: with Bokeh's scripts, plots and tables a page stays below 8 MB
SAMPLE = 400  # clients by which it is found how much room one takes
SHARES = ("accuracy", "auc", "f1", "balanced_accuracy")  # their differences are told in points
LESS = ("loss", "rmse", "error")  # less is better
PARTNERS = 5  # from whom a client learns most
CELLS = 250_000  # label counts in a page
REFERENCES = {"local": "training alone", "fed_avg": "the shared model (fed_avg)", "ftfa": "fine-tuning (ftfa)"}


def client_data(story: Story) -> dict[str, Any] | None:
    """All columns by name; None where no method has a client.

    Scores are in their own units; `points` is by what a difference is multiplied to be told as a gain.
    """
    order = [name for name in story.order if name in story.clients]
    if not order:
        return None
    clients = len(story.clients[order[0]].ids)
    most = min(MOST, clients)
    if clients > SAMPLE:
        few = _shown(story, order, SAMPLE)
        most = min(most, ROOM * len(few) // len(script_safe(_data(story, order, few))))
    return _data(story, order, _shown(story, order, most))


def _data(story: Story, order: list[str], rows: NDArray) -> dict[str, Any]:
    """All columns of some clients."""
    first = story.clients[order[0]]
    data: dict[str, Any] = {
        "all": len(first.ids),
        "ids": [shortened(first.ids[k], 60) for k in rows],
        "train": plain(first.train[rows]),
        "test": plain(first.test[rows]),
        "new": first.new[rows].astype(int).tolist(),
        "same_size": same_size(first),
        "colours": list(COLOURS),
        "seeds": story.seeds,
        "methods": [_method(story, name) for name in order],
        "metrics": [_metric(story, key) for key in story.scores],
        "references": _references(story),
        "scores": {key: _columns(found, order, first.ids, rows) for key, found in story.scores.items()},
    }
    if first.attacks.size:
        data["attacks"] = plain(first.attacks[rows])
    if constant := _constant(story, order, rows):
        data["scores"][story.metric.key] |= constant
    data |= _profile(story, first.ids, rows) | _verdicts(story, order, first.ids, rows)
    return data | _learns_from(story, order, data["ids"])


def same_size(clients: ClientMeans) -> bool:
    """Whether training clients have about as many examples, so that a picture against them would show nothing."""
    sizes = clients.train[~clients.new]
    return bool(not sizes.size or sizes.max() < 1.5 * max(1.0, sizes.min()))


def _shown(story: Story, order: list[str], most: int) -> NDArray:
    """Which clients are in the page: all, or some; who is proved to be hurt always is."""
    clients = story.clients[story.record.ranking.beside_local or order[0]]
    values = np.where(np.isfinite(clients.gain), clients.gain, np.nan_to_num(clients.score))
    rows = np.sort(thinned(values, most))
    named = {client for method in story.methods.values() if method.harm for client in method.harm.named}
    lost = [k for k, client in enumerate(clients.ids) if client in named] if len(rows) < len(clients.ids) else []
    return np.union1d(rows, np.array(lost, rows.dtype))


def _method(story: Story, name: str) -> dict[str, Any]:
    style = list(story.methods).index(name)
    colour, dash = look(style)
    harm = story.methods[name].harm
    named = [] if harm is None else [shortened(client, 60) for client in harm.named]
    return {"name": shortened(name, 60), "style": style, "colour": colour, "dash": [int(part) for part in dash.split()],
            "mark": mark(style)[0], "hollow": mark(style)[1], "hurt": named,
            "so_far": bool(harm and harm.so_far)}  # fmt: skip


def describe_metric(story: Story, key: str) -> Metric:
    """How a column of the client table is called and written."""
    if key == story.metric.key:
        return story.metric
    if key == story.of_task.key:
        return story.of_task
    higher = story.record.metrics.get(key, key not in LESS)
    share = key in SHARES
    return Metric(
        key, METRICS.get(key, key), "%" if share else "", 100.0 if share else 1.0, higher, 1 if share else None
    )


def _metric(story: Story, key: str) -> dict[str, Any]:
    metric = describe_metric(story, key)
    points, unit = points_of(story, key)
    return {"key": key, "label": metric.label, "unit": metric.unit, "factor": metric.factor, "higher": metric.higher,
            "places": metric.places, "points": points, "gain_unit": unit}  # fmt: skip


def points_of(story: Story, key: str) -> tuple[float, str]:
    """(by what differences of a metric are multiplied to be told as gains, what they are then called).

    What the client table calls points of its gains is found again from the gains and the scores in it.
    """
    if key in SHARES:
        return 100.0, "points"
    alone = story.clients.get(story.baseline)
    if key == story.metric.key and alone is not None:
        for name, mine in story.clients.items():
            apart, gain = np.abs(mine.score - _aligned(alone, mine.ids)), np.abs(mine.gain)
            there = np.flatnonzero(np.isfinite(apart) & np.isfinite(gain) & (apart > 0))
            if name != story.baseline and there.size:
                at = there[apart[there].argmax()]
                return float(gain[at] / apart[at]), "points"
    return 1.0, "in its own unit"


def _references(story: Story) -> list[dict[str, str]]:
    """Over what gains can be told: the baseline first, then the usual three."""
    here = [name for name in BASELINES if name in story.clients]
    found = [{"key": name, "label": REFERENCES.get(name, name)} for name in here if name != story.baseline]
    if story.record.baseline is None and story.baseline not in story.clients:
        return found
    return [{"key": story.baseline, "label": REFERENCES.get(story.baseline, story.baseline)}, *found]


def _constant(story: Story, order: list[str], rows: NDArray) -> dict[str, list[Any]]:
    """What the baseline scores where it is no method: a score less its gain."""
    if story.baseline in story.clients or story.record.baseline is None:
        return {}
    points, _ = points_of(story, story.metric.key)
    sign = 1 if story.metric.higher else -1
    first = story.clients[order[0]]
    return {story.baseline: plain((first.score - sign * first.gain / points)[rows])}


def _aligned(clients: ClientMeans, ids: list[str]) -> NDArray:
    """Scores in the order of these ids."""
    if clients.ids == ids:
        return clients.score
    at = dict(zip(clients.ids, clients.score.tolist(), strict=True))
    return np.array([at.get(client, np.nan) for client in ids])


def _columns(found: dict[str, ClientMeans], order: list[str], ids: list[str], rows: NDArray) -> dict[str, list[Any]]:
    return {shortened(name, 60): plain(_aligned(found[name], ids)[rows]) for name in order}


def _profile(story: Story, ids: list[str], rows: NDArray) -> dict[str, Any]:
    """Who the clients are: labels, places, groups, partners."""
    table = story.profile
    if table is None:
        return {}
    place = {client: k for k, client in enumerate(table["client"].to_pylist())}
    mine = [place.get(ids[k], -1) for k in rows]
    if min(mine, default=-1) < 0:
        return {}
    about, found = story.about_clients, table.take(mine)
    data: dict[str, Any] = {"likeness_of": about.get("likeness_of", ""), "group_names": len(about.get("groups", []))}
    if "validation_examples" in table.column_names:
        data["validation"] = found["validation_examples"].to_pylist()
    if "labels" in table.column_names and len(rows) * len(about["classes"]) <= CELLS:
        data |= {"classes": [shortened(name, 24) for name in about["classes"]], "labels": found["labels"].to_pylist()}
    if "group" in table.column_names:
        data |= {"group": found["group"].to_pylist(), "group_similarity": about["groups"]}
        data |= {"map_x": plain(found["map_x"].to_numpy()), "map_y": plain(found["map_y"].to_numpy())}
        at = {client: k for k, client in enumerate(found["client"].to_pylist())}
        data["partners"] = [[at.get(one, -1) for one in some] for some in found["partners"].to_pylist()]
        data["alike"] = [[round(one, 3) for one in some] for some in found["partner_similarity"].to_pylist()]
    if "similarity" in table.column_names:
        matrix = np.array(table["similarity"].to_pylist())[np.ix_(mine, mine)]
        order = np.lexsort((found["map_x"].to_numpy(), found["group"].to_numpy()))
        data |= {"similarity": matrix[np.ix_(order, order)].round(2).tolist(), "similarity_order": order.tolist()}
    return data


def _learns_from(story: Story, order: list[str], ids: list[str]) -> dict[str, Any]:
    """Of methods that choose whom a client learns from: the five others that move its model most, by their share."""
    place, found = {client: k for k, client in enumerate(ids)}, {}
    for name in order:
        said = story.methods[name].partners
        if said is None or len(said.clients) < 2:
            continue
        who: list[list[int] | None] = [None] * len(ids)
        shares: list[list[float]] = [[] for _ in ids]
        for row, client in enumerate(said.clients):
            weights = np.nan_to_num(np.array(said.weights[row], np.float64))
            weights = weights / weights.sum() if weights.sum() > 0 else weights
            others = [k for k in np.argsort(-weights, kind="stable").tolist() if k != row and weights[k] > 0]
            others = [k for k in others if shortened(said.clients[k], 60) in place][:PARTNERS]
            if (at := place.get(shortened(client, 60))) is not None:
                who[at] = [place[shortened(said.clients[k], 60)] for k in others]
                shares[at] = [round(float(weights[k]), 4) for k in others]
        found[shortened(name, 60)] = {"from": who, "weight": shares}
    return {"learns_from": found} if found else {}


def _verdicts(story: Story, order: list[str], ids: list[str], rows: NDArray) -> dict[str, Any]:
    """What is believed of every client under every method, and how personal its model is."""
    table = story.verdicts
    if table is None:
        return {}
    data: dict[str, Any] = {"risk": {}, "believed": {}, "degree": {}}
    methods = table["method"].to_numpy(zero_copy_only=False)
    for name in order:
        mine = table.filter(methods == name)
        place = {client: k for k, client in enumerate(mine["client"].to_pylist())}
        at = [place.get(ids[k], -1) for k in rows]
        for key, column in (("risk", "risk"), ("believed", "believed_gain"), ("degree", "degree")):
            values = np.append(mine[column].to_numpy().astype(np.float64), np.nan)[at]
            if np.isfinite(values).any():
                data[key][shortened(name, 60)] = plain(values)
    return {key: value for key, value in data.items() if value}
