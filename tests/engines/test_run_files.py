"""A run on its way in a file: every field that is to go there does."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import MAKE

from apiece.engines.engine import RunState
from apiece.methods import fed_avg


@pytest.mark.parametrize("kind", MAKE.values(), ids=MAKE)
def test_a_file_holds_every_plain_field_of_a_run(kind, tmp_path):
    start = lambda key: {"w": jnp.zeros(3)}
    rows = np.ones((2, 3), np.float32), np.ones(2, np.float32), np.array([0, 1, 2])
    engine = kind(lambda hyper, round: fed_avg(lambda *given: 0.0), *rows)
    plain = {field.name: field.type for field in dataclasses.fields(RunState) if field.type in (int, float)}
    values = {name: of_type(at) for at, (name, of_type) in enumerate(plain.items(), 5)}
    engine.save(dataclasses.replace(engine.start(start, 0), **values), tmp_path / "run", {"why": "a test"})
    again, about = engine.restore(tmp_path / "run", engine.start(start, 0))
    assert {name: getattr(again, name) for name in values} == values and about == {"why": "a test"}
    assert {"round", "clock", "refused"} <= set(values)
