"""Who the clients are: what each of them holds, who is like whom, and how personal everybody's models are.

Two more tables of a run folder: profile.parquet has a row per client, verdicts.parquet one per method and client.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from apiece.evaluate.hurt import Hurt
from apiece.experiment.baseline import alone_among
from apiece.experiment.build import Arena
from apiece.experiment.folder import RunFolder
from apiece.experiment.measure import Trials
from apiece.experiment.variant import Variant
from apiece.files import read_rows

CLASSES = 100  # more kinds of labels are not counted
BINS = 10  # of the targets of a regression
LARGEST = 200e6  # bytes of a file of models that is looked at once more
DIRECTIONS, COMPONENTS = 64, 8  # models are projected, and what is left of them is cut to its main components
MATRIX = 300  # clients whose similarities are kept one by one; of more, those of groups
PARTNERS = 5
CLEAR = 0.25  # of the silhouette: below it there are no groups


def client_profile(place: Arena, judged: NDArray, run: RunFolder, rows: Mapping[str, Variant], seed: int) -> pa.Table:
    """A row per judged client: its examples, its labels, its place among the others, its group, who is most like it.

    Likeness is that of the models that clients train alone with the first seed: the cosine of their differences from
    the mean model. `labels` counts training examples by class or, of a regression, by tenth of everybody's targets.
    The table's metadata say what the classes are, what likeness is made of, and how alike groups are.
    """
    names, counts = _labels(place, judged)
    columns: dict[str, Any] = {
        "client": place.ids[judged].tolist(),
        "new": judged >= place.population,
        **{f"{part}_examples": place.sizes(part)[judged] for part in ("train", *place.splits)},
    }
    if names:
        columns["labels"] = counts.astype(np.int32).tolist()
    about: dict[str, Any] = {"classes": names}
    alone = [name for name in alone_among(rows) if run.models(name, seed).exists()]
    found = likeness(_models(run.models(alone[0], seed), place.ids[judged])) if alone else None
    if found is not None:
        ids = np.array(columns["client"], object)
        columns |= {"group": found.group.astype(np.int32), "map_x": found.places[:, 0], "map_y": found.places[:, 1]}
        columns["partners"] = ids[found.partners].tolist()
        columns["partner_similarity"] = found.partner_similarity.astype(np.float32).tolist()
        if len(judged) <= MATRIX:
            columns["similarity"] = found.similarity.astype(np.float32).tolist()
        about |= {"likeness_of": f"models of {alone[0]}, seed {seed}", "groups": found.groups.round(4).tolist()}
    return pa.table(columns).replace_schema_metadata({"apiece": json.dumps(about)})


def _labels(place: Arena, judged: NDArray) -> tuple[list[str], NDArray]:
    """(what the kinds of labels are called, how many of each a client trains on); no names where there are no kinds."""
    y, none = np.asarray(place.y), np.zeros((len(judged), 0))
    if y.ndim != 1 or place.own_outcomes:
        return [], none
    if place.federation.task == "regression":
        scaling = place.target_scaling
        y = y if scaling is None else scaling.in_own_units(y)
        edges = np.unique(np.quantile(y, np.linspace(0, 1, BINS + 1)))
        if len(edges) < 3:
            return [], none
        kinds = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(edges) - 2)
        names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    else:
        names, kinds = [str(name) for name in place.federation.classes], y.astype(np.int64)
        if not 0 < len(names) <= CLASSES or kinds.min(initial=0) < 0 or kinds.max(initial=0) >= len(names):
            return [], none
    owner = np.repeat(np.arange(len(place.ids)), place.sizes("train"))
    size = len(place.ids) * len(names)
    return names, np.bincount(owner * len(names) + kinds, minlength=size).reshape(-1, len(names))[judged]


class Likeness(NamedTuple):
    """Who is like whom among clients that are described by vectors."""

    places: NDArray  # in two dimensions, the main ones
    group: NDArray  # 0, 1, ...: the largest first; all 0 where there are no clear groups
    similarity: NDArray  # [clients, clients], or empty if they are many
    partners: NDArray  # who is most like each, the most alike first
    partner_similarity: NDArray
    groups: NDArray  # the mean similarity between groups, and within


def likeness(vectors: NDArray | None) -> Likeness | None:
    """Places, groups and similarities of clients; None of fewer than three, or if all are the same.

    >>> around = lambda at: np.array(at) + np.random.default_rng(0).normal(0, 0.1, (8, 2))
    >>> found = likeness(np.concatenate([around([5.0, 0.0]), around([-5.0, 0.0])]))
    >>> len(set(found.group[:8])) == len(set(found.group[8:])) == 1 < len(set(found.group))
    True
    >>> set(found.partners[0].tolist()) <= set(range(8))
    True
    """
    if vectors is None or len(vectors) < 3 or not np.isfinite(vectors).all():
        return None
    around = vectors - vectors.mean(axis=0)
    if not np.abs(around).max() > 0:
        return None
    main, sizes, _ = np.linalg.svd(around, full_matrices=False)
    places = (main * sizes)[:, :COMPONENTS]
    places = np.pad(places, ((0, 0), (0, max(0, 2 - places.shape[1]))))
    places *= np.where(places[np.abs(places).argmax(axis=0), np.arange(places.shape[1])] < 0, -1.0, 1.0)
    group = _groups(places)
    length = np.linalg.norm(around, axis=1, keepdims=True)
    unit = around / np.where(length > 0, length, 1.0)
    many = len(unit) > MATRIX
    similarity = np.zeros((0, 0)) if many else np.clip(unit @ unit.T, -1, 1)
    partners, alike = _partners(unit)
    sums = np.stack([unit[group == k].sum(axis=0) for k in range(group.max() + 1)])
    count = np.bincount(group).astype(np.float64)
    # The mean over pairs: within a group without those of a client and itself.
    itself = np.array([(unit[group == k] ** 2).sum() for k in range(group.max() + 1)])
    pairs = np.outer(count, count) - np.diag(count)
    groups = (sums @ sums.T - np.diag(itself)) / np.where(pairs > 0, pairs, np.nan)
    return Likeness(places[:, :2], group, similarity, partners, alike, np.clip(groups, -1, 1))


def _groups(places: NDArray) -> NDArray:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    count, best, found = len(places), CLEAR, np.zeros(len(places), np.int64)
    for groups in range(2, min(6, (count - 1) // 3) + 1):
        labels = KMeans(groups, n_init=4, random_state=0).fit_predict(places)
        clear = silhouette_score(places, labels, sample_size=min(count, 1000), random_state=0)
        if clear > best:
            best, found = clear, labels
    order = np.argsort(-np.bincount(found), kind="stable")
    return np.argsort(order)[found]


def _partners(unit: NDArray) -> tuple[NDArray, NDArray]:
    """The most similar others, block by block: of all pairs there may be too many."""
    few = min(PARTNERS, len(unit) - 1)
    found, alike = [], []
    for first in range(0, len(unit), 1000):
        block = unit[first : first + 1000] @ unit.T
        block[np.arange(len(block)), first + np.arange(len(block))] = -np.inf
        near = np.argpartition(-block, few - 1, axis=1)[:, :few]
        order = np.argsort(-np.take_along_axis(block, near, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(near, order, axis=1))
        alike.append(np.take_along_axis(block, found[-1], axis=1))
    return np.concatenate(found), np.concatenate(alike)


def _models(path: Path, ids: NDArray, whole: bool = False) -> NDArray | None:
    """Clients' models as vectors, projected if they are long; None if they are too large, or not all there."""
    if not path.exists() or path.stat().st_size > LARGEST:
        return None
    with read_rows(path) as (get, names, about):
        row = {client: at for at, client in enumerate(about["clients"])}
        leaves = sorted(name for name in names if name.split("/")[0] == "personal")
        if not leaves or any(client not in row for client in ids):
            return None
        mine = [row[client] for client in ids]
        flat = [np.asarray(get(name))[mine].reshape(len(mine), -1).astype(np.float64) for name in leaves]
    found = np.concatenate(flat, axis=1)
    if whole or found.shape[1] <= DIRECTIONS:
        return found
    return found @ np.random.default_rng(0).normal(0, DIRECTIONS**-0.5, (found.shape[1], DIRECTIONS))


