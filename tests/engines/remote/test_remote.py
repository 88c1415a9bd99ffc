"""The two halves: what each refuses, what each remembers, and that nothing else passes between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.contact import key_of, keys
from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.engines.remote.halves import ClientHalf, ServerHalf, agree, run
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg
from apiece.models import linear, objective

MODEL = linear((2,))
LOSS = objective(MODEL, "regression").loss
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 4, 2)).astype(np.float32), RNG.normal(size=(3, 4)).astype(np.float32)


def halves(factory=fed_avg, seed=0, **options):
    build = lambda hyper, round: factory(LOSS, steps=2, batch=0, **options)
    terms = agree(build, MODEL.init, (X[0], Y[0]), seed)
    return ServerHalf(terms, 3), [ClientHalf(terms, i, X[i], Y[i]) for i in range(3)]


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
    with pytest.raises(
        UserError, match=f"client 0 answered round {server.round - 1}, but this is round {server.round}"
    ):
        server.merge({0: old})


def test_a_client_of_another_model_is_refused(averaging):
    server, _ = averaging
    wide = linear((5,))
    build = lambda hyper, round: fed_avg(objective(wide, "regression").loss)
    stranger = ClientHalf(
        agree(build, wide.init, (np.zeros((1, 5), np.float32), Y[0][:1]), 0), 0, np.zeros((4, 5), np.float32), Y[0]
    )
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
    run(server, clients, 2, Participation())
    kept = jax.tree.map(np.asarray, clients[0].client)
    clients[0].forget()
    assert clients[0].client is None
    clients[0].answer(server.message(0))
    fresh = jax.tree.map(np.asarray, clients[0].client)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(fresh), strict=True))


def test_everybody_builds_the_same_initial_model_from_the_seed():
    one, other = halves(seed=5)[0], halves(seed=5)[0]
    assert one.message(0) == other.message(0)


def test_the_merge_counts_examples_or_clients():
    sizes = (1, 3)
    moved = []
    for uniform in (False, True):
        build = lambda hyper, round: fed_avg(LOSS, steps=1, lr=1.0, batch=0)
        terms = agree(build, MODEL.init, (X[0], Y[0]), 0)
        clients = [ClientHalf(terms, i, X[i][:n], Y[i][:n]) for i, n in enumerate(sizes)]
        server = ServerHalf(terms, 2)
        run(server, clients, 1, Participation(), uniform)
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
    with pytest.raises(UserError, match="client 1 has examples"):
        server.merge({1: wire})
