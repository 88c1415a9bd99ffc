"""A run over a post that loses, repeats, delays and damages letters, between processes that die: the same run."""

import functools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_network import JUDGE, MODEL, OFFSETS, SIZES, TERMS, Network, X, Y, as_rows, flat, method

from apiece.engines.remote.exchange import Pace
from apiece.engines.remote.letter import read_letter, write_letter
from apiece.engines.remote.post import InProcess
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError

ROUNDS = 4


@functools.cache
def simulated(name, rounds=ROUNDS, seed=1, **options):
    build, hyper = method(name, **options)
    engine = Vectorized(build, X, Y, OFFSETS, held_out={"test": (X, Y, OFFSETS)})
    run = engine.advance(engine.start(MODEL.init, seed, hyper), rounds)
    return engine, run, flat(as_rows(engine.personal(run, np.arange(len(SIZES)))))


@pytest.mark.parametrize("name", ["fed_avg", "ditto", "scaffold", "local"])
def test_a_run_over_letters_is_the_simulated_run(tmp_path, name):
    network = Network(tmp_path, name)
    run = network.run(ROUNDS)
    np.testing.assert_allclose(flat(network.models(run)), simulated(name)[2], atol=1e-5)
    assert network.engine.visited(run).tolist() == [ROUNDS] * len(SIZES)


class Troubled(InProcess):
    """What may happen to a letter on its way, as it is told; at most `most` times."""

    def __init__(self, answer, fates=()):
        super().__init__(answer)
        self.fates, self.late = list(fates), []

    def collect(self, seconds):
        asked, self.waiting = self.waiting, []
        back, self.late = self.late, []
        for i, letter in asked:
            fate = self.fates.pop(0) if self.fates else "fine"
            if fate == "lost there":
                continue
            answer = self.answer[i](letter)
            if fate == "lost back":
                continue
            if fate == "late":
                self.late.append((i, answer))
                continue
            if fate == "damaged":
                answer = answer[:-40] + bytes([answer[-40] ^ 1]) + answer[-39:]
            back += [(i, answer)] * (2 if fate == "twice" else 1)
        return back


@settings(max_examples=8, deadline=None)
@given(fates=st.lists(st.sampled_from(["lost there", "lost back", "late", "twice", "damaged", "fine"]), max_size=30))
def test_trouble_with_letters_changes_nothing(tmp_path_factory, fates):
    network = Network(tmp_path_factory.mktemp("net"), "scaffold", post=lambda answer: Troubled(answer, fates))
    run = network.run(ROUNDS)
    np.testing.assert_allclose(flat(network.models(run)), simulated("scaffold")[2], atol=1e-5)


def test_a_damaged_answer_is_refused_logged_and_asked_for_again(tmp_path):
    network = Network(tmp_path, "fed_avg", post=lambda answer: Troubled(answer, ["damaged"]))
    run = network.run(1)
    refused = [line for line in network.log if line["event"] == "refused"]
    assert run.refused == 1 and "digest" in refused[0]["why"] and refused[0]["client"] == 0
    assert run.flight["visited"].tolist() == [1, 1, 1, 1]


class Killed(Exception):
    pass


class Deadly(InProcess):
    """The server dies after so many answers came in."""

    left = None

    def collect(self, seconds):
        found = super().collect(seconds)
        if self.left is None:
            return found
        if self.left < len(found):
            found, self.left = found[: self.left], -1
        else:
            self.left -= len(found)
        return found or self._die()

    def _die(self):
        if self.left == -1:
            raise Killed
        return []


@pytest.mark.parametrize("after", [1, 3, 6, 11])
def test_a_killed_server_goes_on_and_no_work_is_done_twice(tmp_path, after):
    network = Network(tmp_path, "scaffold", post=Deadly)
    network.post.left = after
    with pytest.raises(Killed):
        network.run(ROUNDS)
    network.post.left = None
    network.post.waiting = []
    network.engine = network.server()
    run = network.run(ROUNDS)
    assert run.round == ROUNDS
    np.testing.assert_allclose(flat(network.models(run)), simulated("scaffold")[2], atol=1e-5)


def test_a_letter_that_comes_twice_is_answered_with_the_same_bytes_and_one_from_the_past_is_refused(tmp_path):
    network = Network(tmp_path, "scaffold")
    state = network.engine.start(MODEL.init, 1, network.hyper)
    half = network.engine._server(state)
    letter = network.engine.exchange.letter("visit", "mine", 0, half.message(0), {"round": 0})
    first = network.station(0).answer(letter)
    before = (tmp_path / "client-0" / "memory").read_bytes()
    again = network.station(0).answer(letter)
    assert read_letter(again).body == read_letter(first).body and read_letter(again).head["again"]
    assert (tmp_path / "client-0" / "memory").read_bytes() == before
    half.round = 3
    network.station(0).answer(network.engine.exchange.letter("visit", "mine", 0, half.message(0), {"round": 3}))
    half.round = 1
    old = network.engine.exchange.letter("visit", "mine", 0, half.message(0), {"round": 1})
    assert "round 1 is over here" in read_letter(network.station(0).answer(old)).head["why"]


