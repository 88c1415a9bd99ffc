"""Pooled questions: every engine gives the same answers."""

import jax
import numpy as np
import pytest

from apiece.client.draw import whole
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.methods import fed_avg
from apiece.protocol import Question

# Three clients that train, the second without examples, and one that is only known.
X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], np.float32)
OFFSETS = np.array([0, 2, 2, 5, 6])
HELD_OUT = {"test": (X[:4], Y[:4], np.array([0, 1, 2, 3, 4]))}
HERE = (lambda hyper, round: fed_avg(lambda params, batch, key: 0.0), X, Y, OFFSETS)
HOW = dict(population=3, held_out=HELD_OUT)
ENGINES = {
    "vectorized": lambda: Vectorized(*HERE, **HOW),
    "asynchronous": lambda: Asynchronous(*HERE, arrivals=Speeds(active=2), **HOW),
    "remote": lambda: Remote(*HERE, **HOW),
}


def sums(message, data, key):
    """What a scale is made of: how many, the sum, and the sum of squares of what is left after the message."""
    mine = whole(data)
    away = mine.y - message["centre"]
    return {"count": mine.weight.sum(), "sum": (mine.weight * away).sum(), "square": (mine.weight * away**2).sum()}


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]()


def test_answers_come_back_summed_over_those_who_train(engine):
    away = Y[:5] - 3
    found = engine.ask(Question(sums), {"centre": np.float32(3)})
    assert {name: float(value) for name, value in found.items()} == {
        "count": 5.0, "sum": float(away.sum()), "square": float((away**2).sum()),
    }  # fmt: skip


def test_a_question_may_ask_for_a_row_of_each(engine):
    found = engine.ask(Question(sums, stacked=True), {"centre": np.float32(0)}, ids=[3, 1, 0])
    assert np.asarray(found["sum"]).tolist() == [32.0, 0.0, 3.0]  # who has no examples has nothing to say
    assert np.asarray(found["count"]).tolist() == [1.0, 0.0, 2.0]


def test_a_question_can_be_about_held_out_data(engine):
    found = engine.ask(Question(sums), {"centre": np.float32(0)}, part="test")
    assert float(found["sum"]) == Y[:3].sum()


def test_everybody_has_a_key_of_its_own_and_the_same_on_every_engine():
    draw = Question(lambda message, data, key: jax.random.uniform(key), stacked=True)
    found = [np.asarray(make().ask(draw, ids=[0, 2, 3])) for make in ENGINES.values()]
    assert len(set(found[0].tolist())) == 3
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
