"""Replies that are not finite, or far too long, are rejected and counted. Can be deployed."""

import jax.numpy as jnp

from apiece.aggregate import flatten, median
from apiece.errors import UserError
from apiece.protocol import Cohort, Method, Params, Reply, Server, Tree, merge_replies, with_merge
from apiece.wrap.inside import Attacked, Guarded, Rejections, Robust, refuse_attacked


def guarded(method: Method, *, most: Tree = 10.0) -> Method:
    """Rejects replies that are not finite, or longer than `most` times the median length of the finite ones.

    A rejected reply gets weight 0, and is counted (`rejections`); its client hears that it did not count. The length
    is the norm over the whole tree. With `most` infinite, only what is not finite is rejected.

    >>> import jax
    >>> from apiece.methods import fed_avg
    >>> method = guarded(fed_avg(lambda params, batch, key: 0.0), most=3.0)
    >>> updates = jnp.array([[1.0], [2.0], [1e9], [jnp.nan]])
    >>> cohort = Cohort(jnp.arange(4), jnp.ones(4), jnp.zeros(4, int), 4)
    >>> server = method.merge(method.init(jnp.zeros(1), jax.random.key(0)), updates, cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist(), rejections(server)
    ([1.5], {'not_finite': 1, 'too_large': 1})
    """

    if isinstance(most, int | float) and not most > 0:
        raise UserError(f"most is how many times the median length a reply may have, above 0, not {most}")

    def init(params: Params, key: Tree) -> Server:
        return Guarded(refuse_attacked(method.init(params, key), "guarded"), Rejections(jnp.int32(0), jnp.int32(0)))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        rows, _ = flatten(replies, len(cohort.weight))
        present = cohort.weight > 0
        finite = present & jnp.isfinite(rows).all(axis=1)
        length = jnp.linalg.norm(jnp.where(finite[:, None], rows, 0), axis=1)
        usual = median()(length, finite.astype(jnp.float32))
        accepted = finite & (length <= most * usual)
        count = lambda rejected: rejected.sum(dtype=jnp.int32)
        before = server.rejected
        rejected = Rejections(
            before.not_finite + count(present & ~finite), before.too_large + count(finite & ~accepted)
        )
        heard = cohort._replace(weight=jnp.where(accepted, cohort.weight, 0))
        inner, counted = merge_replies(method, server.inner, replies, heard, key)
        return Guarded(inner, rejected), counted

    message = lambda server, i: method.message(server.inner, i)
    return with_merge(method, merge, refuses=True, init=init, message=message)


def rejections(server: Server) -> dict[str, int]:
    """What `guarded` has rejected so far, by reason; also when `robust` or `attacked` is around it.

    >>> rejections(Attacked(Guarded("the method's server", Rejections(2, 0)), memory=(), who=()))
    {'not_finite': 2, 'too_large': 0}
    """
    guard = guard_of(server)
    if guard is None:
        raise UserError("this server counts no rejections: wrap the method in guarded(...) before it is run")
    return {reason: int(number) for reason, number in guard.rejected._asdict().items()}


def guard_of(server: Server) -> Guarded | None:
    """The state of `guarded`, if it is there, alone or inside `robust` or `attacked`.

    >>> guard_of(Robust("the method's server", last=()))
    """
    while isinstance(server, Robust | Attacked):
        server = server.inner
    return server if isinstance(server, Guarded) else None
