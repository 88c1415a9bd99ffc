"""What defences and attacks share: the states that they put around the server's, and what has to fit together."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from apiece.errors import UserError
from apiece.protocol import Params, Reply, Server, Tree


class Robust(NamedTuple):
    """The server of `robust`: the method's own, and the last aggregate of a rule that reads it (else nothing).

    >>> Robust("the method's server", last=()).inner
    "the method's server"
    """

    inner: Server
    last: Tree


class Attacked(NamedTuple):
    """The server of `attacked`: the one under attack, what the attackers remember, and who they are.

    >>> Attacked("the server", memory=(), who=(3, 7)).inner
    'the server'
    """

    inner: Server
    memory: Tree
    who: Tree


class Rejections(NamedTuple):
    """How many replies were rejected so far, and why.

    >>> Rejections(not_finite=2, too_large=1)
    Rejections(not_finite=2, too_large=1)
    """

    not_finite: Tree
    too_large: Tree


class Guarded(NamedTuple):
    """The server of `guarded`: the method's own, and what was rejected.

    >>> Guarded("the server", Rejections(0, 0)).rejected.too_large
    0
    """

    inner: Server
    rejected: Rejections


def refuse_attacked(server: Server, wrapper: str) -> Server:
    """A server that is not under attack yet: a defence outside of an attack would be void."""
    if isinstance(server, Attacked):
        raise UserError(
            f"{wrapper}(attacked(...)) would forge what the defence has already answered: "
            f"write attacked({wrapper}(...), ...), so that the attack comes first"
        )
    return server


def like_the_model(params: Params) -> Reply:
    """What most replies look like."""
    return params


def keep_flags(changed: Reply, replies: Reply) -> Reply:
    """The changed replies, but for truth values, which stay: they say of which kind a reply is, and are no numbers.

    A reply of `staged` tells its stage in this way. One that named the other stage would not be heard at all.

    >>> keep_flags({"later": jnp.array([True]), "w": -1.0}, {"later": jnp.array([False]), "w": 1.0})["later"].tolist()
    [False]
    """
    flag = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jnp.bool_)
    return jax.tree.map(lambda new, old: old if flag(old) else new, changed, replies)


def check_reply(kept: Tree, expected: Tree, wrapper: str) -> None:
    """What is remembered of replies must look like one."""
    shapes = lambda given: (jax.tree.structure(given), [jnp.shape(leaf) for leaf in jax.tree.leaves(given)])
    if shapes(kept) != shapes(expected):
        raise UserError(
            f"this method's replies do not look like its model: give {wrapper}(..., reply=lambda params: ...) "
            "a tree that looks like one reply"
        )
