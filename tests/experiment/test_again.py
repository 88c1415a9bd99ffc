"""The same work again, with other fractions, seeds or data, compiles and traces nothing; and keeps nobody's data."""

import gc
import weakref
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.data import digits
from apiece.experiment import bench
from apiece.experiment.fit import fit
from apiece.shelf import Shelf, frozen


@pytest.fixture
def compiled():
    """The names of all that is traced, lowered or compiled."""
    found = []

    def listen(name, seconds, **more):
        if name.startswith("/jax/core/compile/"):
            found.append(name.removeprefix("/jax/core/compile/"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


PAIR = SimpleNamespace(
    init=lambda key, x: {"w": jnp.zeros((10, x.shape[1]))},
    apply=lambda params, x: x.astype(jnp.float32) @ params["w"].T,
)


def all_of(result):
    """What can be asked of a fit."""
    asked = result.evaluate(), result.personal("2"), result.predict("2", np.zeros((3, 64), np.uint8))
    return asked, result.curve[-1]["validation_loss"]


@pytest.mark.parametrize(
    ("method", "model", "how"),
    [("ditto", None, {}), ("knn_per", PAIR, {}), ("scaffold", None, {"arrivals": {"active": 2}})],
    ids=["by name", "one's own model", "arrivals"],
)
def test_a_second_fit_compiles_nothing(compiled, method, model, how):
    federation, other = digits(clients=4), digits(clients=4, seed=0)
    run = lambda federation, **more: fit(method, model, federation, rounds=2, **how, **more)
    first = all_of(run(federation, options={"lr": 0.1, "steps": 2}))
    assert compiled, "the listener hears"
    compiled.clear()
    second = all_of(run(federation, seed=1, options={"lr": 0.2, "steps": 2}))
    third = all_of(run(other, options={"lr": 0.1, "steps": 2}))
    assert compiled == []
    assert first[1] != second[1]
    jax.tree.map(np.testing.assert_array_equal, first[0][1:], third[0][1:])


def test_other_fixed_options_and_other_kinds_of_plan_have_engines_of_their_own():
    federation = digits(clients=4)
    bench.ENGINES.clear()
    for options, how in (({}, {}), ({"steps": 3}, {}), ({}, {"weights": "uniform"}), ({"lr": 0.5}, {"models_gb": 1.0})):
        fit("fed_avg", federation=federation, rounds=1, options=options, **how)
    assert len(bench.ENGINES) == 3


def test_engines_that_are_kept_hold_no_data():
    federation = digits(clients=4)
    result = fit("fed_avg", federation=federation, rounds=1)
    held = weakref.ref(result.place.x), weakref.ref(result.engine.train)
    del result
    gc.collect()
    assert [each() for each in held] == [None, None] and len(bench.ENGINES)


def test_a_key_that_cannot_be_compared_is_never_kept():
    shelf = Shelf(most=3)
    made = [shelf.take(("a", SimpleNamespace()), object) for _ in range(2)]
    assert made[0] is not made[1] and not len(shelf)
    with pytest.raises(TypeError):
        frozen([SimpleNamespace()])
    assert frozen(jnp.arange(2)) == frozen(np.arange(2, dtype=np.int32)) != frozen(np.arange(2.0))
