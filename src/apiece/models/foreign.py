"""Models of one's own: any init/apply pair, a Flax module, an Equinox module.

Such a model sees examples as they are stored: pictures as uint8, tokens as integers.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from apiece.errors import UserError
from apiece.models.model import Model
from apiece.models.objective import Objective
from apiece.models.swap import swapped
from apiece.protocol import Batch, Loss, Params
from apiece.shelf import Shelf
from apiece.split import path_name

CLIFF = (
    "{name} has a convolution whose automatic gradient is up to thirty times slower inside a compiled loop on a CPU, "
    "and which has no equal among apiece's own: it has groups, a dilation, a precision or strides that differ, or "
    "stands in a loop. Take apiece.models.convolution.convolution(x, w, stride, padding) where it computes the same."
)


_ACCEPTED = Shelf(most=16)  # programs are compiled for a model: the same module again compiles nothing


def accept(candidate: Any, example: jax.Array) -> Model:
    """A `Model` from anything with `init` and `apply`: ours, a Flax module, a pair written by hand; or a torch module.

    `init` may take a key, or a key and a batch of examples (as Flax does). The same object again, with the same
    example, is the same model.

    >>> import jax.numpy as jnp
    >>> from types import SimpleNamespace
    >>> pair = SimpleNamespace(init=lambda key, x: {"w": jnp.zeros(x.shape[1])}, apply=lambda p, x: x @ p["w"])
    >>> accept(pair, jnp.ones((1, 4))).init(jax.random.key(0))["w"].shape
    (4,)
    """
    return adopt(candidate, example)[0]


def adopt(candidate: Any, example: jax.Array) -> tuple[Model, Objective | None]:
    """The same, and the objective that the candidate brings along: a torch module's loss is its own."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(candidate, torch.nn.Module):
        from apiece.models.torch.module import from_torch

        candidate = from_torch(candidate)
    return _accept(candidate, example), getattr(candidate, "objective", None)


def _accept(candidate: Any, example: jax.Array) -> Model:
    if isinstance(candidate, Model):
        return candidate
    if not (callable(getattr(candidate, "init", None)) and callable(getattr(candidate, "apply", None))):
        raise UserError(
            f"a model needs two functions, init and apply; {type(candidate).__name__} has not. "
            "Give apiece.models.softmax(...), a Flax module, or any object with init(key) and apply(params, x); "
            "for others there are apiece.models.from_flax and from_equinox."
        )
    key = (candidate.init, candidate.apply, np.asarray(example))
    return _ACCEPTED.take(key, lambda: _accepted(candidate, example))


def _accepted(candidate: Any, example: jax.Array) -> Model:
    linen = sys.modules.get("flax.linen")
    if linen is not None and isinstance(candidate, linen.Module):
        return from_flax(candidate, example)
    kinds = [p.kind for p in inspect.signature(candidate.init).parameters.values()]
    positional = sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
    wants_example = positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
    init = (lambda key: candidate.init(key, example)) if wants_example else candidate.init
    return Model(init, candidate.apply, getattr(candidate, "name", None) or type(candidate).__name__)


def from_flax(module: Any, example: Any) -> Model:
    """A Flax model: a linen module, or for nnx a function that makes one, `lambda rngs: MyModule(rngs=rngs)`.

    `example` is a batch of examples, for shapes. Parameters are a tree of dicts under the module's own names.

    >>> import pytest, jax.numpy as jnp
    >>> nn = pytest.importorskip("flax.linen")
    >>> model = from_flax(nn.Dense(3), jnp.ones((1, 4)))
    >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0)))
    {'bias': (3,), 'kernel': (4, 3)}
    """
    linen = _optional("flax.linen", "flax")
    if isinstance(module, linen.Module):
        return _checked(_from_linen(module, example), example)
    return _checked(_from_nnx(module), example)


def _from_linen(module: Any, example: Any) -> Model:
    name = module.name or type(module).__name__
    made = jax.eval_shape(module.init, jax.random.key(0), example)
    _refuse_state(name, [kind for kind in made if kind != "params"])
    init = lambda key: module.init(key, example)["params"]
    return Model(init, lambda params, x: module.apply({"params": params}, x), name)


