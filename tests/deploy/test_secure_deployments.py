"""Deployed runs with masked replies: the numbers of the plain run, and nobody's reply in what the server is sent."""

import numpy as np
import pytest
from deployed_in_process import Deployed

import apiece
from apiece.data import digits
from apiece.engines.remote.letter import read_letter, write_letter
from apiece.errors import UserError

pytestmark = pytest.mark.thorough
METHODS = {"local": {"steps": 1}, "ditto": {"steps": 2, "batch": 8}}
CLIENTS = 4


def saved_sites(folder):
    federation = digits(clients=CLIENTS)
    for i in range(CLIENTS):
        federation.take([i]).save(folder / "data" / f"site-{i}")
    return {f"site-{i}": {"data": str(folder / "data" / f"site-{i}")} for i in range(CLIENTS)}


def deployed_run(folder, secure, **config):
    plan = {"rounds": 2, "evaluate_every": 2, **({"secure": secure} if secure is not None else {})}
    return Deployed(folder, saved_sites(folder), {"methods": METHODS, "train": plan}, **config)


def model_of(made, i):
    found = apiece.open(made.folder / made.names[i] / "run").personal(made.names[i], method="ditto")
    return np.concatenate([np.ravel(found[name]) for name in sorted(found)])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    made = deployed_run(tmp_path_factory.mktemp("plain"), None)
    made.run()
    return made


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    made = deployed_run(tmp_path_factory.mktemp("masked"), {"least": 0.6})
    made.run()
    return made


def sent_to_server(made, task="visit"):
    found = []
    for wire in made.recorded[1::2]:
        letter = read_letter(wire)
        if letter.head.get("task") == task and letter.head.get("row") == "ditto~0":
            found.append(letter)
    return found


def test_sites_have_the_models_of_the_plain_run(plain, masked):
    for i in range(CLIENTS):
        np.testing.assert_allclose(model_of(masked, i), model_of(plain, i), atol=1e-4)
    rounds = [line for line in masked.log if line["event"] == "round" and line["row"] == "ditto~0"]
    assert [line["answers"] for line in rounds] == [CLIENTS] * 2


def test_what_the_server_is_sent_is_not_the_plain_reply(plain, masked):
    replies = [letter.body[-4 * 64 :] for letter in sent_to_server(plain)]
    everything = b"".join(masked.recorded)
    assert len(replies) == 2 * CLIENTS and len(sent_to_server(masked)) == 2 * CLIENTS
    for reply in replies:
        pieces = [reply[at : at + 8] for at in range(0, len(reply), 8)]
        assert not any(piece in everything for piece in pieces if piece.strip(b"\0"))


def test_a_site_that_dies_with_its_keys_drops_out_and_the_round_goes_on(tmp_path, plain):
    made = deployed_run(tmp_path, {"least": 0.6}, deadline=3.0)
    answer = made.recorded_answer

    def dies(i, wire):
        if i == 2 and read_letter(wire).head.get("task") == "visit" and read_letter(wire).head.get("row") == "ditto~0":
            made.restart(2)  # its secrets were in its memory alone
        return answer(i, wire)

    made.post.answer = {i: (lambda wire, i=i: dies(i, wire)) for i in range(CLIENTS)}
    made.run()
    rounds = [line for line in made.log if line["event"] == "round" and line["row"] == "ditto~0"]
    assert [line["answers"] for line in rounds] == [CLIENTS - 1] * 2
    assert any(line["event"] == "refused" and "has no keys of round" in line["why"] for line in made.log)


def test_too_few_sites_abandon_the_round_with_the_reason(tmp_path):
    made = deployed_run(tmp_path, {"least": 1.0}, deadline=3.0)
    answer = made.recorded_answer
    lost = lambda wire: read_letter(wire).head.get("task") == "unmask"
    made.post.answer = {i: (lambda wire, i=i: b"no" if i == 1 and lost(wire) else answer(i, wire)) for i in range(4)}
    made.run()
    abandoned = [line["why"] for line in made.log if line["event"] == "abandoned"]
    assert abandoned[0].endswith("3 of 4 clients told how to unmask the sum, and secure aggregation needs 4 "
                                 "(train.secure.least)")  # fmt: skip
    assert len(abandoned) == 2


def test_a_site_answers_no_round_twice_and_gives_no_second_keys(masked):
    site = masked.site(0)
    letters = [read_letter(wire) for wire in masked.recorded[0::2]]
    mine = [one for one in letters if one.head.get("client") == 0 and one.head.get("row") == "ditto~0"]
    visit = next(one for one in reversed(mine) if one.head["task"] == "visit")
    told = read_letter(site.answer(write_letter({**visit.head, "else": 1}, visit.body))).head
    assert told["task"] == "refusal" and "to another letter" in told["why"]
    keys = next(one for one in reversed(mine) if one.head["task"] == "keys")
    told = read_letter(site.answer(write_letter({**keys.head, "else": 1}, keys.body))).head
    assert told["task"] == "refusal" and "no more keys" in told["why"]


def test_a_server_that_waits_for_nobody_is_refused(tmp_path):
    with pytest.raises(UserError, match="set buffer = 0"):
        deployed_run(tmp_path, {}, buffer=2).server()
