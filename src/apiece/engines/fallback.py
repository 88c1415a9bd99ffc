"""A client whose own model is no number uses another: the shared one, or else the one that everybody began with.

One client that diverges then has a poor model and a name, rather than that all clients' means are lost.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from apiece.engines.contact import Build, key_of, keys
from apiece.engines.engine import RunState
from apiece.protocol import Data, Message, Method, Params, Personal, Tree

LARGEST = 1e9  # of a parameter: who is there has diverged, and stopped before infinity


def are_numbers(models: Personal) -> np.ndarray:
    """Which of stacked models can be computed with: finite, and not on their way to infinity.

    >>> are_numbers({"w": np.array([[1.0, 2.0], [np.nan, 0.0], [1e20, 0.0]])}).tolist()
    [True, False, False]
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(models)]
    rows = [leaf.reshape(len(leaf), -1) for leaf in leaves if np.issubdtype(leaf.dtype, np.inexact)]
    return np.logical_and.reduce([(np.abs(row) < LARGEST).all(axis=1) for row in rows])  # NaN is not below


def mend_models(build: Build, run: RunState, models: Personal, who: np.ndarray, data_of: Callable[[int], Data]) -> Tree:
    """The stacked models of these clients, others in place of those that are no numbers; `run.fallen` tells whose.

    If several train and not one of them has a model that is a number, the method has diverged: all stay as they are.

    Args:
        build: the engine's. data_of: a client's training data.
    """
    good = are_numbers(jax.tree.map(lambda leaf: leaf[: len(who)], models))
    if good.all():
        return models
    run.fallen.update(who[~good].tolist())
    if not good.any() and (who < len(run.known)).sum() > 1:
        return models
    models = jax.tree.map(lambda leaf: np.array(leaf), models)
    for at in np.flatnonzero(~good):
        i = int(who[at])
        instead = stand_in(build, run, i, data_of(i), jax.tree.map(lambda leaf: leaf[at], models))  # noqa: B023 (at once)
        jax.tree.map(lambda leaf, value: leaf.__setitem__(at, np.asarray(value)), models, instead)  # noqa: B023
    return models


def mend_model(build: Build, run: RunState, model: Personal, i: int, data: Data) -> Personal:
    """The same of one client's model: itself, if that is a number."""
    if _is_number(model):
        return model
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)
    return jax.tree.map(lambda leaf: leaf[0], mend_models(build, run, stacked, np.array([i]), lambda i: data))


def stand_in(build: Build, run: RunState, i: int, data: Data, broken: Personal) -> Personal:
    """What client i uses in place of a model that is no number: the first of these that is one.

    The shared model, where the server's message has one; what a client has that just enrolled; the initial model. If
    nothing that the server sends is a number, the method has diverged, and the model stays as it is.
    """
    method = build(run.hyper, run.round)
    message = method.message(run.server, i)
    sent = [leaf for leaf in map(np.asarray, jax.tree.leaves(message)) if np.issubdtype(leaf.dtype, np.inexact)]
    if sent and not any(_is_number(leaf) for leaf in sent):
        return broken
    return next(filter(_is_number, _candidates(method, run, i, data, message, broken)), broken)


def _is_number(model: Personal) -> bool:
    return bool(are_numbers(jax.tree.map(lambda leaf: np.asarray(leaf)[None], model))[0])


def _candidates(
    method: Method, run: RunState, i: int, data: Data, message: Message, like: Personal
) -> Iterator[Personal]:
    yield from _parts_like(message, like)
    key = key_of(keys(run.seed).personal, run.round, i)

    def fresh(params: Params, message: Message) -> Personal:
        return method.personal(method.enroll(params, message, data, key), message, data, key)

    yield jax.jit(fresh)(run.params, message)
    if _are_alike(run.params, like):
        yield run.params
    else:
        yield jax.jit(fresh)(run.params, method.message(method.init(run.params, keys(run.seed).server), i))


def _parts_like(message: Any, like: Tree) -> Iterator[Tree]:
    """The parts of a message that have the structure and the shapes of a model."""
    if _are_alike(message, like):
        yield message
    elif isinstance(message, tuple | list):
        for part in message:
            yield from _parts_like(part, like)
    elif isinstance(message, dict):
        for part in message.values():
            yield from _parts_like(part, like)


def _are_alike(one: Tree, other: Tree) -> bool:
    shapes = lambda tree: (jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)])
    return shapes(one) == shapes(other) and bool(jax.tree.leaves(one))
