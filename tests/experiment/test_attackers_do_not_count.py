"""Attackers are named and marked, and their own numbers are in no mean: neither in tuning nor in any table."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from experiment_runs import DATA, make_once, run

from apiece.data import digits
from apiece.evaluate import per_client
from apiece.experiment import fit, resume
from apiece.experiment.measure import _of_honest
from apiece.report.story import read_story
from apiece.report.tables import client_table
from apiece.wrap import attackers_of

PLAN = {"rounds": 2, "evaluate_every": 2, "attack": {"name": "sign_flip", "share": 0.3}}


@pytest.fixture(scope="module")
def attacked_run(shared_place):
    """FedAvg beside Local, whom no attack reaches; three of eleven clients attack, others with every seed."""
    values = {"data": DATA, "train": PLAN, "methods": {"fed_avg": {}, "local": {}}, "baselines": False}
    return make_once(shared_place, "attacked", lambda out: run({**values, "seeds": [0, 1], "tune": 1}, out))


def rows_of(folder, method, seed):
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    return [row for row in rows if (row["method"], row["seed"]) == (method, seed)]


def attackers_in(folder, method, seed):
    return {row["client"] for row in rows_of(folder, method, seed) if row["attacks"]}


def test_attackers_are_those_of_the_seed_under_every_method(attacked_run):
    who = [attackers_in(attacked_run, "fed_avg", seed) for seed in (0, 1)]
    assert [len(some) for some in who] == [3, 3] and who[0] != who[1]
    assert who == [attackers_in(attacked_run, "local", seed) for seed in (0, 1)]


@pytest.mark.parametrize("method", ["fed_avg", "local"])
def test_means_over_clients_are_those_of_the_honest(attacked_run, method):
    record = json.loads((attacked_run / "record.json").read_text())
    for seed in record["methods"][method]["seeds"]:
        honest = [r for r in rows_of(attacked_run, method, seed["seed"]) if not r["attacks"] and not r["new"]]
        scores, sizes = (np.array([row[name] for row in honest]) for name in ("test_accuracy", "test_examples"))
        told = seed["metrics"]["test"]["accuracy"]
        np.testing.assert_allclose(told["mean"], scores[sizes > 0].mean(), rtol=1e-6)
        np.testing.assert_allclose(told["mean_weighted"], scores @ sizes / sizes.sum(), rtol=1e-6)


def test_constants_are_judged_on_the_rows_of_the_honest(attacked_run):
    found = resume(attacked_run)
    place, told = found.place, found.record.constants["constant"].summary["test"]["accuracy"]["mean_weighted"]
    often = np.bincount(np.asarray(place.y)[: place.offsets[place.population]]).argmax()
    _, labels, offsets = place.splits["test"]
    hits = [np.asarray(labels)[offsets[i] : offsets[i + 1]] == often for i in range(place.population)]
    shares = []
    for seed in (0, 1):
        lying = attackers_in(attacked_run, "fed_avg", seed)
        shares.append(np.concatenate([h for i, h in enumerate(hits) if str(place.ids[i]) not in lying]).mean())
    np.testing.assert_allclose(told.mean, np.mean(shares), rtol=1e-9)


def test_attackers_are_named_in_notes_and_marked_in_the_table_of_clients(attacked_run):
    story = read_story(attacked_run)
    for seed in (0, 1):
        note = next(note for note in story.record.notes if note.startswith(f"seed {seed}: 3 clients attack"))
        assert all(client in note for client in attackers_in(attacked_run, "fed_avg", seed))
    both = attackers_in(attacked_run, "fed_avg", 0) & attackers_in(attacked_run, "fed_avg", 1)
    ever = attackers_in(attacked_run, "fed_avg", 0) | attackers_in(attacked_run, "fed_avg", 1)
    marks = {row[0].split(" ")[0]: row[0].partition(" ")[2] for row in client_table(story)[0].rows}
    assert {client for client, mark in marks.items() if "attacks" in mark} == ever
    assert {client for client, mark in marks.items() if mark == "(attacks)"} == both


def test_a_look_at_validation_leaves_attackers_out():
    result = fit("fed_avg", federation=digits(clients=6), **PLAN)
    engine, run, place = result.engine, result.run, result.place
    honest = np.setdiff1d(np.arange(place.population), attackers_of(run.server))
    assert 0 < len(honest) < place.population
    loss = engine.outcomes(run, honest, place.objective.outcomes, ("validation",))["validation"][0]
    offsets = np.concatenate([[0], np.cumsum(place.sizes("validation")[honest])])
    np.testing.assert_allclose(result.curve[-1]["validation_loss"], np.nanmean(per_client(loss, offsets)), rtol=1e-6)


def test_who_is_hurt_is_asked_over_the_seeds_in_which_a_client_is_honest():
    # Three clients of 1, 2 and 1 examples; the first attacks in both seeds, the second in seed 1.
    error, ends = np.array([[9.0, 1.0, 2.0, 3.0], [9.0, 9.0, 9.0, 5.0]]), np.array([0, 1, 3, 4])
    counts = np.array([[False, True, True], [False, False, True]])
    heard = np.repeat(counts, np.diff(ends), axis=1)
    found, alone, left = _of_honest(error, 2 * error, ends, counts, heard)
    assert found.tolist() == [[1, 2, 4]] and alone.tolist() == [[2, 4, 8]] and left.tolist() == [0, 2, 3]
