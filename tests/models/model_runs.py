"""Every model at its smallest with examples it fits, every method with few steps, and two rounds on either engine."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import tree
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods import CATALOG
from apiece.methods.fed_em import Mixture
from apiece.methods.knn_per import Memory
from apiece.models import (
    adapted,
    char_lstm,
    cnn2,
    cnn2_valid,
    cnn3,
    cnn5,
    from_equinox,
    from_flax,
    linear,
    mlp,
    objective,
    quadratic,
    resnet18,
    sensor_cnn,
    softmax,
    text_lstm,
    transformer,
)
from apiece.models.failures import raise_failures
from apiece.protocol import Batch, Cohort, Data
from apiece.split import NORM, paths
from apiece.testing import case

SIZES, ROUNDS = (4, 3), 2
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
# A batch is as large as the larger client, so that batches and whole clients are one shape to compile.
FEW = case.SMALL | {"batch": max(SIZES), "steps": 2, "inner_steps": 2, "tune_epochs": 1, "tune_steps": 2}
FEW |= {"population": len(SIZES)}


def images(shape, classes=3):
    def make(rng):
        y = rng.integers(0, classes, sum(SIZES)).astype(np.int32)
        light = 60 * y.reshape(-1, *[1] * len(shape))  # a class is a shade
        return (light + rng.integers(0, 60, (len(y), *shape))).astype(np.uint8), y

    return make


def signals(rng):
    x, y = images((12, 2))(rng)
    return (x / 100).astype(np.float32), y


def numbers(rng):
    x = rng.normal(size=(sum(SIZES), 3)).astype(np.float32)
    return x, x.sum(1) + 1


def bowls(rng):
    half, y = rng.normal(size=(sum(SIZES), 3, 3)), rng.normal(size=(sum(SIZES), 3))
    return (half @ half.swapaxes(1, 2) / 3).astype(np.float32), y.astype(np.float32)


def texts(every):
    def make(rng):
        walk = (rng.integers(0, 5, (sum(SIZES), 1)) + np.arange(5)) % 5  # the next token is the next number
        x, y = walk[:, :-1].astype(np.int32), walk[:, 1:].astype(np.int32)
        if not every:
            return x, (x[:, -1] > 1).astype(np.int32)
        y[0, -2:] = -1
        return x, y

    return make


def flax_module():
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.GroupNorm(2, name="norm")(nn.Conv(4, (3, 3))(x.astype(jnp.float32)[..., None] / 255))
            return nn.Dense(3, name="out")(nn.relu(x).reshape(len(x), -1))

    return from_flax(Net(), jnp.zeros((1, 4, 4), jnp.uint8))


def equinox_module():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        out: eqx.nn.Linear

        def __init__(self, key):
            first, last = jax.random.split(key)
            self.conv, self.out = eqx.nn.Conv2d(1, 4, 3, key=first), eqx.nn.Linear(16, 3, key=last)

        def __call__(self, x):
            return self.out(jax.nn.relu(self.conv(x[None] / 255.0)).ravel())

    return from_equinox(Net, jnp.zeros((1, 4, 4), jnp.uint8))


def torch_module():
    torch = pytest.importorskip("torch")
    from apiece.models import from_torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.GroupNorm(2, 4)
            self.out = torch.nn.Linear(16, 3)

        def forward(self, x):
            return self.out(torch.relu(self.norm(self.conv(x[:, None] / 255))).flatten(1))

    return from_torch(Net())


# name: (the model, its examples, its task)
MODELS = {
    "linear": (lambda: linear((3,)), numbers, "regression"),
    "softmax": (lambda: softmax((4, 4), 3), images((4, 4)), "classification"),
    "mlp": (lambda: mlp((4, 4), 3, hidden=(8,)), images((4, 4)), "classification"),
    "quadratic": (lambda: quadratic(3), bowls, "custom"),
    "cnn2": (lambda: cnn2((4, 4), 3, width=4, hidden=(8,)), images((4, 4)), "classification"),
    "cnn2_valid": (lambda: cnn2_valid((16, 16), 3, width=2, hidden=(8,)), images((16, 16)), "classification"),
    "cnn3": (lambda: cnn3((8, 8, 3), 3, width=4, hidden=(8,)), images((8, 8, 3)), "classification"),
    "sensor_cnn": (lambda: sensor_cnn((12, 2), 3, width=4, size=3, hidden=(8,)), signals, "classification"),
    "resnet18": (lambda: resnet18((4, 4), 3, width=4, blocks=(1, 1)), images((4, 4)), "classification"),
    "char_lstm": (lambda: char_lstm(5, embed=3, width=6), texts(every=True), "next_character"),
    "text_lstm": (lambda: text_lstm(5, embed=3, width=6, layers=1), texts(every=False), "classification"),
    "transformer": (
        lambda: transformer(5, length=4, width=8, inner=16, heads=2, blocks=1),
        texts(every=True),
        "next_character",
    ),
    "adapted": (lambda: adapted(cnn2((4, 4), 3, width=4, hidden=(8,)), rank=2), images((4, 4)), "classification"),
    "cnn5": (lambda: cnn5((8, 8), 3, width=2, hidden=(8,)), images((8, 8)), "classification"),
}
FOREIGN = {
    "flax": (flax_module, images((4, 4)), "classification"),
    "equinox": (equinox_module, images((4, 4)), "classification"),
    "torch": (torch_module, images((4, 4)), "classification"),
}
NORMED = ("resnet18", "transformer", "flax", "torch")
PRIVATE = {"linear": "b", "softmax": "b", "adapted": "adapter"}  # models of one layer have no other to share


def parts_asked(method):
    """The words for a method's private part; None if it takes models whole."""
    return CATALOG.defaults(method).get("private")


