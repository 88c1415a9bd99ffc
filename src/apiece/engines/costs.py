"""What a method costs, read off its traced functions: bytes from shapes, gradient evaluations from the program."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece import tree
from apiece.client.descend import GRADIENT_MARK
from apiece.engines.contact import Build
from apiece.jax_private import Literal
from apiece.protocol import Client, Data, Message, Method, Params, Tree

CALLS = ("pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call")  # their programs have their arguments
Known = Callable[[], Any] | None
SMALL = 64  # numbers of an array that is computed to find out which branch is taken


class Costs(NamedTuple):
    """Per visit of one client: bytes down and up, gradient evaluations; what it keeps; the final use; enrolling."""

    bytes_down: int
    bytes_up: int
    bytes_kept: int
    gradients: float
    gradients_personal: float
    gradients_enroll: float = 0


def costs(method: Method, params: Params, example: tuple, size: int) -> Costs:
    """The costs of a visit to a client with `size` examples; `example` is (x, y) of one or more rows, for shapes.

    A gradient evaluation is one gradient of the loss over one batch. Of two ways that a client may go it is
    the one that options and size tell, or the dearer one where only the run does. NaN if the number is known at run
    time only.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import ditto
    >>> loss = lambda w, batch, key: (w * batch.weight).sum()
    >>> costs(ditto(loss, steps=5), jnp.zeros(()), (jnp.zeros((1, 2)), jnp.zeros(1)), size=40)
    Costs(bytes_down=4, bytes_up=4, bytes_kept=4, gradients=10, gradients_personal=0, gradients_enroll=0)
    """
    return _costs(lambda hyper, round: method, {}, params, example, size)


def _costs(
    build: Build, hyper: dict[str, float], params: Params, example: tuple, size: int, sure: bool = False
) -> Costs:
    """The same with the options traced, as an engine traces them: what comes out holds for all of their values.

    `sure`: where ways that a client may go differ in costs, and nothing tells which it takes, they are NaN.
    """
    shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    x, y = jax.tree.map(shape, example)
    # The size is a plain number here, so that loops over the client's data have a known length.
    data = lambda x, y: Data(x, y, 0, size, size)
    key, round = jax.random.key(0), np.int32(0)

    def arrive(hyper: dict[str, Any], params: Params, x: Tree, y: Tree) -> tuple[Message, Client]:
        method = build(hyper, 0)
        message = method.message(method.init(params, key), np.int32(0))
        return message, method.enroll(params, message, data(x, y), key)

    # Key and round are given, not known: a coin, or what later rounds do, must not be taken for settled.
    local = lambda hyper, client, message, x, y, key, round: build(hyper, round).local(client, message, data(x, y), key)
    personal = lambda hyper, client, message, x, y, key, round: build(hyper, round).personal(
        client, message, data(x, y), key
    )
    enroll = lambda hyper, params, message, x, y, key, round: build(hyper, round).enroll(
        params, message, data(x, y), key
    )
    message, client = jax.eval_shape(arrive, hyper, params, x, y)
    keeps = () if build(hyper, 0).forgets else client
    working, (_, reply) = jax.make_jaxpr(local, return_shape=True)(hyper, client, message, x, y, key, round)
    using = jax.make_jaxpr(personal)(hyper, client, message, x, y, key, round)
    entering = jax.make_jaxpr(enroll)(hyper, params, message, x, y, key, round)
    down, up, kept = (tree.size_in_bytes(each) for each in (message, reply, keeps))
    return Costs(down, up, kept, *(_counted(program, sure) for program in (working, using, entering)))


def _counted(program: Any, sure: bool) -> float:
    most = gradients_in(program)
    return math.nan if sure and most != gradients_in(program, pick=min) else most


def visit_costs(
    build: Build, hyper: dict[str, float], params: Params, example: tuple, sizes: np.ndarray, known: dict[tuple, Costs]
) -> dict[int, Costs]:
    """The costs of a visit by client size; sizes between two that cost the same cost that, too.

    `known`: what was found before, for the same method on examples of the same shapes; it is added to.
    """
    every = np.unique(sizes)

    def of(at: int) -> Costs:
        size = int(every[at])
        found = _found(known, (size,), build, hyper, params, example, size, True)
        # A number of steps, or a way to go, may be made from the options: then it is known for their values alone; or
        # from the round: then that of the first one stands for all.
        for name, made in (("any", lambda none, round: build(hyper, round)), ("first", lambda *none: build(hyper, 0))):
            if not math.isnan(found.gradients + found.gradients_personal + found.gradients_enroll):
                break
            values = (size, name, *sorted(hyper.items()))
            found = _found(known, values, made, {}, params, example, size)
        return found

    found: dict[int, Costs] = {}

    def fill(first: int, last: int) -> None:
        if repr(of(first)) == repr(of(last)) or last - first < 2:  # as text: not a number is then like itself
            for at in range(first, last + 1):
                found[int(every[at])] = of(at if at == last else first)
        else:
            fill(first, (first + last) // 2)
            fill((first + last) // 2, last)

    fill(0, len(every) - 1)
    return found


def _found(known: dict[tuple, Costs], key: tuple, *what: Any) -> Costs:
    if key not in known:
        known[key] = _costs(*what)
    return known[key]


def gradients_in(closed: Any, given: Sequence[Known] = (), pick: Callable[..., float] = max) -> float:
    """How many marked gradients a traced program takes, loops multiplied out; NaN inside a loop of unknown length.

    `given`: what gives its arguments, or None for those that are only known at run time. Of a branch, the way that is
    taken, if what is known says which; else `pick` says: the dearest, as costs are what a client must be ready to pay.
    """
    program: Any = getattr(closed, "jaxpr", closed)
    total: float = 0
    known = _Numbers(program, getattr(closed, "consts", ()), given)
    for equation in program.eqns:
        name, inputs = equation.primitive.name, [partial(known.read, atom) for atom in equation.invars]
        if name == "name":
            total += equation.params["name"] == GRADIENT_MARK
            continue
        if name == "cond":
            ways = [gradients_in(way, inputs[1:], pick) for way in equation.params["branches"]]
            which = inputs[0]() if len({*ways}) > 1 else None
            total += pick(ways) if which is None else ways[min(max(int(which), 0), len(ways) - 1)]
            continue
        inner = [value for value in equation.params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
        count = sum(gradients_in(one, inputs if name in CALLS else (), pick) for one in inner)
        if name == "scan":
            count *= equation.params["length"]
        elif name == "while" and count:
            count = math.nan
        total += count
    return total


class _Numbers:
    """The numbers of a traced program that follow from what is known, computed when somebody asks."""

    def __init__(self, program: Any, constants: Sequence[Any], given: Sequence[Known]) -> None:
        self.made_by = {variable: equation for equation in program.eqns for variable in equation.outvars}
        self.given = dict(zip(program.invars, given, strict=False))
        self.values = dict(zip(program.constvars, constants, strict=False))

    def read(self, atom: Any) -> Any:
        """The value, or None if only the run tells."""
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self.values:
            given = self.given.get(atom)
            self.values[atom] = given() if given is not None else self._computed(atom)
        return self.values[atom]

    def _computed(self, variable: Any) -> Any:
        equation = self.made_by.get(variable)
        atoms = () if equation is None else (*equation.invars, *equation.outvars)
        if equation is None or equation.effects or any(math.prod(atom.aval.shape) > SMALL for atom in atoms):
            return None
        inputs = [self.read(atom) for atom in equation.invars]
        if any(value is None for value in inputs):
            return None
        primitive = equation.primitive
        found = primitive.bind(*inputs, **primitive.get_bind_params(equation.params))
        return found[equation.outvars.index(variable)] if primitive.multiple_results else found
