"""One client's reply that is no number: refused and counted on every engine, the others' work goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import IN_ROUNDS, MAKE

from apiece.engines.simulation.together import advance_together
from apiece.methods import ditto, fed_avg, scaffold

CURVES = np.array([1.0, 2.0, 0.5, 1.5, 0.8, 1.2], np.float32)
CENTRES = np.array([1.0, -1.0, 2.0, 0.3, -0.5, 0.4], np.float32)
BROKEN = 2
OFFSETS = np.arange(7)


def loss(w, batch, key):
    return (batch.weight * batch.x * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def spoiled(method, everybody=False):
    """The method whose client 2 (or all) always works itself into what is no number."""

    def local(client, message, data, key):
        after, reply = method.local(client, message, data, key)
        broken = (data.x[data.start] == CURVES[BROKEN]) | everybody
        return after, jax.tree.map(lambda leaf: jnp.where(broken, jnp.nan, leaf), reply)

    return method._replace(local=local)


def built(factory, **how):
    return lambda hyper, round: spoiled(factory(loss, steps=2, lr=hyper.get("lr", 0.1), batch=0), **how)


def made(engine, factory, **how):
    return MAKE[engine](built(factory, **how), CURVES, CENTRES, OFFSETS)


def played(engine, rounds=4, hyper=None):
    return engine.advance(engine.start(lambda key: jnp.array(0.0), 0, hyper), rounds)


@pytest.mark.parametrize("engine", MAKE)
@pytest.mark.parametrize("factory", [fed_avg, scaffold, ditto])
def test_a_reply_that_is_no_number_is_refused_and_counted(engine, factory):
    run = played(made(engine, factory))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.server))
    assert run.refused == (4 if engine in IN_ROUNDS else int((made(engine, factory).visited(run) > 0)[BROKEN]))


@pytest.mark.parametrize("engine", MAKE)
@pytest.mark.parametrize("factory", [scaffold, ditto])
def test_whose_reply_was_refused_is_as_it_was_before(engine, factory):
    run = played(made(engine, factory))
    kept = factory is ditto  # its own progress, whoever heard of it
    assert run.known[BROKEN] == kept
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(run.rows))


@pytest.mark.parametrize("factory", [fed_avg, scaffold, ditto])
def test_engines_in_rounds_agree_about_what_was_refused(factory):
    first, *others = [played(made(engine, factory)) for engine in IN_ROUNDS]
    for other in others:
        assert first.refused == other.refused and first.known.tolist() == other.known.tolist()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), first.server, other.server)
        known = np.flatnonzero(first.known)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[known], b[known], atol=1e-6), first.rows, other.rows)  # noqa: B023


def test_runs_in_one_program_refuse_as_one_by_one():
    engine = made("vectorized", scaffold)
    begin = lambda lr: engine.start(lambda key: jnp.array(0.0), 0, {"lr": lr})
    several = advance_together(engine, [begin(0.1), begin(0.2)], 4, 2)
    for found, lr in zip(several, (0.1, 0.2), strict=True):
        alone = engine.advance(begin(lr), 4)
        assert found.refused == alone.refused == 4 and found.known.tolist() == alone.known.tolist()
        np.testing.assert_allclose(found.rows, alone.rows, atol=1e-6)


def test_where_everybody_diverges_the_method_is_seen_to():
    run = played(made("vectorized", fed_avg, everybody=True))
    assert not np.isfinite(run.server) and run.refused == 0
