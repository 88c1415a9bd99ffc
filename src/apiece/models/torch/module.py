"""A `torch.nn.Module`, unchanged, as a model of this library: trained by every method, on every engine.

A method asks for a loss and its derivatives; a compiled program has them from PyTorch through `host_call`. One pass
forth and back gives value and gradient together, and only of the parameters that are asked for; a second derivative
along a direction takes one pass more; a third is refused.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jax.custom_derivatives import SymbolicZero

from apiece.errors import UserError
from apiece.models.failures import raise_failures
from apiece.models.objective import Objective
from apiece.models.torch.call import host_call, linear_host_call
from apiece.protocol import Batch, Params

if TYPE_CHECKING:
    from apiece.models.torch.passes import Form, Passes
else:  # that file imports PyTorch, which is loaded when a module is given
    Form = Passes = Any


class TorchModel(NamedTuple):
    """`init(key) -> params` and `apply(params, x) -> outputs` as every model has, and what it is trained and judged by.

    The parameters are named as in PyTorch, with "/" for ".": {"conv1/weight": ..., "conv1/bias": ..., ...}.

    >>> TorchModel._fields
    ('init', 'apply', 'name', 'objective')
    """

    init: Callable[[Any], Params]
    apply: Callable[[Params, Any], Any]
    name: str
    objective: Objective


def from_torch(module: Any, loss: Callable | None = None, *, error: Callable | None = None) -> TorchModel:
    """A model from a `torch.nn.Module`, to be given to `apiece.fit` as it is.

    Examples reach the module as they are stored (uint8 images and token ids included), a batch at a time, in the
    layout the data have; rows that are not there (weight 0) never do. It trains in the modes it is given in and is
    judged in evaluation mode; parameters that require no gradient stay as they are and are not sent.

    Args:
        module: the module, whose weights are where every run starts; or a function without arguments that makes one,
            called with PyTorch's generator seeded by the run's seed.
        loss: (outputs, labels) -> one loss an example, in PyTorch; by default cross-entropy for integer labels and
            half the squared error for others, a mean over positions where an example has several.
        error: likewise, what is reported as the error; by default the share of wrong labels, or the squared error.

    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> model = from_torch(torch.nn.Linear(3, 2))
    >>> params = model.init(jax.random.key(0))
    >>> {name: value.shape for name, value in params.items()}
    {'weight': (2, 3), 'bias': (2,)}
    >>> batch = Batch(jnp.ones((4, 3)), jnp.array([0, 1, 1, 0]), jnp.ones(4))
    >>> jax.grad(model.objective.loss)(params, batch, jax.random.key(0))["bias"].shape
    (2,)
    """
    passes, made_by = _passes(module, loss, error)
    names = [name.replace(".", "/") for name in passes.names]
    flat = lambda params: [jnp.asarray(params[name], jnp.float32) for name in names]

    def init(key: Any) -> Params:
        values: list[Any] = [jnp.asarray(value) for value in passes.start]
        if made_by is not None:
            values = host_call(made_by, values, jax.random.bits(key))
        return OrderedDict(zip(names, values, strict=True))

    def apply(params: Params, x: Any) -> Any:
        form, leaves = _form(passes, x, ())
        shapes = _output_shapes(passes, form, len(leaves[0]))
        outputs = host_call(partial(passes.outputs, form), jax.tree.leaves(shapes), *_held(flat(params)), *leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    def outcomes(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        form, leaves = _form(passes, batch.x, batch.y)
        weight = jnp.asarray(batch.weight, jnp.float32)
        score = host_call(partial(passes.outcomes, form), [weight] * 2, *_held(flat(params)), weight, *leaves)
        return score[0], score[1]

    def weighted_loss(params: Params, batch: Batch, key: Any) -> jax.Array:
        form, leaves = _form(passes, batch.x, batch.y)
        variables = [*flat(params), batch.weight.astype(jnp.float32)]
        return _loss(passes, form)(variables, [_seed(passes, form, key), *leaves])

    def sgd(params: Params, batches: Batch, keys: Any, lr: Any) -> Params:
        """As many plain gradient steps of size `lr` as `batches` and `keys` have along their first axis; one call."""
        one = jax.tree.map(lambda leaf: leaf[0], (batches.x, batches.y))
        form, _ = _form(passes, *one)
        seeds = jax.vmap(partial(_seed, passes, form))(keys)
        fixed = [batches.weight.astype(jnp.float32), seeds, *jax.tree.leaves((batches.x, batches.y))]
        end = _descent(passes, form)(flat(params), jnp.asarray(lr, jnp.float32), fixed)
        moved = dict(zip(names, end, strict=True))
        return type(params)((name, moved[name].astype(old.dtype)) for name, old in params.items())

    weighted_loss.sgd = sgd  # type: ignore[attr-defined]
    return TorchModel(init, apply, passes.name, Objective(weighted_loss, outcomes))


def state_dict_of(params: Params, module: Any = None) -> dict[str, Any]:
    """The parameters as PyTorch's `load_state_dict` takes them; with the module they came from, complete.

    Complete means with what is not trained: buffers, frozen parameters, and weights that go by two names.

    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> module = torch.nn.Linear(3, 2)
    >>> module.load_state_dict(state_dict_of(from_torch(module).init(jax.random.key(0))))
    <All keys matched successfully>
    """
    import torch

    mine = {name.replace("/", "."): torch.tensor(np.asarray(value)) for name, value in params.items()}
    if module is None:
        return mine
    by_place = {p.data_ptr(): mine[name] for name, p in module.named_parameters() if name in mine}
    whole = module.state_dict()
    return {name: mine.get(name, by_place.get(value.data_ptr(), value)).clone() for name, value in whole.items()}


def save_state_dict(path: str | Path, params: Params, module: Any = None) -> Path:
    """`state_dict_of(params, module)` as a safetensors file, which `safetensors.torch.load_file` opens anywhere.

    >>> import pytest, tempfile
    >>> torch = pytest.importorskip("torch")
    >>> params = from_torch(torch.nn.Linear(3, 2)).init(jax.random.key(0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     list(load_params(save_state_dict(Path(folder, "own.safetensors"), params)))
    ['bias', 'weight']
    """
    arrays = {name: np.ascontiguousarray(value.numpy()) for name, value in state_dict_of(params, module).items()}
    safetensors.numpy.save_file(arrays, path, {"format": "pt"})
    return Path(path)


def load_params(path: str | Path, model: TorchModel | None = None) -> Params:
    """Parameters from such a file; with the model they are for, in its order, and refused if one is missing or unlike.

    >>> try: load_params("no-such.safetensors")
    ... except UserError as error: print(str(error)[:43])
    no-such.safetensors cannot be read as a sta
    """
    try:
        arrays = {name.replace(".", "/"): a for name, a in safetensors.numpy.load_file(path).items()}
    except (OSError, safetensors.SafetensorError, KeyError) as problem:
        raise UserError(f"{path} cannot be read as a state_dict in safetensors ({problem})") from None
    if model is None:
        return OrderedDict(arrays)
    wanted = jax.eval_shape(model.init, jax.random.key(0))
    for name, shape in wanted.items():
        found = arrays[name].shape if name in arrays else "not there"
        if found != shape.shape:
            raise UserError(f"{path} does not fit {model.name}: parameter {name} is {found}, not {shape.shape}")
    return OrderedDict((name, jnp.asarray(arrays[name])) for name in wanted)


def _passes(module: Any, loss: Callable | None, error: Callable | None) -> tuple["Passes", Callable | None]:
    """The passes, and what makes fresh values from a seed, if a function made the module."""
    try:
        import torch

        from apiece.models.torch import passes as host
    except ImportError:
        raise UserError("a torch.nn.Module needs PyTorch: pip install 'apiece[torch]'") from None
    if isinstance(module, torch.nn.Module) or not callable(module):
        return host.Passes(host.checked(module), loss or host.usual_loss, error or host.usual_error), None

    def made(seed: Any) -> Any:
        with host.seeded(int(seed)):
            return host.checked(module())

    def made_by(seed: Any) -> list[np.ndarray]:
        return [p.detach().numpy() for p in made(seed).parameters() if p.requires_grad]

    return host.Passes(made(0), loss or host.usual_loss, error or host.usual_error), made_by


def _form(passes: "Passes", x: Any, y: Any) -> tuple["Form", list]:
    """(how the examples look, their arrays), the module having been tried on such examples once."""
    from apiece.models.torch.passes import Form, threads_each

    raise_failures()
    leaves = jax.tree.leaves((x, y))
    rows = tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves)
    form = Form(jax.tree.structure(x), jax.tree.structure(y), rows)
    devices = jax.local_device_count()
    passes.threads = threads_each(devices) if devices > 1 else 0
    if form.y.num_leaves:
        passes.trial(form)
    return form, leaves


def _output_shapes(passes: "Passes", form: "Form", count: int) -> Any:
    """The tree of outputs for so many examples, as shapes: the module itself is asked, with zeros."""
    outputs = passes.outputs(form, *passes.start, *form.zeros(count))
    shapes = [jax.ShapeDtypeStruct(out.shape, np.float32) for out in outputs]
    return shapes[0] if len(shapes) == 1 else shapes


def _loss(passes: "Passes", form: "Form") -> Callable:
    """([*parameters, weights], [seed, *examples]) -> loss, with its derivatives in parameters and weights."""
    scalar = jax.ShapeDtypeStruct((), np.float32)

    @jax.custom_jvp
    def value(params: list, fixed: list) -> jax.Array:
        return host_call(partial(passes.value, form), [scalar], *params, *fixed)[0]

    @partial(value.defjvp, symbolic_zeros=True)
    def value_moves(primals: tuple, tangents: tuple) -> tuple:
        params, fixed = primals
        moved, ways = _moved(passes, *tangents)
        here, gradient = slope(moved)(params, fixed)
        return here, _dot(gradient, ways)

    def slope(wanted: tuple[int, ...]) -> Callable:
        @jax.custom_jvp
        def sloped(params: list, fixed: list) -> tuple:
            shapes = [scalar, *(params[i] for i in wanted)]
            here, *gradient = host_call(partial(passes.slope, form, wanted), shapes, *params, *fixed)
            return here, gradient

        @partial(sloped.defjvp, symbolic_zeros=True)
        def slope_moves(primals: tuple, tangents: tuple) -> tuple:
            params, fixed = primals
            passes.trial_curve(form)
            moved, ways = _moved(passes, *tangents)
            here, gradient = sloped(params, fixed)
            known = dict(zip(wanted, gradient, strict=True))
            if not set(moved) <= set(wanted):
                known = dict(zip(moved, slope(moved)(params, fixed)[1], strict=True))
            rise = _dot([known[i] for i in moved], ways)
            # The second derivative is symmetric: its transpose is itself, with the two sets of parameters exchanged.
            forth, back = (partial(passes.curve, form, *sets) for sets in ((moved, wanted), (wanted, moved)))
            curve = linear_host_call(forth, back, [params[i] for i in wanted], ways, *last(params), *fixed)
            return (here, gradient), (rise, curve)

        return sloped

    last = _without_slope(
        f"a third derivative of {passes.name} was asked for; PyTorch modules have two here. "
        "Write the model in JAX, or take a method or an order that needs fewer"
    )
    return value


def _descent(passes: "Passes", form: "Form") -> Callable:
    """(parameters, rate, [weights, seeds, *examples], a step a row) -> parameters after those steps, in one call."""
    loss = _loss(passes, form)

    @jax.custom_jvp
    def descent(params: list, lr: Any, fixed: list) -> list:
        return host_call(partial(passes.descend, form), params, *params, lr, *fixed)

    def one_by_one(params: list, lr: Any, fixed: list) -> list:
        def step(p: list, batch: list) -> tuple:
            weight, *rest = batch
            return [a - lr * g for a, g in zip(p, jax.grad(lambda p: loss([*p, weight], rest))(p), strict=True)], None

        return jax.lax.scan(step, params, fixed)[0]

    @partial(descent.defjvp, symbolic_zeros=True)
    def descent_moves(primals: tuple, tangents: tuple) -> tuple:
        params, lr, fixed = primals
        _moved(passes, [], tangents[2])
        filled = lambda way: jnp.zeros(way.shape, way.dtype) if isinstance(way, SymbolicZero) else way
        ways = [filled(way) for way in tangents[0]], filled(tangents[1])
        return jax.jvp(lambda p, rate: one_by_one(p, rate, fixed), (params, lr), ways)

    return descent


def _moved(passes: "Passes", params: list, fixed: list) -> tuple[tuple[int, ...], list]:
    """(which parameters move, or the examples' weights behind them, and how); nothing else may."""
    if not all(isinstance(way, SymbolicZero) for way in fixed):
        raise UserError(f"a derivative of {passes.name} in its examples was asked for; a PyTorch module has "
                        "derivatives in its parameters, and in the weights of the examples, alone here")  # fmt: skip
    moved = tuple(i for i, way in enumerate(params) if not isinstance(way, SymbolicZero))
    return moved, [params[i] for i in moved]


def _dot(a: list, b: list) -> jax.Array:
    return sum((jnp.vdot(x, y) for x, y in zip(a, b, strict=True)), start=jnp.float32(0))


def _seed(passes: "Passes", form: "Form", key: Any) -> jax.Array:
    return jnp.uint32(0) if key is None or form in passes.still else jax.random.bits(key)


def _without_slope(refusal: str) -> Callable[[list], list]:
    """The parameters as they are; whoever asks for a derivative through them is told why there is none."""

    @jax.custom_jvp
    def same(params: list) -> list:
        return params

    @partial(same.defjvp, symbolic_zeros=True)
    def refused(primals: tuple, tangents: tuple) -> tuple:
        if all(isinstance(way, SymbolicZero) for way in tangents[0]):
            return primals[0], tangents[0]
        raise UserError(refusal)

    return same


_held = _without_slope(
    "the outputs of a PyTorch module have no derivative here, its loss has: differentiate model.objective.loss"
)
