"""The two halves: what each refuses, what each remembers, and that nothing else passes between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.contact import key_of, keys
from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.engines.remote.halves import ClientHalf, ServerHalf, agree, data_of
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, scaffold
from apiece.models import linear, objective

MODEL = linear((2,))
LOSS = objective(MODEL, "regression").loss
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 4, 2)).astype(np.float32), RNG.normal(size=(3, 4)).astype(np.float32)


def halves(factory=fed_avg, seed=0, **options):
    build = lambda hyper, round: factory(LOSS, steps=2, batch=0, **options)
    terms = agree(build, MODEL.init, (X[0], Y[0]), seed)
    return ServerHalf(terms, 3), [ClientHalf(terms, i, data_of(X[i], Y[i])) for i in range(3)]


def play(server, clients, rounds, weights=None):
    for _ in range(rounds):
        server.merge({client.i: client.answer(server.message(client.i)) for client in clients}, weights)


@pytest.fixture(scope="module")
def averaging():
    return halves()


def test_a_reply_carries_an_update_the_round_and_how_many_examples(averaging):
    server, clients = averaging
    reply, header = decode(server.terms.reply, clients[1].answer(server.message(1)))
    assert header == {"round": server.round, "examples": 4}
    assert schema_of("reply", reply).leaves == schema_of("reply", server.terms.params).leaves


def test_a_reply_to_another_round_is_refused(averaging):
    server, clients = averaging
    old = clients[0].answer(server.message(0))
    server.merge({0: old})
    before = jax.tree.map(np.asarray, server.server)
    server.merge({0: old})
    assert (
        server.refusals[-1].why == f"client 0 answered round {server.round - 2}, but this is round {server.round - 1}"
    )
    jax.tree.map(np.testing.assert_array_equal, server.server, before)


def test_a_client_of_another_model_is_refused(averaging):
    server, _ = averaging
    wide = linear((5,))
    build = lambda hyper, round: fed_avg(objective(wide, "regression").loss)
    terms = agree(build, wide.init, (np.zeros((1, 5), np.float32), Y[0][:1]), 0)
    stranger = ClientHalf(terms, 0, data_of(np.zeros((4, 5), np.float32), Y[0]))
    with pytest.raises(UserError, match="another schema"):
        stranger.answer(server.message(0))


def test_a_reply_from_a_client_of_no_examples_never_matters(averaging):
    server, clients = averaging
    before = jax.tree.map(np.asarray, server.server)
    wires = {i: clients[i].answer(server.message(i)) for i in (0, 1)}
    nan = jax.tree.map(lambda leaf: leaf * np.nan, before)
    wires[2] = encode(server.terms.reply, nan, {"round": server.round, "examples": 0})
    server.merge(wires)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server.server))


def test_a_client_that_forgot_enrolls_anew():
    server, clients = halves(ditto)
    play(server, clients, 2)
    clients[0].settle(1)
    kept = jax.tree.map(np.asarray, clients[0].client)
    clients[0].forget()
    assert clients[0].client is None
    play(server, clients[:1], 1)
    clients[0].settle(2)
    fresh = jax.tree.map(np.asarray, clients[0].client)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(fresh), strict=True))


def test_everybody_builds_the_same_initial_model_from_the_seed():
    one, other = halves(seed=5)[0], halves(seed=5)[0]
    assert one.message(0) == other.message(0)


def test_the_merge_counts_examples_or_clients():
    sizes = (1, 3)
    moved = []
    for weights in (None, {0: 1.0, 1: 1.0}):
        build = lambda hyper, round: fed_avg(LOSS, steps=1, lr=1.0, batch=0)
        terms = agree(build, MODEL.init, (X[0], Y[0]), 0)
        clients = [ClientHalf(terms, i, data_of(X[i][:n], Y[i][:n])) for i, n in enumerate(sizes)]
        server = ServerHalf(terms, 2)
        play(server, clients, 1, weights)
        moved.append(np.asarray(server.server["b"])[0])
    means = [Y[i][:n].mean() for i, n in enumerate(sizes)]  # one step of size 1 from zero moves b to the mean of y
    np.testing.assert_allclose(moved, [(means[0] + 3 * means[1]) / 4, (means[0] + means[1]) / 2], rtol=1e-5)


def test_keys_are_of_who_and_when():
    stream = keys(3).client
    seen = {tuple(jax.random.key_data(key_of(stream, r, i)).tolist()) for r in range(5) for i in range(5)}
    assert len(seen) == 25
    streams = {tuple(jax.random.key_data(stream).tolist()) for seed in (0, 1) for stream in keys(seed)}
    assert len(streams) == 8
    by_hand = jax.random.fold_in(jax.random.fold_in(stream, 4), 2)
    assert (key_of(stream, jnp.int32(4), jnp.int32(2)) == by_hand).all()


@pytest.mark.parametrize("header", [{}, {"round": -1}, {"round": 2**40}])
def test_a_message_without_a_sensible_round_is_refused(averaging, header):
    server, clients = averaging
    with pytest.raises(UserError, match="the message has round"):
        clients[0].answer(encode(server.terms.message, server.server, header))


@pytest.mark.parametrize("claimed", [-5, 2**40])
def test_a_client_cannot_claim_an_absurd_number_of_examples(averaging, claimed):
    server, _ = averaging
    wire = encode(server.terms.reply, server.terms.params, {"round": server.round, "examples": claimed})
    server.merge({1: wire})
    assert "client 1 has examples" in server.refusals[-1].why


@pytest.mark.parametrize("spoil", [lambda wire: wire[:-3], lambda wire: b"nonsense", lambda wire: b""])
def test_a_malformed_reply_is_refused_and_does_not_end_the_round(spoil):
    server, clients = halves()
    alone, _ = halves()
    wires = {i: clients[i].answer(server.message(i)) for i in range(3)}
    server.merge(wires | {1: spoil(wires[1])})
    alone.merge({i: wires[i] for i in (0, 2)})
    assert [(refusal.client, refusal.round) for refusal in server.refusals] == [(1, 0)]
    jax.tree.map(np.testing.assert_array_equal, server.server, alone.server)


def test_a_reply_that_is_not_finite_is_refused():
    server, _ = halves()
    reply = jax.tree.map(lambda leaf: np.full_like(leaf, np.inf), server.terms.params)
    server.merge({0: encode(server.terms.reply, reply, {"round": 0, "examples": 4})})
    assert "not finite" in server.refusals[0].why and server.round == 1


def test_a_client_commits_its_state_when_its_reply_counted():
    server, clients = halves(scaffold)
    first = clients[0].answer(server.message(0))
    assert clients[0].client is None  # nobody has said yet that it counted
    server.merge({0: first})
    clients[0].personal(server.message(0))
    counted = jax.tree.map(np.asarray, clients[0].client)
    clients[0].answer(server.message(0))
    server.merge({})  # lost on its way
    clients[0].personal(server.message(0))
    jax.tree.map(np.testing.assert_array_equal, clients[0].client, counted)


def test_what_is_a_clients_own_progress_stays_when_its_reply_is_lost():
    server, clients = halves(ditto)
    clients[0].answer(server.message(0))
    server.merge({})
    clients[0].personal(server.message(0))
    assert clients[0].client is not None
