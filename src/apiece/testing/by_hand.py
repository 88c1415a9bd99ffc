"""The lines of the contract that need no engine to be checked."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.protocol import Data, Method, Params, Reply, Tree
from apiece.split import path_name
from apiece.testing.case import CLASSES, HEAD, Case
from apiece.testing.clients import cohort_of
from apiece.testing.line import check_line
from apiece.testing.play import play
from apiece.testing.same import check_finite, check_same, check_shapes


@check_line(1, ("functions",))
def states_keep_their_shapes(case: Case, engine: str) -> None:
    """A state comes out with the structure, shapes and dtypes it went in with."""
    with jax.enable_x64(False):
        check_shapes("in float32", case.usual, case.parameters)
    with jax.enable_x64(True):
        check_shapes("in float64", case.shapes(np.float64), case.parameters)


@check_line(3, ("functions",))
def message_draws_nothing(case: Case, engine: str) -> None:
    """A message is a view of the state: it draws nothing and changes nothing."""
    method = case.build(case.hyper, 0)
    server = method.init(case.params, jax.random.key(0))
    before = jax.tree.map(np.array, server)
    for i in (0, 3):
        first, second = (method.message(server, jnp.int32(i)) for _ in range(2))
        check_same(f"the second message to client {i}", second, first)
        check_same(f"the compiled message to client {i}", jax.jit(method.message)(server, jnp.int32(i)), first)
    check_same("the server after it wrote messages", server, before)


@check_line(1, ("functions",))
def hyper_parameters_may_be_traced(case: Case, engine: str) -> None:
    """Hyper-parameters may be traced, and their dtype is not the model's."""
    case.shapes(traced=case.hyper)
    with jax.enable_x64(True):
        strong = {name: jnp.asarray(value, np.float64) for name, value in case.hyper.items()}
        check_shapes("beside float64 hyper-parameters", case.shapes(np.float32, traced=strong), case.parameters)


@check_line(2, ("functions",))
def message_and_reply_are_the_only_channel(case: Case, engine: str) -> None:
    """A server function sees no data and no client state: message and reply are the only channel."""
    replies = jax.tree.map(lambda leaf: jnp.ones((2, *leaf.shape), leaf.dtype), case.reply)

    # In one program: what a method keeps aside of a client's work is then visible, and is not merely a leaked tracer.
    @jax.jit
    def server_after_work(x: jax.Array, y: jax.Array) -> tuple:
        method, key = case.build(case.hyper, 0), jax.random.key(0)
        server = method.init(case.params, key)
        for i in (3, 1):
            message = method.message(server, jnp.int32(i))
            client = method.enroll(case.params, message, case.data(i, x, y), key)
            client, _ = method.local(client, message, case.data(i, x, y), key)
            method.personal(client, message, case.data(i, x, y), key)
        return method.message(server, jnp.int32(3)), method.merge(server, replies, cohort_of((3, 1)), key)

    here = server_after_work(case.x, case.y)
    elsewhere = server_after_work(-2 * case.x, (case.y + 1) % CLASSES)
    check_same("what the server says and merges with other data at the clients", here, elsewhere)


@check_line(1, ("functions",))
def nothing_leaks_out_of_a_trace(case: Case, engine: str) -> None:
    """The six functions are pure: nothing that they compute with is kept outside of them."""
    with jax.checking_leaks():
        case.shapes()


@check_line(1, ("functions",))
def a_method_built_anew_is_the_same(case: Case, engine: str) -> None:
    """The six functions are pure: built and traced anew, they are the same program."""
    (text, consts), (again, others) = case.program(), case.program()
    differ = next((pair for pair in zip(text.split("\n"), again.split("\n"), strict=False) if len({*pair}) > 1), None)
    assert differ is None, f"the program changes: at first it says `{differ[0].strip()}`, then `{differ[1].strip()}`"
    assert len(text) == len(again), "the program grows"
    check_same("a constant of the program when traced anew", others, consts)


@check_line(5, ("functions",))
def replies_of_weight_zero_never_matter(case: Case, engine: str) -> None:
    """Replies of weight 0 never matter, whatever they hold."""
    method = case.build(case.hyper, 0)
    server = method.init(case.params, jax.random.key(0))
    replies = _some_replies(case)
    cohort = cohort_of((3, 1, 0, 2))._replace(weight=jnp.array([20.0, 3.0, 0.0, 0.0], jnp.float32))
    merge = jax.jit(method.merge)
    clean = merge(server, replies, cohort, jax.random.key(0))
    check_finite("the server", clean)
    for poison in (jnp.nan, jnp.inf, 1e30, 0):
        spoil = lambda leaf, poison=poison: leaf.at[2:].set(jnp.asarray(poison).astype(leaf.dtype))
        spoiled = merge(server, jax.tree.map(spoil, replies), cohort, jax.random.key(0))
        check_same(f"the server after replies of weight 0 that hold {poison}", spoiled, clean)


@check_line(4, ("functions",))
def replies_may_be_late(case: Case, engine: str) -> None:
    """A reply still means something when it is late: a server that has moved on can merge it."""
    method = case.build(case.hyper, 0)
    key = jax.random.key(0)
    server = method.init(case.params, key)
    replies, cohort = _some_replies(case), cohort_of((3, 1, 0, 2))
    for delay in (0, 3):
        late = cohort._replace(delay=jnp.full(4, delay, jnp.int32))
        server = jax.jit(method.merge)(server, replies, late, key)
    check_finite("the server after late replies", server)