def _from_nnx(make: Callable) -> Model:
    nnx = _optional("flax.nnx", "flax")
    divided = lambda key: nnx.split(make(nnx.Rngs(key)), nnx.Param, ...)
    module = make(nnx.Rngs(0)) if callable(make) and not isinstance(make, nnx.Module) else make
    if not isinstance(module, nnx.Module) or module is make:
        raise UserError(
            f"{type(make).__name__} is neither a linen module nor a function that makes an nnx module; "
            "give for example from_flax(lambda rngs: MyModule(rngs=rngs), example)"
        )
    graph, shape, rest = nnx.split(module, nnx.Param, ...)
    _refuse_state(type(module).__name__, ["/".join(map(str, path)) for path, _ in nnx.to_flat_state(rest)])

    def apply(params: Params, x: Any) -> Any:
        state = jax.tree.map(lambda leaf: leaf, shape)
        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state)(x)

    return Model(lambda key: nnx.to_pure_dict(divided(key)[1]), apply, type(module).__name__)


def from_equinox(make: Callable[[Any], Any], example: Any) -> Model:
    """An Equinox model: a function `make(key)` that makes the module, which takes one example at a time.

    `example` is a batch of examples, for shapes. Parameters are a tree of dicts under the module's own names.

    >>> import pytest, jax.numpy as jnp
    >>> eqx = pytest.importorskip("equinox")
    >>> model = from_equinox(lambda key: eqx.nn.Linear(4, 3, key=key), jnp.ones((1, 4)))
    >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0)))
    {'bias': (3,), 'weight': (3, 4)}
    """
    eqx = _optional("equinox", "equinox")
    module = make(jax.random.key(0))
    name = type(module).__name__
    is_state = lambda leaf: isinstance(leaf, eqx.nn.StateIndex)
    kept = [path for path, leaf in jax.tree_util.tree_leaves_with_path(module, is_leaf=is_state) if is_state(leaf)]
    _refuse_state(name, [path_name(path) for path in kept])
    numbers, rest = eqx.partition(module, eqx.is_inexact_array)
    places, shape = jax.tree_util.tree_flatten_with_path(numbers)

    def init(key: Any) -> Params:
        made = eqx.filter(make(key), eqx.is_inexact_array)
        params: Params = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(made):
            *above, last = path_name(path).split("/")
            inner = params
            for part in above:
                inner = inner.setdefault(part, {})
            inner[last] = leaf
        return params

    def apply(params: Params, x: Any) -> Any:
        leaves = []
        for path, _ in places:
            leaf = params
            for part in path_name(path).split("/"):
                leaf = leaf[part]
            leaves.append(leaf)
        return jax.vmap(eqx.combine(jax.tree.unflatten(shape, leaves), rest))(x)

    return _checked(Model(init, apply, name), example)


def has_plain_convolution(loss: Loss, params: Params, batch: Batch) -> bool:
    """Whether the loss has a convolution with an automatic gradient: slow inside a compiled loop on a CPU.

    One inside a `custom_vjp`, such as apiece's own, is not. Shapes are enough: nothing is computed.

    >>> from jax import lax, numpy as jnp
    >>> batch = Batch(jnp.ones((1, 4, 4, 1)), None, None)
    >>> plain = lambda w, batch, key: lax.conv(batch.x, w, (1, 1), "VALID").sum()
    >>> has_plain_convolution(plain, jnp.ones((1, 4, 2, 1)), batch)
    True
    """
    program = jax.make_jaxpr(lambda params, batch: loss(params, batch, jax.random.key(0)))(params, batch)
    return any(name == "conv_general_dilated" for name in _primitives(program.jaxpr))


def _primitives(program: Any) -> Iterator[str]:
    for equation in program.eqns:
        yield equation.primitive.name
        if equation.primitive.name.startswith("custom_vjp"):
            continue  # it has a gradient of its own
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


def _checked(model: Model, example: Any) -> Model:
    """The model, by our convolutions where it has others; with a warning about those that are left."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    plain = lambda apply: has_plain_convolution(lambda p, b, key: apply(p, b.x), params, Batch(example, None, None))
    if not plain(model.apply):
        return model
    model = model._replace(apply=swapped(model.apply))
    if plain(model.apply):
        warnings.warn(CLIFF.format(name=model.name), UserWarning, stacklevel=3)
    return model


def _refuse_state(name: str, kept: list[str]) -> None:
    """Statistics that a module keeps beside its parameters would be lost between steps, in silence."""
    if kept:
        raise UserError(
            f"{name} keeps {', '.join(kept)} beside its parameters, which would be lost between steps; "
            "take a layer without such state: group or layer normalization for batch normalization"
        )


def _optional(module: str, package: str) -> Any:
    try:
        return __import__(module, fromlist=["*"])
    except ModuleNotFoundError:
        raise UserError(f"the package '{package}' is not installed: pip install {package}") from None