def verdict_rows(place: Arena, trials: Trials, run: RunFolder, harms: Mapping[str, Hurt]) -> pa.Table:
    """A row per method and judged client: what is believed of its loss over the baseline, and how personal it is.

    `believed_gain` is the posterior mean of its gain, `risk` the probability that it is hurt, `proved` whether that is
    proved. `degree` is |p - g| / (|p - g| + |p - a|), with p the client's model, g FedAvg's and a its own trained
    alone, mean over seeds: 0 is the model of all, 1 is training alone; NaN where models cannot be compared.
    """
    tables = []
    for name, by_seed in trials.items():
        who = next(iter(by_seed.values())).judged
        believed = {key: np.full(len(who), np.nan) for key in ("believed_gain", "risk")}
        proved, harm = np.zeros(len(who), bool), harms.get(name)
        if harm is not None:
            heard = np.any([one.counts(place.population) for one in by_seed.values()], axis=0)
            believed["believed_gain"][heard], believed["risk"][heard] = -harm.posterior_mean, harm.risk
            proved[heard] = harm.proved
        degrees = [_degree(run, name, seed, place.ids[who]) for seed in by_seed]
        tables.append(
            pa.table(
                {
                    "method": [name] * len(who),
                    "client": place.ids[who].tolist(),
                    **believed,
                    "proved": proved,
                    "degree": np.mean(degrees, axis=0),
                }
            )
        )
    return pa.concat_tables(tables)


def _degree(run: RunFolder, name: str, seed: int, ids: NDArray) -> NDArray:
    mine, shared, alone = (_models(run.models(one, seed), ids, whole=True) for one in (name, "fed_avg", "local"))
    if mine is None or shared is None or alone is None or not mine.shape == shared.shape == alone.shape:
        return np.full(len(ids), np.nan)
    away, apart = np.linalg.norm(mine - shared, axis=1), np.linalg.norm(mine - alone, axis=1)
    total = away + apart
    return np.where(total > 0, away / np.where(total > 0, total, 1.0), np.nan)
