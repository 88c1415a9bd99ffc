"""A client optimizer for every method: the gradients of `descend` go through it, whoever calls.

The optimizer travels with the loss, which every method is given and hands to `descend`: no method has to know of it.
`lr`, and its schedule, stay the method's: an optimizer is made with learning rate 1.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from apiece import tree
from apiece.client.solve import optimizers
from apiece.errors import UserError, suggest
from apiece.own import import_thing
from apiece.protocol import Batch, Client, Data, Loss, Message, Method, Params, Reply, Tree

Optimizer = Any  # an optax.GradientTransformation


def make_optimizer(name: Any, options: Mapping[str, Any] | None = None, clip: float | None = None) -> Optimizer:
    """The direction that an optax optimizer gives, to be scaled by a step size.

    Args:
        name: an optimizer of optax ("adam", "adamw", "sgd", "lion", ...); "package.module:function" or a function that
            makes one, with learning rate 1; or an optax transformation. options: its own (weight_decay, momentum, b1).
        clip: gradients longer than this are made so long, before anything else.

    >>> rule = make_optimizer("sgd", {"momentum": 0.5}, clip=1.0)
    >>> float(rule.update(jnp.array(4.0), rule.init(jnp.array(0.0)))[0])
    1.0
    >>> try: make_optimizer("adamm")
    ... except UserError as error: print(error)
    unknown optimizer 'adamm': did you mean 'adam'?
    """
    made = _made(name, dict(options or {}))
    if not (hasattr(made, "init") and hasattr(made, "update")):
        raise UserError(f"optimizer {name!r} is no optax transformation, but {made!r}")
    first = [] if clip is None else [optax.clip_by_global_norm(clip)]
    return optax.chain(*first, made, optax.scale(-1.0))


def _made(name: Any, options: dict[str, Any]) -> Any:
    if not isinstance(name, str):
        return name(**options) if callable(name) else name
    if ":" in name:
        return import_thing(name, "optimizer")(**options)
    if name not in optimizers():
        raise UserError(f"unknown optimizer '{name}': {suggest(name, optimizers())}")
    factory = getattr(optax, name)
    known = [option for option in inspect.signature(factory).parameters if option != "learning_rate"]
    for option in options:
        if option not in known:
            raise UserError(f"optimizer '{name}' has no option '{option}': {suggest(option, known)}")
    return factory(learning_rate=1.0, **options)


class Tape:
    """The memories of a client's optimizer during one visit: those it kept, and those its trainings leave, in order."""

    def __init__(self) -> None:
        self.trainings = 0
        self.kept: list[Tree] = []
        self.begun: Tree = False
        self.left: list[Tree] = []

    def play(self, kept: tuple[Tree, ...], begun: Tree) -> None:
        """A visit begins, with what is kept (`begun`: whether that means anything yet)."""
        self.kept, self.begun, self.left = list(kept), begun, []

    def stop(self) -> tuple[Tree, ...]:
        """The visit is over: what its trainings left."""
        left, self.kept, self.left = tuple(self.left), [], []
        return left


@dataclasses.dataclass(frozen=True, eq=False)
class OptimizedLoss:
    """A loss, and the optimizer that its gradients go through; `descend` asks for it.

    >>> loss = OptimizedLoss(lambda params, batch, key: params**2, make_optimizer("adam"), Tape())
    >>> float(loss(3.0, Batch(jnp.zeros(1), jnp.zeros(1), jnp.ones(1)), None))
    9.0
    """

    loss: Loss
    optimizer: Optimizer
    tape: Tape

    def __call__(self, params: Params, batch: Batch, key: Any) -> Any:
        """The loss itself."""
        return self.loss(params, batch, key)

    def over(self, other: Loss) -> "OptimizedLoss":
        """Another loss, of a part of the model for instance, whose gradients go the same way."""
        return dataclasses.replace(self, loss=other)

    def begin(self, params: Params) -> Tree:
        """The memory with which a training begins: a fresh one, or the one that the same training left last time."""
        self.tape.trainings += 1
        fresh = self.optimizer.init(params)
        return tree.where(self.tape.begun, self.tape.kept.pop(0), fresh) if self.tape.kept else fresh

    def end(self, memory: Tree) -> None:
        """A training is over."""
        self.tape.left.append(memory)


class Remembering(NamedTuple):
    """A client's own state, and the memories of its optimizer."""

    client: Client
    memories: tuple[Tree, ...]
    begun: Tree


def keep_memories(method: Method, tape: Tape) -> Method:
    """The method whose clients keep the memories of their optimizer from visit to visit (moments, counts)."""

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Remembering:
        client = method.enroll(params, message, data, key)

        def first_visit() -> tuple[Tree, ...]:
            tape.play((), False)
            method.local(client, message, data, key)
            return tape.stop()

        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(first_visit))
        return Remembering(client, blank, jnp.asarray(False))

    def local(own: Remembering, message: Message, data: Data, key: Tree) -> tuple[Remembering, Reply]:
        tape.play(own.memories, own.begun)
        client, reply = method.local(own.client, message, data, key)
        return Remembering(client, tape.stop(), jnp.asarray(True)), reply

    keep = method.keep
    return method._replace(
        enroll=enroll,
        local=local,
        personal=lambda own, message, data, key: method.personal(own.client, message, data, key),
        keep=keep and (lambda before, after: after._replace(client=keep(before.client, after.client))),
        forgets=False,
    )