def fits(model, method):
    """Whether a model has the parts that a method asks for, and the answers."""
    task = (MODELS | FOREIGN)[model][2]
    if method in ("local_ridge", "stack"):
        return model in ("linear", "softmax")
    if method in ("knn_per", "stack_tuned"):
        return task in ("classification", "regression")
    if method in ("fed_proto", "fed_rod"):
        return task == "classification" and (method == "fed_rod" or model not in FOREIGN)
    private = parts_asked(method)
    return private is None or (model in NORMED if private == "norm" else model != "quadratic")


def rotation(models, methods=tuple(CATALOG)):
    """(model, method) pairs: every method once, with the fitting model that was taken least so far."""
    taken, pairs = dict.fromkeys(models, 0), []
    choice = lambda method: sum(fits(model, method) for model in models)
    # Those that ask for parts of a model choose first, the pickiest of all; FedBABU came later, and keeps their pairs.
    first = lambda method: parts_asked(method) and method != "fed_babu"
    for method in sorted(methods, key=lambda method: choice(method) if first(method) else len(models)):
        model = min((model for model in models if fits(model, method)), key=lambda model: taken[model])
        taken[model] += 1
        pairs.append((model, method))
    return pairs


def parameters(model):
    """Those of the shared model, or the mean of them, where a personal one is more."""
    if isinstance(model, Mixture):
        share = lambda leaf: model.pi.reshape(*model.pi.shape, *[1] * (leaf.ndim - model.pi.ndim))
        return jax.tree.map(lambda leaf: (share(leaf) * leaf).sum(model.pi.ndim - 1), model.models)
    return model.params if isinstance(model, Memory) else model


@cache
def setting(name):
    return Setting(name)


class Setting:
    """A model and two clients' examples."""

    def __init__(self, name):
        make, examples, task = (MODELS | FOREIGN)[name]
        self.name, self.model = name, make()
        self.params = drawn(jax.eval_shape(self.model.init, jax.random.key(0)))
        self.x, self.y = examples(np.random.default_rng(0))
        self.objective = getattr(self.model, "objective", None) or objective(self.model, task)
        assert (name in NORMED) == any(NORM.search(part) for path in paths(self.params) for part in path.split("/"))

    def build(self, method, loss=None):
        known = CATALOG.defaults(method)
        options = {option: value for option, value in FEW.items() if option in known and option != "private"}
        if self.name in PRIVATE and known.get("private"):
            options["private"] = known["private"].replace("output", PRIVATE[self.name])
        if method == "maml_fl":
            options["order"] = "exact"  # with second derivatives
        given = {"model": self.model} if CATALOG.takes(method, "model") else {}
        return lambda hyper, round: CATALOG[method](loss or self.objective.loss, **given, **options)

    def vectorized(self, method):
        """Every client's model after a few rounds."""
        return self.models(Vectorized(self.build(method), self.x, self.y, OFFSETS, block=ROUNDS))

    def remote(self, method):
        """The same, through bytes."""
        return self.models(Remote(self.build(method), self.x, self.y, OFFSETS))

    def models(self, engine):
        state = engine.advance(engine.start(lambda key: self.params, 0), ROUNDS)
        models = engine.personal(state, np.arange(len(SIZES)))
        raise_failures()
        return parameters(models)

    def shapes(self, method):
        """(what goes into a round, what comes out): states and models by their shapes alone."""

        def one_round(params, data, key):
            made = self.build(method, self.traced_once)({}, 0)
            server = made.init(params, key)
            message = made.message(server, jnp.int32(1))
            client = made.enroll(params, message, data, key)
            after, reply = made.local(client, message, data, key)
            two = jnp.arange(len(SIZES))
            cohort = Cohort(two, jnp.array(SIZES, jnp.float32), 0 * two, jnp.int32(len(SIZES)))
            merged = made.merge(server, tree.stack([reply] * len(SIZES)), cohort, key)
            return (server, client, params), (merged, after, parameters(made.personal(after, message, data, key)))

        data = Data(jnp.array(self.x), jnp.array(self.y), jnp.int32(0), jnp.int32(SIZES[0]), max(SIZES))
        return jax.eval_shape(one_round, self.params, data, jax.random.key(0))

    @property
    def traced_once(self):
        """The loss, which JAX traces for the first method and remembers for the others."""
        if not hasattr(self, "_traced_once"):
            self._traced_once = jax.jit(self.objective.loss)
        return self._traced_once

    def loss(self, models):
        """The clients' mean loss on their own examples."""
        if not hasattr(self, "_loss"):
            self._loss = jax.jit(self.objective.loss)
        own = [slice(*OFFSETS[i : i + 2]) for i in range(len(SIZES))]
        batch = lambda mine: Batch(self.x[mine], self.y[mine], np.ones(len(self.y[mine]), np.float32))
        each = [self._loss(tree.take(models, i), batch(mine), jax.random.key(0)) for i, mine in enumerate(own)]
        return float(np.mean(each))

    def first(self):
        return tree.stack([self.params] * len(SIZES))


def drawn(shapes):
    """First parameters by NumPy: compiling a model's own `init` takes longer than training it here."""
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key if path else ""
        if name in ("scale", "norm/weight"):
            return jnp.ones(leaf.shape)
        if leaf.ndim < 2 or (name == "b" and path[0].key == "adapter"):
            return jnp.zeros(leaf.shape)
        fan = leaf.shape[1] if leaf.ndim == 2 else np.prod(leaf.shape[:-1])
        return jnp.array(rng.normal(size=leaf.shape) * np.sqrt(2 / fan), jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)
