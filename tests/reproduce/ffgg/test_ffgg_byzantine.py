"""FFGG with liars: the problems, and runs against a NumPy program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.aggregate import rule
from apiece.reproduce.ffgg import liars
from apiece.reproduce.ffgg.liars import ATTACKS, HONEST, errors, one_of, problems
from apiece.wrap.attacks import Scene, attack

pytestmark = pytest.mark.usefixtures("x64")


def pulls_of(f, k, theta):
    j, c = f.tuned()
    return j[k] @ theta - c[k]


def test_the_honest_optimum_is_where_the_honest_balance():
    made, best = problems(2)
    f = made.f
    for k in range(4):
        assert np.linalg.norm(pulls_of(f, k, best[k])[HONEST].mean(0)) < 1e-12
    assert np.abs(pulls_of(f, 0, best[0])).max() < 1e-12 < 0.1 < np.abs(pulls_of(f, 2, best[2])).max()
    spectrum = np.linalg.eigvalsh(f.tuned()[0])
    assert 0.5 - 1e-9 < spectrum.min() < spectrum.max() < 1.5 + 1e-9


def test_a_number_chooses_the_attack():
    rows = jnp.asarray(np.random.default_rng(0).standard_normal((20, 3)))
    lying = jnp.arange(20) >= 16
    scene, memory_key = Scene(rows, ~lying, lying, jnp.arange(20), jax.random.key(0)), jax.random.key(1)

    def by_number(which):
        chosen = one_of(ATTACKS, which)
        return chosen.forge(scene, chosen.init(rows[0], memory_key))[0]

    def by_name(alone):
        memory = alone.init(rows[0], memory_key) if alone.init else ()
        return jnp.broadcast_to(alone.forge(scene, memory)[0] if alone.forge else rows, rows.shape)

    both = lambda: (
        jax.vmap(by_number)(jnp.arange(len(ATTACKS))),
        jnp.stack([by_name(one) for one in ATTACKS.values()]),
    )
    found, expected = jax.jit(both)()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_run_is_the_program(monkeypatch):
    monkeypatch.setattr(liars, "ROUNDS", 10)
    flip, target = attack("sign_flip", scale=3.0, of="honest"), ATTACKS["target flip"]
    found = errors([rule("plain_mean"), rule("median")], {"sign flip": flip, "target flip": target}, 1)
    assert found.shape == (2, 2, 2, 1, 2)
    made, best = problems(1)
    f = made.f
    for r, merge in enumerate((lambda rows: rows.mean(0), lambda rows: np.median(rows, axis=0))):
        for a in (0, 1):
            for k in (0, 1):
                theta = np.zeros(10)
                for _ in range(10):
                    rows = pulls_of(f, k, theta)
                    lies = -3 * rows[HONEST].mean(0) if a == 0 else pulls_of(f._replace(t=-f.t, r=-f.r), k, theta)[16:]
                    rows[16:] = lies
                    theta = theta - 0.3 * merge(rows)
                assert found[r, a, k, 0, -1] == pytest.approx(np.linalg.norm(theta - best[k]), rel=1e-9)
