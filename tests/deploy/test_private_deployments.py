"""Deployed runs under [train.private]: noise is a secret of whoever draws it, and no round is answered twice."""

import json

import numpy as np
import pytest
from deployed_in_process import Deployed

from apiece.data import digits
from apiece.deploy.config import hash_of
from apiece.engines.remote.letter import read_letter, write_letter
from apiece.errors import UserError
from apiece.files import read_json

PRIVATE = {"noise": 0.5, "delta": 0.01, "clip": 0.1, "at": "clients"}
METHODS = {"fed_avg": {"steps": 1, "batch": 8}}


def plan(**private):
    return {"methods": METHODS, "train": {"rounds": 2, "evaluate_every": 2, "private": {**PRIVATE, **private}}}


def saved_sites(folder, clients=3):
    federation = digits(clients=clients)
    for i in range(clients):
        federation.take([i]).save(folder / "data" / f"site-{i}")
    return {f"site-{i}": {"data": str(folder / "data" / f"site-{i}")} for i in range(clients)}


def test_a_server_insists_on_noise_that_is_a_secret(tmp_path):
    with pytest.raises(UserError, match="secret = true"):
        Deployed(tmp_path, saved_sites(tmp_path), plan()).server()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    made = Deployed(folder, saved_sites(folder), plan(secret=True))
    made.record = made.run()
    return made


def visits(deployed, answers):
    """Letters of visits of the first site, or what it answered, by round."""
    found = {}
    for wire in deployed.recorded[1 if answers else 0 :: 2]:
        head = read_letter(wire).head
        if head.get("task") == "visit" and head.get("row") == "fed_avg~0" and head["client"] == 0:
            found.setdefault(head["round"], wire)
    return found


@pytest.mark.thorough
def test_the_record_tells_the_promise_of_a_deployed_run(deployed):
    told = deployed.record.privacy
    assert told.secret and told.at == "clients" and told.clients == 3
    assert any("operating system's randomness" in line for line in told.assumptions)


@pytest.mark.thorough
def test_a_site_does_not_draw_its_noise_from_the_runs_seed(deployed, tmp_path):
    again = Deployed(tmp_path, saved_sites(tmp_path), plan(secret=True))
    again.run()
    first, second = (visits(each, answers=True)[0] for each in (deployed, again))
    assert visits(deployed, answers=False)[0] == visits(again, answers=False)[0]  # the same message
    one, two = (np.frombuffer(read_letter(wire).body[-400:], np.float32) for wire in (first, second))
    # The difference of two noises of deviation noise * clip / sqrt(m) each.
    assert np.std(one - two) == pytest.approx(0.5 * 0.1 / np.sqrt(3) * np.sqrt(2), rel=0.35)


@pytest.mark.thorough
def test_a_round_is_not_answered_to_two_letters(deployed):
    letter = read_letter(visits(deployed, answers=False)[1])
    site = deployed.site(0)
    assert read_letter(site.answer(write_letter(letter.head, letter.body))).head.get("again")
    other = write_letter({**letter.head, "else": 1}, letter.body)
    told = read_letter(site.answer(other)).head
    assert told["task"] == "refusal" and "to another letter" in told["why"]


@pytest.mark.thorough
def test_a_site_refuses_a_server_that_would_have_its_noise_from_the_seed(deployed, tmp_path):
    agreed = read_json(deployed.folder / "site-0" / "agreed.json")
    agreed["train"]["private"]["secret"] = False
    new = Deployed(tmp_path, saved_sites(tmp_path), plan(secret=True))
    site = new.site(0)
    head = site.station.terms.head(task="propose", client=0, row="")
    told = read_letter(site.answer(write_letter(head, json.dumps(agreed).encode()))).head
    assert told["task"] == "refusal" and "secret = true" in told["why"]
    assert site.product is None and hash_of(agreed)
