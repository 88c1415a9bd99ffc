"""Secure aggregation: the sum is the plain one, drop-outs are recovered, and a masked reply looks like chance."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.engines.remote.engine import Remote
from apiece.engines.remote.masks import (
    FRACTION,
    RANGE,
    Masker,
    Public,
    TooFew,
    add_up,
    expand,
    from_ring,
    needed,
    to_ring,
)
from apiece.engines.remote.secure import Secure, SecureClient, SecureRound, masked_schema, run_here
from apiece.engines.world.faults import Faults
from apiece.engines.world.pace import Pace
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, scaffold

CLIENTS, LEAST = 5, 0.6


def masked_sum(values, lost=(), silent=(), least=LEAST):
    """(the sum, masked replies) of a round by hand: `lost` share secrets and send no reply, `silent` do not unmask."""
    everybody = {i: Masker(i, 0, least) for i in range(len(values))}
    roster = {i: one.publish() for i, one in everybody.items()}
    sealed = {i: one.share(roster) for i, one in everybody.items()}
    inbox = lambda i: {j: boxes[i] for j, boxes in sealed.items() if j != i}
    masked = {i: one.mask(values[i], inbox(i)) for i, one in everybody.items() if i not in lost}
    told = {i: everybody[i].unmask(list(masked)) for i in masked if i not in silent}
    return from_ring(add_up(roster, list(roster), masked, told, least)), masked


VALUES = np.random.default_rng(0).normal(size=(CLIENTS, 40)) * 10


def test_the_sum_is_the_plain_one_to_the_precision_of_the_ring():
    total, _ = masked_sum(VALUES)
    np.testing.assert_allclose(total, VALUES.sum(axis=0), atol=CLIENTS * 2.0 ** -(FRACTION + 1))


@pytest.mark.parametrize("gone", [1, 2])
def test_any_drop_out_up_to_the_threshold_is_recovered(gone):
    assert needed(LEAST, CLIENTS) == CLIENTS - 2
    for lost in itertools.combinations(range(CLIENTS), gone):
        total, _ = masked_sum(VALUES, lost=lost)
        left = [i for i in range(CLIENTS) if i not in lost]
        np.testing.assert_allclose(total, VALUES[left].sum(axis=0), atol=1e-7)


def test_who_does_not_unmask_is_not_missed_up_to_the_threshold():
    total, _ = masked_sum(VALUES, lost=(4,), silent=(0,))
    np.testing.assert_allclose(total, VALUES[:4].sum(axis=0), atol=1e-7)
    with pytest.raises(TooFew, match="2 of 5 clients told how to unmask the sum, and 3 are needed"):
        masked_sum(VALUES, silent=(0, 1, 2))


def test_below_the_threshold_clients_unmask_nothing():
    with pytest.raises(TooFew, match="2 of 5 clients are left"):
        masked_sum(VALUES, lost=(0, 1, 2))


def test_a_masked_reply_looks_like_chance():
    """Each of 20,000 equal numbers is masked: bytes are uniform, and two rounds have nothing in common."""
    same = np.full((3, 20_000), 1.25)
    _, first = masked_sum(same)
    _, second = masked_sum(same)
    for i in range(3):
        counts = np.bincount(np.frombuffer(first[i].tobytes(), np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-5
        bits = np.unpackbits(np.frombuffer(first[i].tobytes(), np.uint8) ^ np.frombuffer(second[i].tobytes(), np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    # Without the masks these bytes are all alike: the test would see them.
    plain = np.bincount(np.frombuffer(to_ring(same[0], 3).tobytes(), np.uint8), minlength=256)
    assert stats.chisquare(plain).pvalue < 1e-100


def test_one_mask_less_leaves_a_reply_hidden():
    """The server and all but two clients together do not see the reply of either: the mask of those two hides it."""
    everybody = {i: Masker(i, 0, LEAST) for i in range(3)}
    roster = {i: one.publish() for i, one in everybody.items()}
    sealed = {i: one.share(roster) for i, one in everybody.items()}
    values = np.full(4000, 2.0)
    masked = everybody[0].mask(values, {j: sealed[j][0] for j in (1, 2)})
    known = expand(everybody[2]._mask.agree(roster[0].mask, b"mask"), len(values))
    own = masked - to_ring(values, 3) - known  # what is left: its own mask and that of client 1
    counts = np.bincount(np.frombuffer(own.tobytes(), np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-5


def test_a_client_never_tells_both_secrets_of_another():
    everybody = {i: Masker(i, 0, LEAST) for i in range(4)}
    roster = {i: one.publish() for i, one in everybody.items()}
    sealed = {i: one.share(roster) for i, one in everybody.items()}
    one = everybody[0]
    one.mask(np.ones(3), {j: sealed[j][0] for j in (1, 2, 3)})
    first = one.unmask([0, 1, 2])
    assert one.unmask([2, 1, 0]) == first  # the same question again
    with pytest.raises(UserError, match="it does so once"):
        one.unmask([0, 1, 3])
    with pytest.raises(UserError, match="masks once"):
        one.mask(np.zeros(3), {j: sealed[j][0] for j in (1, 2, 3)})
    assert one.share(roster) == sealed[0]  # the same question again
    with pytest.raises(UserError, match="it does so once"):
        one.share({**roster, 3: Masker(3, 0, LEAST).publish()})


def test_what_is_wrong_is_refused():
    one, two = Masker(0, 0, LEAST), Masker(1, 0, LEAST)
    with pytest.raises(UserError, match="among 2 clients"):
        one.share({0: one.publish(), 1: two.publish()})
    other = Masker(2, 0, LEAST)
    with pytest.raises(UserError, match="keys that are not its own"):
        one.share({0: two.publish(), 1: two.publish(), 2: other.publish()})
    with pytest.raises(UserError, match="the same key"):
        one.share({0: one.publish(), 1: two.publish(), 2: two.publish()})
    roster = {0: one.publish(), 1: two.publish(), 2: other.publish()}
    boxes = {1: two.share(roster), 2: other.share(roster)}
    one.share(roster)
    damaged = bytes([boxes[1][0][0] ^ 1]) + boxes[1][0][1:]
    with pytest.raises(UserError, match="cannot be opened"):
        one.mask(np.ones(2), {1: damaged, 2: boxes[2][0]})
    for values in ([np.nan], [RANGE]):
        with pytest.raises(UserError, match="no masked sum holds them"):
            to_ring(np.array(values), 3)


# On the engine.


def loss(w, batch, key):
    return (batch.weight * ((batch.x @ w - batch.y) ** 2)).sum() / jnp.maximum(batch.weight.sum(), 1) / 2


RNG = np.random.default_rng(3)
SIZES = (4, 9, 6, 12, 5, 7)
X = RNG.normal(size=(sum(SIZES), 3)).astype(np.float32)
Y = (X @ np.array([1.0, -1, 2]) + RNG.normal(size=len(X))).astype(np.float32)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
METHODS = {
    "fed_avg": lambda: fed_avg(loss, lr=0.1, steps=3),
    "ditto": lambda: ditto(loss, lr=0.1, steps=3, lam=0.1),
    "scaffold": lambda: scaffold(loss, lr=0.1, steps=3),
}


def run_of(name, secure=None, rounds=3, weights="examples", faults=None):
    method = METHODS[name]()
    engine = Remote(lambda hyper, round: method, X, Y, OFFSETS, secure=secure, weights=weights, faults=faults)
    run = engine.advance(engine.start(lambda key: jnp.zeros(3), seed=0), rounds)
    return engine, run, engine.personal(run, np.arange(len(SIZES)))


@pytest.mark.parametrize("name, weights", [("fed_avg", "examples"), ("ditto", "examples"), ("scaffold", "uniform")])
def test_a_masked_run_gives_the_numbers_of_the_plain_one(name, weights):
    told = None if weights == "examples" else dict.fromkeys(range(len(SIZES)), 1.0)
    plain, masked = run_of(name, weights=weights), run_of(name, Secure(0.67, told), weights=weights)
    for one, other in zip(jax.tree.leaves(plain[2]), jax.tree.leaves(masked[2]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    assert masked[0].abandoned == 0


def test_a_masked_run_with_drop_outs_gives_the_numbers_of_the_plain_one():
    faults = Faults(dropout=0.1, quorum=4, pace=Pace("zipf", jitter="exponential"))  # late ones, and absent ones
    drawn = [faults.draw(0, round, np.arange(6), 6) for round in range(6)]
    assert min(fate.counts.sum() for fate in drawn) >= 4 and any(not fate.works.all() for fate in drawn)
    plain, masked = run_of("ditto", faults=faults, rounds=6), run_of("ditto", Secure(0.51), faults=faults, rounds=6)
    assert masked[0].abandoned == 0
    np.testing.assert_allclose(plain[1].server, masked[1].server, atol=1e-4)


def test_a_round_of_too_few_is_abandoned_with_a_message(caplog):
    engine, run, _ = run_of("fed_avg", Secure(1.0), faults=Faults(quorum=5, pace=Pace("zipf")), rounds=1)
    assert engine.abandoned == 1 and run.round == 1
    assert not np.asarray(run.server).any()  # as it began
    assert "round 0 is abandoned: 5 of 6 clients sent a masked reply, and secure aggregation needs 6" in caplog.text


def test_the_servers_view_holds_no_plain_reply():
    """All that a server is given in a round, bytes and tables, searched for each client's reply."""
    schema = schema_of("reply", np.zeros(30, np.float32))
    replies = {i: RNG.normal(size=30).astype(np.float32) for i in range(4)}
    how, seen = Secure(0.67), []
    clients = {i: SecureClient(how, i, schema) for i in replies}
    server = SecureRound(how, 7, replies, schema)

    def ask(stage, i, head):
        if stage == "visit":
            plain = encode(schema, replies[i], {"round": 7, "examples": 10 + i})
            said = ({}, clients[i].mask(7, head, plain))
        elif stage == "keys":
            said = (clients[i].keys(7), b"")
        else:
            said = ((clients[i].shares if stage == "shares" else clients[i].unmask)(7, head), b"")
        seen.append((stage, i, repr(said[0]).encode(), said[1]))
        return said

    run_here(server, ask)
    mean, weight = server.mean()
    wanted = sum((10 + i) * replies[i].astype(np.float64) for i in replies) / 46
    assert weight == 46.0
    np.testing.assert_allclose(mean, wanted, atol=1e-6)
    everything = b"".join(head + body for _, _, head, body in seen)
    for i, reply in replies.items():
        for value in reply:
            weighted = np.float64((10 + i) * np.float64(value))
            for form in (value.tobytes(), weighted.tobytes(), to_ring(np.array([weighted]), 4).tobytes()):
                assert form not in everything
    for stage, i, _, body in seen:
        if stage == "visit":
            row = decode(masked_schema(schema), body)[0]["masked"]
            assert np.abs(from_ring(row)).max() > 1e6  # nothing near the numbers that it hides
            assert not np.allclose(from_ring(row)[:-1] / (10 + i), replies[i])


def test_letters_of_a_stranger_are_refused_by_name():
    schema = schema_of("reply", np.zeros(3, np.float32))
    server = SecureRound(Secure(0.67), 0, range(4), schema)
    for head in ({}, {"keys": 3}, {"keys": ["zz", "zz"]}, {"keys": ["ab", "ab"]}):
        with pytest.raises(UserError):
            server.take("keys", 0, head, b"")
    for head in ({}, {"sealed": {"x": "ab"}}, {"sealed": {"1": "ab"}}):
        with pytest.raises(UserError):
            server.roster = {i: Public(b"", b"") for i in range(4)}
            server.take("shares", 0, head, b"")
    with pytest.raises(UserError):
        server.take("visit", 0, {}, b"nonsense")
    client = SecureClient(Secure(0.67), 0, schema)
    with pytest.raises(UserError, match="has no keys of round 3"):
        client.ready(3)
