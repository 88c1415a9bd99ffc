"""A client's state is committed when its reply counted: late, lost and refused replies leave no two pasts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import IN_ROUNDS, MAKE

from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.faults import Faults
from apiece.engines.world.pace import Pace
from apiece.methods import ditto, l2gd, scaffold, self_fl
from apiece.testing.clients import Punctual
from apiece.wrap import guarded

# Six scalar quadratics L_i(w) = a_i (w - b_i)^2 / 2, one example each: x = a, y = b.
CURVES = np.array([1.0, 2.0, 0.5, 1.5, 0.8, 1.2], np.float32)
CENTRES = np.array([1.0, -1.0, 2.0, 0.3, -0.5, 0.4], np.float32)
OPTIMUM = float((CURVES * CENTRES).sum() / CURVES.sum())
OFFSETS = np.arange(7)
FAULTS = {
    "deadline": Faults(deadline=1.5, pace=Pace("lognormal", jitter="exponential")),
    "quorum": Faults(quorum=2, pace=Pace(jitter="exponential")),
    "drop-outs": Faults(dropout=0.4, quorum=3, pace=Pace(jitter="exponential")),
}


def loss(w, batch, key):
    return (batch.weight * batch.x * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def start(key):
    return jnp.array(0.0)


def end(engine, rounds):
    run = engine.advance(engine.start(start, 0), rounds)
    return run, jax.tree.map(np.asarray, run.server)


def build(factory, **options):
    return lambda hyper, round: factory(loss, **options)


SCAFFOLD = build(scaffold, steps=5, lr=0.1, batch=0)
L2GD = build(l2gd, lam=1.0, p=0.5, lr=0.02, batch=0)


@pytest.mark.thorough
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("engine", IN_ROUNDS)
def test_scaffold_finds_the_true_optimum_whoever_is_late(engine, faults):
    compiled = engine == "vectorized"  # and so quick
    made = MAKE[engine](SCAFFOLD, CURVES, CENTRES, OFFSETS, faults=faults, **({"block": 100} if compiled else {}))
    run, (x, c) = end(made, 1500 if compiled else 300)
    assert abs(x - OPTIMUM) < (1e-4 if compiled else 2e-2)
    np.testing.assert_allclose(c, np.mean(run.rows), atol=1e-4)  # the server's control variate is the clients' mean


@pytest.fixture(scope="module")
def calm():
    """Where L2GD's mean is when everybody is always there."""
    run, _ = end(Vectorized(L2GD, CURVES, CENTRES, OFFSETS, block=100), 1500)
    return float(run.server.x)


@pytest.mark.thorough
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_mean_of_l2gd_stays_the_mean_of_its_clients_and_goes_where_it_goes_without_faults(faults, calm):
    engine = Vectorized(L2GD, CURVES, CENTRES, OFFSETS, block=100, faults=faults)
    run = engine.start(start, 0)
    seen = []
    for _ in range(30):
        run = engine.advance(run, 100)
        seen.append(float(run.server.x))
        mine = np.asarray(run.rows[0])[run.known]
        np.testing.assert_allclose(run.server.x, mine.mean(), atol=1e-4)
    assert abs(np.mean(seen[10:]) - calm) < 0.1
    assert np.ptp(seen[10:]) < 0.5


def test_ditto_keeps_its_own_progress():
    late = Faults(deadline=1.0, pace=Pace("given", times=(2.0,) * 6))
    engine = Vectorized(build(ditto, lam=0.0, steps=10, lr=0.1, batch=0), CURVES, CENTRES, OFFSETS, faults=late)
    run, x = end(engine, 100)
    assert x == 0  # no reply ever counted
    np.testing.assert_allclose(engine.personal(run, np.arange(6)), CENTRES, atol=1e-3)


def test_a_client_whose_first_reply_was_late_enrolls_again():
    late = Faults(deadline=1.0, pace=Pace("given", times=(2.0,) * 6))
    for engine in IN_ROUNDS:
        run, _ = end(MAKE[engine](SCAFFOLD, CURVES, CENTRES, OFFSETS, faults=late), 3)
        assert not run.known.any()


def spoiled(method):
    """The method whose client 2 always answers nonsense, which a guard refuses."""

    def merge(server, replies, cohort, key):
        lies = lambda leaf: (cohort.ids == 2).reshape(-1, *[1] * (leaf.ndim - 1))
        fraction = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # a count cannot be no number
        spoil = lambda leaf: jnp.where(lies(leaf), jnp.nan, leaf) if fraction(leaf) else leaf
        return guard.merge_counted(server, jax.tree.map(spoil, replies), cohort, key)

    guard = guarded(method)
    return guard._replace(merge=lambda *given: merge(*given)[0], merge_counted=merge)


class Together(Punctual):
    """With room for as many as there are here."""

    def in_flight(self):
        return self.buffer


@pytest.mark.thorough
@pytest.mark.parametrize("engine", MAKE)
@pytest.mark.parametrize("factory", [scaffold, self_fl, ditto])
def test_a_guard_inside_a_wrapper_is_heard_by_the_client_it_refused(engine, factory):
    options = dict(batch=0) | (
        dict(rule="bayes", population=6, tune_steps=2, refits=2) if factory is self_fl else dict(steps=2)
    )
    made = lambda hyper, round: spoiled(factory(loss, **options))
    here = (made, CURVES, CENTRES, OFFSETS)
    together = {} if engine in IN_ROUNDS else {"arrivals": Together(((0, 1, 2, 3, 4, 5),) * 3, buffer=6)}
    machine = MAKE[engine](*here, **together)
    run = machine.advance(machine.start(start, 0), 3)
    kept = factory is ditto
    assert run.known.tolist() == [True, True, kept, True, True, True]
    assert int(run.server.rejected.not_finite) == 3


def test_refused_replies_agree_on_every_engine():
    made = lambda hyper, round: spoiled(scaffold(loss, steps=2, batch=0))
    here = (made, CURVES, CENTRES, OFFSETS)
    first, *others = [end(MAKE[engine](*here), 4)[0] for engine in IN_ROUNDS]
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), first.server, other.server)
        np.testing.assert_allclose(first.rows, other.rows, atol=1e-6)