def test_the_same_round_by_another_letter_starts_from_the_state_before(tmp_path):
    network, other = Network(tmp_path / "a", "scaffold"), Network(tmp_path / "b", "scaffold")
    run, clean = network.run(2), other.run(2)
    half = network.engine._server(run)
    lost = network.engine.exchange.letter("visit", "mine", 0, half.message(0), {"round": 2, "note": "lost"})
    network.station(0).answer(lost)  # its answer reached nobody, and the server wrote the letter anew
    after, wanted = network.engine.advance(run, 1), other.engine.advance(clean, 1)
    np.testing.assert_array_equal(flat(network.models(after)), flat(other.models(wanted)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": "0.9"}, "runs apiece 0.9, and this is 0.1: install the same minor version"),
        ({"run": "other"}, "speaks of the run 'other'"),
        ({"spec": "beef"}, "follows another spec"),
        ({"client": 2}, "this letter is for client 2"),
        ({"task": "execute"}, "knows no task 'execute'"),
        ({"round": -1}, "a whole number from 0"),
        ({"round": "x"}, "a whole number from 0"),
    ],
)
def test_a_letter_that_is_not_for_this_site_is_refused_with_a_reason(tmp_path, change, why):
    network = Network(tmp_path, "fed_avg")
    network.engine.start(MODEL.init, 1, network.hyper)
    head = TERMS.head(task="visit", row="mine", client=0, round=0) | change
    answer = read_letter(network.station(0).answer(write_letter(head, network.engine._half.message(0))))
    assert answer.head["task"] == "refusal" and why in answer.head["why"]
    assert network.log[-1]["event"] == "refused"
    assert not (tmp_path / "client-0").exists(), "nothing was written"


@settings(max_examples=100, deadline=None)
@given(wire=st.binary(max_size=200) | st.binary(max_size=60).map(lambda body: write_letter({"task": "visit"}, body)))
def test_any_bytes_are_answered_with_a_refusal(tmp_path_factory, wire):
    network = Network.__new__(Network)
    network.folder, network.seed, network.log = tmp_path_factory.getbasetemp(), 1, []
    network.name, network.options = "fed_avg", ()
    assert read_letter(Network.station(network, 0).answer(wire)).head["task"] == "refusal"


class Absent(InProcess):
    """Some clients are not there."""

    gone = frozenset()

    def present(self):
        return set(self.answer) - set(self.gone)

    def send(self, letters):
        super().send({i: letter for i, letter in letters.items() if i not in self.gone})


def test_a_round_ends_at_its_deadline_with_those_who_answered(tmp_path):
    network = Network(tmp_path, "scaffold", post=Absent, pace=Pace(deadline=0.5, least=0.5, again=0.1, patience=1))
    run = network.run(1)
    network.post.gone = {1}
    run = network.engine.advance(run, 1)
    network.post.gone = set()
    run = network.engine.advance(run, 1)
    assert network.engine.visited(run).tolist() == [3, 2, 3, 3]
    assert [line["clients"] for line in network.log if line["event"] == "late"] == [[1]]
    there = [line["clients"] for line in network.log if line["event"] == "present"]
    assert there == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]], "the log says who is there whenever that changes"


def test_with_too_few_a_round_is_abandoned_and_leaves_everybody_as_before(tmp_path):
    class Deaf(Absent):
        def present(self):
            return set(self.answer)

    pace = Pace(deadline=0.4, least=0.75, again=0.1, patience=1)
    network, other = Network(tmp_path / "a", "scaffold", post=Deaf, pace=pace), Network(tmp_path / "b", "scaffold")
    run, clean = network.run(1), other.run(1)
    network.post.gone = {0, 1}
    after = network.engine.advance(run, 1)
    assert network.log[-1]["answers"] == 0 and any(line["event"] == "abandoned" for line in network.log)
    assert after.round == 2
    np.testing.assert_allclose(flat(network.models(after)), flat(other.models(clean)), atol=1e-6)


def test_nobody_there_ends_in_an_error_that_says_what_to_do(tmp_path):
    network = Network(tmp_path, "fed_avg", post=Absent, pace=Pace(patience=0.3))
    network.post.gone = {0, 1, 2, 3}
    with pytest.raises(UserError, match="only 0 of 4 sites were there within"):
        network.run(1)


