"""A warm start: a model trained centrally on other people's examples, from which the federation sets out."""

from typing import Any

import jax
import numpy as np

from apiece.client.descend import descend
from apiece.data.splits import Split
from apiece.models import Model, Objective
from apiece.protocol import Data, Params


def warm_started(model: Model, judge: Objective, pool: Split, *, steps: int, lr: float, batch: int) -> Model:
    """The same model, whose initial parameters come from `steps` steps of SGD on the pooled examples.

    Every seed has a pooled model of its own, trained once: all methods that set out from a seed share it.

    >>> from apiece.models import objective, softmax
    >>> pool = Split(np.eye(2, dtype=np.float32), np.array([0, 1], np.int32), np.array([0, 2]))
    >>> plain = softmax((2,), 2)
    >>> warm = warm_started(plain, objective(plain, "classification"), pool, steps=20, lr=1.0, batch=2)
    >>> bool(warm.init(jax.random.key(0))["w"][0, 0] > 0.5)
    True
    """
    data = Data(pool.x, pool.y, np.int32(0), np.int32(pool.rows))

    @jax.jit
    def trained(key: Any, data: Data) -> Params:
        first, rest = jax.random.split(key)
        return descend(judge.loss, model.init(first), data, rest, steps=steps, lr=lr, batch=batch)

    known: dict[bytes, Params] = {}

    def init(key: Any) -> Params:
        try:
            name = np.asarray(jax.random.key_data(key)).tobytes()
        except jax.errors.TracerArrayConversionError:  # somebody asks for shapes
            return trained(key, data)
        if name not in known:
            known[name] = trained(key, data)
        return known[name]

    return model._replace(init=init, name=f"{model.name}, warm")
