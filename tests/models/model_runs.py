"""Every model at its smallest, with examples it fits; and a few rounds of a method on both engines."""

import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.cohort import Participation
from apiece.engines.remote import ClientHalf, ServerHalf, agree, run
from apiece.engines.vectorized import Vectorized
from apiece.methods import CATALOG
from apiece.models import (
    adapted,
    char_lstm,
    cnn2,
    cnn2_valid,
    cnn3,
    cnn5,
    mlp,
    objective,
    resnet18,
    sensor_cnn,
    text_lstm,
    transformer,
)
from apiece.protocol import Batch

CLIENTS, ROWS, ROUNDS = 2, 6, 2


def images(shape, classes=3):
    def make(rng):
        y = rng.integers(0, classes, CLIENTS * ROWS).astype(np.int32)
        light = 60 * y.reshape(-1, *[1] * len(shape))  # a class is a shade
        return (light + rng.integers(0, 60, (len(y), *shape))).astype(np.uint8), y

    return make


def signals(rng):
    x, y = images((12, 2))(rng)
    return (x / 100).astype(np.float32), y


def texts(every):
    def make(rng):
        walk = (rng.integers(0, 5, (CLIENTS * ROWS, 1)) + np.arange(7)) % 5  # the next token is the next number
        x, y = walk[:, :-1].astype(np.int32), walk[:, 1:].astype(np.int32)
        if not every:
            return x, (x[:, -1] > 1).astype(np.int32)
        y[0, -2:] = -1
        return x, y

    return make


MODELS = {
    "mlp": (lambda: mlp((4, 4), 3, hidden=(8,)), images((4, 4))),
    "cnn2": (lambda: cnn2((4, 4), 3, width=4, hidden=(8,)), images((4, 4))),
    "cnn2_valid": (lambda: cnn2_valid((16, 16), 3, width=2, hidden=(8,)), images((16, 16))),
    "cnn3": (lambda: cnn3((8, 8, 3), 3, width=4, hidden=(8,)), images((8, 8, 3))),
    "cnn5": (lambda: cnn5((8, 8), 3, width=2, hidden=(8,)), images((8, 8))),
    "resnet18": (lambda: resnet18((4, 4), 3, width=4, blocks=(1, 1)), images((4, 4))),
    "sensor_cnn": (lambda: sensor_cnn((12, 2), 3, width=4, size=3, hidden=(8,)), signals),
    "char_lstm": (lambda: char_lstm(5, embed=3, width=6), texts(every=True)),
    "text_lstm": (lambda: text_lstm(5, embed=3, width=6, layers=1), texts(every=False)),
    "transformer": (lambda: transformer(5, length=6, width=8, inner=16, heads=2, blocks=1), texts(every=True)),
    "adapted": (lambda: adapted(cnn2((4, 4), 3, width=4, hidden=(8,)), rank=2), images((4, 4))),
}
METHODS = {
    "fed_avg": {},
    "ditto": {"lam": 0.1},
    "partial": {"private": "output"},
    "maml_fl": {"order": "exact", "tune_lr": 0.05, "tune_epochs": 1},
}
RATES = {"char_lstm": 1.0, "text_lstm": 1.0, "transformer": 0.3}


class Setting:
    """A model and two clients' examples."""

    def __init__(self, name):
        make, examples = MODELS[name]
        self.name, self.model = name, make()
        self.params = drawn(jax.eval_shape(self.model.init, jax.random.key(0)))
        self.x, self.y = examples(np.random.default_rng(0))
        self.objective = objective(self.model, "classification")

    def options(self, method):
        own = dict(METHODS[method])
        if self.name == "adapted" and method == "partial":
            own["private"] = "adapter"
        return {"steps": 4, "batch": 4, "lr": RATES.get(self.name, 0.1), **own}

    def build(self, method):
        options = self.options(method)
        return lambda hyper, round: CATALOG[method](self.objective.loss, **options)

    def vectorized(self, method):
        """Every client's model after a few rounds."""
        offsets = np.arange(CLIENTS + 1) * ROWS
        engine = Vectorized(self.build(method), self.x, self.y, offsets, block=ROUNDS)
        state = engine.advance(engine.start(lambda key: self.params, 0), ROUNDS)
        return engine.personal(state, np.arange(CLIENTS))

    def remote(self, method):
        """The same, through bytes."""
        xs, ys = (np.split(part, CLIENTS) for part in (self.x, self.y))
        terms = agree(self.build(method), lambda key: self.params, (xs[0], ys[0]), 0)
        server, clients = ServerHalf(terms, CLIENTS), [ClientHalf(terms, i, xs[i], ys[i]) for i in range(CLIENTS)]
        run(server, clients, ROUNDS, Participation())
        return jax.tree.map(
            lambda *rows: np.stack(rows), *(c.personal(server.message(i)) for i, c in enumerate(clients))
        )

    def loss(self, models):
        """The clients' mean loss on their own examples."""
        xs, ys = (jnp.stack(np.split(part, CLIENTS)) for part in (self.x, self.y))
        one = lambda params, x, y: self.objective.loss(params, Batch(x, y, jnp.ones(ROWS)), None)
        return float(jax.jit(jax.vmap(one))(models, xs, ys).mean())

    def first(self):
        return jax.tree.map(lambda leaf: jnp.stack([leaf] * CLIENTS), self.params)


def drawn(shapes):
    """First parameters by NumPy: compiling a model's own `init` takes longer than training it here."""
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        if name == "scale":
            return jnp.ones(leaf.shape)
        if leaf.ndim < 2 or (name == "b" and path[0].key == "adapter"):
            return jnp.zeros(leaf.shape)
        fan = leaf.shape[1] if leaf.ndim == 2 else np.prod(leaf.shape[:-1])
        return jnp.array(rng.normal(size=leaf.shape) * np.sqrt(2 / fan), jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)