def test_a_client_that_lost_its_memory_enrolls_again(tmp_path):
    network = Network(tmp_path, "scaffold")
    run = network.run(2)
    (tmp_path / "client-2" / "memory").unlink()
    run = network.engine.advance(run, 2)
    assert np.isfinite(flat(network.models(run))).all() and network.engine.visited(run).tolist() == [4] * 4


def test_who_judges_its_own_model_sends_sums_that_give_the_same_means(tmp_path):
    network = Network(tmp_path, "ditto")
    run = network.run(ROUNDS)
    engine, state, _ = simulated("ditto")
    ids = np.arange(len(SIZES))
    mine = network.engine.outcomes(run, ids, JUDGE.outcomes, ("test",))["test"]
    theirs = engine.outcomes(state, ids, JUDGE.outcomes, ("test",))["test"]
    for a, b in zip(mine, theirs, strict=True):
        for i in ids:
            one, other = a[OFFSETS[i] : OFFSETS[i + 1]], np.asarray(b)[OFFSETS[i] : OFFSETS[i + 1]]
            np.testing.assert_allclose([one.mean(), one.std()], [other.mean(), other.std()], rtol=1e-3, atol=1e-5)


class Garbage(InProcess):
    """One client answers nonsense of several kinds."""

    def collect(self, seconds):
        found = super().collect(seconds)
        return [(i, self.spoilt(wire) if i == 3 else wire) for i, wire in found]

    kinds = 0

    def spoilt(self, wire):
        letter = read_letter(wire)
        self.kinds += 1
        head, body = dict(letter.head), letter.body
        return [
            b"random bytes",
            write_letter(head, body.replace(body[-4:], np.float32(np.nan).tobytes())),
            write_letter(head | {"round": 0, "task": "visit"}, body[:-4]),
            write_letter(head | {"round": -1}, body),
            write_letter(head, bytes(50_000_000)),
        ][self.kinds % 5]


def test_a_client_that_sends_garbage_is_counted_and_the_others_go_on(tmp_path):
    pace = Pace(deadline=60, least=0.5, again=30, patience=2)
    network, began = Network(tmp_path, "fed_avg", post=Garbage, pace=pace), time.monotonic()
    run = network.run(4)
    assert time.monotonic() - began < 30, "nobody waits for it"
    assert run.refused >= 5 and network.engine.visited(run).tolist() == [4, 4, 4, 0]
    assert sum(line["event"] == "given_up" for line in network.log) == 4, "a round each"
    reasons = " ".join(line["why"] for line in network.log if line["event"] == "refused")
    assert all(
        word in reasons for word in ("no letter", "not finite", "more than this letter may have", "answers round")
    )


def test_a_client_that_never_knows_the_terms_is_given_up(tmp_path):
    class Ignorant(InProcess):
        def collect(self, seconds):
            refusal = write_letter(TERMS.head(task="refusal", needs="terms", client=3))
            return [(i, refusal if i == 3 else wire) for i, wire in super().collect(seconds)]

    network = Network(tmp_path, "fed_avg", post=Ignorant, pace=Pace(deadline=60, again=30, patience=2))
    network.engine.exchange.introduction = b"{}"
    began = time.monotonic()
    run = network.run(1)
    assert network.engine.visited(run).tolist() == [1, 1, 1, 0] and time.monotonic() - began < 30
    assert [line["client"] for line in network.log if line["event"] == "given_up"] == [3]


def test_where_nobody_waits_garbage_is_counted_and_left_out_too(tmp_path):
    network = Network(tmp_path, "fed_avg", post=Garbage, pace=Pace(deadline=60, buffer=2, again=30, patience=2))
    run = network.run(4)
    assert network.engine.visited(run)[3] == 0 and network.engine.visited(run).sum() == 8
    assert run.refused == sum(line["event"] == "refused" for line in network.log) >= 4


def test_a_letter_that_was_tampered_with_is_refused_and_logged(tmp_path):
    network = Network(tmp_path, "fed_avg")
    half = network.engine._server(network.engine.start(MODEL.init, 1, network.hyper))
    wire = bytearray(network.engine.exchange.letter("visit", "mine", 0, half.message(0), {"round": 0}))
    wire[len(wire) // 2] ^= 1
    assert "digest" in read_letter(network.station(0).answer(bytes(wire))).head["why"]
    assert network.log[-1]["event"] == "refused" and not (tmp_path / "client-0").exists()


def test_where_nobody_waits_so_many_replies_are_merged_at_a_time(tmp_path):
    network = Network(tmp_path, "scaffold", pace=Pace(deadline=20, buffer=2, again=5, patience=2))
    run = network.run(6)
    assert run.round == 6 and network.engine.visited(run).sum() == 12
    assert np.isfinite(flat(network.models(run))).all()