@check_line(3, ("functions",))
def a_key_is_used_once(case: Case, engine: str) -> None:
    """A key is used once: what is drawn from it a second time is not random any more, but what was drawn before."""

    def each_function(params: Params, data: Data, keys: tuple) -> tuple:
        method = case.build(case.hyper, 0)
        server = method.init(params, keys[0])
        message = method.message(server, jnp.int32(3))
        client, reply = method.local(method.enroll(params, message, data, keys[1]), message, data, keys[2])
        merged = method.merge(server, tree.stack([reply, reply]), cohort_of((3, 1)), keys[3])
        return merged, method.personal(client, message, data, keys[4])

    try:
        with jax.debug_key_reuse(True):
            jax.eval_shape(each_function, case.params, case.data(3), tuple(jax.random.split(jax.random.key(0), 5)))
    except jax.errors.KeyReuseError as error:
        # What follows in JAX's text is the program in which it was found.
        reason = str(error).partition("\n")[0].rstrip(":. ")
        raise AssertionError(f"one is used twice ({reason}): `jax.random.split` it first") from error


@check_line(2, ("functions",), layers=True)
def what_is_private_stays_with_the_client(case: Case, engine: str) -> None:
    """The option `private` names what stays with the client and is its own; the rest of the model is everybody's."""
    if not case.has_private:
        return
    shapes = case.layered.usual
    # Of this network no two matrices have one shape, so that a shape tells which one it is.
    matrices = {leaf.shape: name for name, leaf in _named(shapes.params).items() if leaf.ndim == 2}
    private = {shape: name for shape, name in matrices.items() if name.startswith(HEAD)}
    for sent in ("message", "reply"):
        for place, leaf in jax.tree_util.tree_leaves_with_path(getattr(shapes, sent)):
            what = f"{sent}{jax.tree_util.keystr(place)}"
            assert leaf.shape not in private, f"with private='{HEAD}' {private[leaf.shape]} is sent, as {what}"
    if case.parameters:
        for name, (first, second) in _named(play(case).models).items():
            alike, own = bool((first == second).all()), name.startswith(HEAD)
            found = "the same" if alike else "not the same"
            assert alike != own, f"with private='{HEAD}' {name} is {found} in the models of two clients"


@check_line(4, ("functions",), layers=True)
def a_reply_is_an_update(case: Case, engine: str) -> None:
    """A reply is an update: if all parameters were larger by 1, and meant the same, it would be what it is."""
    if _says_late(case.factory):
        return
    here, there = (jax.tree.leaves_with_path(play(case, origin=origin).replies) for origin in (0.0, 1.0))
    for (place, update), (_, moved) in zip(here, there, strict=True):
        if jnp.issubdtype(update.dtype, jnp.floating):
            by = float(np.abs(moved - update).mean())
            # A model moves by 1. An update that shrinks weights a little moves a little: it still is one.
            assert by < 0.5, (
                f"reply{jax.tree_util.keystr(place)} then moves by {by:.2g}: it is a model, which says nothing about "
                "a server that has moved on. Send its difference to the model received or, if it cannot be one, say in "
                "the docstring what it is worth when late, in a line that begins with `Late:`"
            )


@check_line(4, ("functions",), layers=True)
def an_update_leaves_no_layer_out(case: Case, engine: str) -> None:
    """An update leaves no layer out: every layer of a client's model is trained, and a reply is nowhere always zero."""
    played = play(case)
    for name, leaf in _named(played.replies).items():
        assert np.any(leaf), f"reply/{name} is zero, whoever answers and when"
    if case.parameters:
        start = _named(case.layered.params)
        for name, leaf in _named(played.models).items():
            assert np.any(leaf != start[name]), (
                f"{name} of everybody's model is where it started (if it is frozen on purpose, leave this check out)"
            )


@check_line(7, ("functions",), layers=True)
def what_is_kept_is_of_use(case: Case, engine: str) -> None:
    """What a client keeps from visit to visit is of use: its replies, or the model that it uses, depend on it."""
    usual, other = play(case), play(case, nudge=0.25)
    if _differ(usual.clients, usual.enrolled):  # what stays as it is may be kept for its shapes
        seen = _differ((usual.replies, usual.models), (other.replies, other.models))
        assert seen, "with other numbers in its state all replies and models are the same: nothing reads it"


def _some_replies(case: Case) -> Reply:
    """Four replies that are not all alike."""
    ramp = lambda leaf: (jnp.arange(4 * leaf.size) / (4 * leaf.size)).reshape((4, *leaf.shape)).astype(leaf.dtype)
    return jax.tree.map(ramp, case.reply)


def _differ(a: Tree, b: Tree) -> bool:
    """Whether a number is another one."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return any(bool(np.any(np.asarray(p) != np.asarray(q))) for p, q in pairs)


def _named(values: Tree) -> dict[str, Any]:
    """The leaves by the names of their paths."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(values)}


def _says_late(factory: Callable[..., Method]) -> bool:
    """Whether the docstring says what a late reply is worth: such a reply is not an update, and need not be one."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return any(line.startswith("Late: ") for line in (inspect.getdoc(factory) or "").splitlines())
