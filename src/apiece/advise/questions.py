"""What the pilot asks of clients: pure functions of a message, the client's data and its key.

What leaves a client: sums of losses and gradients, a few moments, and one small model (of a sample of clients, to look
for groups). Scores of single held-out examples do not: `score_question` is answered by the client to itself (`weigh`).

Everything is about models that are linear in their parameters, `w` and `b` (or the last layer of a network, on its
features): their smoothness is known from the rows, and accelerated steps on all rows solve them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.advise.folds import Setting, held_out, rows_dealt
from apiece.client.draw import whole
from apiece.client.linear import smoothness_of, solve_pulled, with_intercept
from apiece.client.solve import accelerated
from apiece.methods.local_ridge import ridge_loss
from apiece.protocol import Batch, Data, Loss, Message, Params, Question, Tree

HELD = 64  # held-out examples of a client, at most, in one setting
STEPS = 25  # accelerated steps to each point of the path
LOCAL_STEPS = 20  # and to each ridge, from the solution of a stronger one
CLASSES = 5  # whose probabilities are told of an example: the true one, and those that candidates take for likely
PSEUDO = 10.0  # examples of the shared model's mind that a client's own class frequencies are mixed with
KINDS = (2, 3, 4)  # how many groups are tried
EACH_KIND = tuple((sum(KINDS[:k]), sum(KINDS[: k + 1])) for k in range(len(KINDS)))  # where their models stand
PROBES = 8  # random directions in which the Hessian is looked at


class Linear(NamedTuple):
    """A model that is linear in its parameters, as the pilot sees it: loss, outputs, and classes (0: none)."""

    loss: Loss
    apply: Callable[[Params, Any], Any]
    classes: int


def weighted(loss: Loss, params: Params, batch: Batch, weight: jax.Array) -> jax.Array:
    """The sum over rows of these weights of the loss."""
    return loss(params, batch._replace(weight=weight), None) * jnp.maximum(weight.sum(), 1)


@lru_cache(maxsize=64)
def slope_question(of: Linear, settings: tuple[Setting, ...], most: int) -> Question:
    """(loss, gradient, rows) summed, of one model for each setting, over the rows that it does not hold out."""

    def answer(message: Message, data: Data, key: Tree) -> tuple:
        models, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        weight = jnp.where(held_out(fold, settings), 0, batch.weight)
        both = jax.value_and_grad(lambda params, w: weighted(of.loss, params, batch, w))
        return (*jax.vmap(both)(models, weight), weight.sum(axis=1))

    return Question(answer)


@lru_cache(maxsize=64)
def unseen_question(of: Linear, settings: tuple[Setting, ...], most: int) -> Question:
    """(loss summed, rows) of one model for each setting, over the rows that it holds out: a row a client."""

    def answer(message: Message, data: Data, key: Tree) -> tuple:
        models, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        weight = jnp.where(held_out(fold, settings), batch.weight, 0)
        losses = jax.vmap(lambda params, w: weighted(of.loss, params, batch, w))(models, weight)
        return losses.sum(), weight.sum()

    return Question(answer, stacked=True)


class Moments(NamedTuple):
    """What a client says of its gradient at the shared model, and of its rows; all but `curved` are numbers."""

    square: Any  # |g_i|^2
    noise: Any  # the variance of one example's gradient
    trace: Any  # of the Hessian
    size: Any


@lru_cache(maxsize=64)
def moments_question(of: Linear, most: int) -> Question:
    """(each client's moments at the shared model): a row a client."""

    def answer(message: Message, data: Data, key: Tree) -> Moments:
        shared = message
        batch = whole(data, 0, most)
        n = jnp.maximum(batch.weight.sum(), 1)
        rows = with_intercept(batch.x)
        square = jnp.sum(rows * rows, axis=1)
        wrong, bend = _residuals(of, shared, batch)
        g = jnp.einsum("n,nc,nd->cd", batch.weight, wrong, rows) / n
        each = jnp.sum(batch.weight * square * jnp.sum(wrong * wrong, axis=1)) / n
        noise = jnp.maximum(each - jnp.sum(g * g), 0) * n / jnp.maximum(n - 1, 1)
        return Moments(jnp.sum(g * g), noise, jnp.sum(batch.weight * square * bend) / n, batch.weight.sum())

    return Question(answer, stacked=True)


@lru_cache(maxsize=64)
def curvature_question(of: Linear, most: int) -> Question:
    """The pooled Hessian at the shared model times random directions, summed over rows."""

    def answer(message: Message, data: Data, key: Tree) -> Tree:
        shared, along = message
        batch = whole(data, 0, most)
        slope = jax.grad(lambda params: weighted(of.loss, params, batch, batch.weight))
        return jax.vmap(lambda v: jax.jvp(slope, (shared,), (v,))[1])(along)

    return Question(answer)


@lru_cache(maxsize=64)
def rows_question(classes: int, most: int) -> Question:
    """Sums that tell how clients' rows and labels differ: of rows, of their squares, of the clients' squared means."""

    def answer(message: Message, data: Data, key: Tree) -> dict[str, Any]:
        batch = whole(data, 0, most)
        n, w = jnp.maximum(batch.weight.sum(), 1), batch.weight
        x = with_intercept(batch.x)[:, :-1]
        labels = jax.nn.one_hot(batch.y, classes) if classes else batch.y.reshape(len(w), -1).astype(x.dtype)
        found: dict[str, Any] = {"clients": jnp.ones(()), "rows": w.sum()}
        for name, values in (("x", x), ("y", labels)):
            total = w @ values
            found |= {f"{name}_sum": total, f"{name}_square": jnp.sum(w @ (values * values)),
                      f"{name}_means": jnp.sum(total * total) / n}  # fmt: skip
        return found

    return Question(answer)


@lru_cache(maxsize=64)
def moved_question(of: Linear, settings: tuple[Setting, ...], most: int) -> Question:
    """How far a client's own model lies from the shared one at one point of the path, by setting: a row each."""

    def answer(message: Message, data: Data, key: Tree) -> Tree:
        shared, c, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        weight = jnp.where(held_out(fold, settings), 0, batch.weight)

        def one(shared: Params, w: jax.Array) -> Tree:
            mine = batch._replace(weight=w)
            return tree.sub(
                tree.take(walk_path(of, shared, mine, smoothness_of(mine, bool(of.classes)), c[None]), 0), shared
            )

        return jax.vmap(one)(shared, weight)

    return Question(answer, stacked=True)


@lru_cache(maxsize=64)
def groups_question(of: Linear, settings: tuple[Setting, ...], most: int) -> Question:
    """(losses, gradients, rows) summed, of each of the group models: a client counts for the one of each kind whose
    *anchor* has the least loss on its rows."""

    def answer(message: Message, data: Data, key: Tree) -> tuple:
        anchors, models, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        weight = jnp.where(held_out(fold, settings), 0, batch.weight)

        def one(anchors: Params, models: Params, w: jax.Array) -> tuple:
            chosen = choose_groups(of, anchors, batch, w)
            marks = [jax.nn.one_hot(k, sum(KINDS)) for k in chosen]

            def total(models: Params) -> tuple[jax.Array, jax.Array]:
                losses = [weighted(of.loss, tree.take(models, k), batch, w) for k in chosen]
                each = jnp.stack([loss * mark for loss, mark in zip(losses, marks, strict=True)])
                return jnp.stack(losses).sum(), each.sum(axis=0)

            slopes, losses = jax.grad(total, has_aux=True)(models)
            return losses, slopes, sum(marks) * w.sum()

        return jax.vmap(one)(anchors, models, weight)

    return Question(answer)


def choose_groups(of: Linear, models: Params, batch: Batch, weight: jax.Array) -> list[jax.Array]:
    """Of each kind, the number of the model with the least loss."""
    losses = lax.map(lambda params: weighted(of.loss, params, batch, weight), models)
    losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
    return [first + jnp.argmin(losses[first:last]) for first, last in EACH_KIND]


@lru_cache(maxsize=64)
def members_question(of: Linear, most: int) -> Question:
    """To which group model of each kind a client belongs, by its whole data: a row a client."""

    def answer(message: Message, data: Data, key: Tree) -> jax.Array:
        batch = whole(data, 0, most)
        chosen = choose_groups(of, message, batch, batch.weight)
        return jnp.stack([k - first for k, (first, _) in zip(chosen, EACH_KIND, strict=True)]).astype(jnp.int32)

    return Question(answer, stacked=True)


class Scores(NamedTuple):
    """What a client says of its held-out examples, setting by setting: [settings, held, candidates, ...].

    Of classes, `said` is the log probability of some classes, the true one first; of numbers, target minus prediction.
    """

    said: Any
    present: Any


@lru_cache(maxsize=64)
def score_question(of: Linear, settings: tuple[Setting, ...], most: int, grouped: bool) -> Question:
    """The held-out scores of all candidates: shared, with own frequencies, the path, local, groups: a row each."""
    held = min(HELD, -(-most // 4) * max(map(len, settings)))

    def answer(message: Message, data: Data, key: Tree) -> Scores:
        shared, cs, ridges, groups, seed = message
        batch, fold = rows_dealt(data, key, seed, most)
        out = held_out(fold, settings) & (batch.weight > 0)
        luck = jax.random.uniform(jax.random.fold_in(key, seed), fold.shape)

        def one(shared: Params, groups: Params, out: jax.Array) -> Scores:
            mine = batch._replace(weight=jnp.where(out, 0, batch.weight))
            smooth = smoothness_of(mine, bool(of.classes))
            path, local = walk_path(of, shared, mine, smooth, cs), _alone(of, shared, mine, smooth, ridges)
            one_of = lambda params: jax.tree.map(lambda leaf: leaf[None], params)
            found = [one_of(shared), one_of(own_frequencies(of, shared, mine)), path, local]
            if grouped:
                found.append(tree.stack([tree.take(groups, k) for k in choose_groups(of, groups, batch, mine.weight)]))
            models = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)
            which = jnp.argsort(jnp.where(out, luck, 2.0))[:held]
            x, y = jax.tree.map(lambda leaf: leaf[which], (batch.x, batch.y))
            said = jax.vmap(lambda params: of.apply(params, x))(models)
            return Scores(tell_outputs(of, said, y), out[which].astype(jnp.float32))

        return jax.vmap(one)(shared, groups, out)

    return Question(answer, stacked=True)


def candidate_names(cs: int, ridges: int, grouped: bool) -> list[str]:
    """What stands where among the candidates of a score.

    >>> candidate_names(2, 1, True)
    ['shared', 'frequencies', 'path 0', 'path 1', 'local 0', '2 groups', '3 groups', '4 groups']
    """
    groups = [f"{k} groups" for k in KINDS] if grouped else []
    return ["shared", "frequencies", *(f"path {k}" for k in range(cs)), *(f"local {k}" for k in range(ridges)), *groups]


@lru_cache(maxsize=64)
def spectrum_question(of: Linear, most: int) -> Question:
    """The eigenvalues of a client's Hessian, roughly: those of its rows (some of them, if it has many): a row each."""

    def answer(message: Message, data: Data, key: Tree) -> jax.Array:
        batch = whole(data, 0, most)
        n = jnp.maximum(batch.weight.sum(), 1)
        rows = with_intercept(batch.x) * batch.weight[:, None] / jnp.sqrt(n)
        bend = jnp.sum(batch.weight * _residuals(of, message, batch)[1]) / n / max(of.classes, 1)
        square = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
        return jnp.maximum(jnp.linalg.eigvalsh(square), 0) * (bend if of.classes else 1.0)

    return Question(answer, stacked=True)


def walk_path(of: Linear, shared: Params, mine: Batch, smooth: jax.Array, cs: jax.Array) -> Params:
    """The path's points, stacked: min L_i(p) + c/(2 n_i) |p - shared|^2, each from the one before it."""
    n = jnp.maximum(mine.weight.sum(), 1)

    def to(p: Params, c: jax.Array) -> tuple[Params, Params]:
        p = solve_pulled(of.loss, p, shared, mine, c / n, smoothness=smooth, steps=STEPS)
        return p, p

    return lax.scan(to, shared, cs)[1]


def _alone(of: Linear, like: Params, mine: Batch, smooth: jax.Array, ridges: jax.Array) -> Params:
    """Local models by ridge, the strongest first, stacked; as the method `local_ridge` solves them."""

    def to(v: Params, ridge: jax.Array) -> tuple[Params, Params]:
        slope = jax.grad(lambda v: ridge_loss(of.loss, v, mine, ridge, None))
        v = accelerated(slope, v, smoothness=smooth + ridge, convexity=ridge, steps=LOCAL_STEPS)
        return v, v

    return lax.scan(to, tree.zeros(like), ridges)[1]


def own_frequencies(of: Linear, shared: Params, mine: Batch) -> Params:
    """The shared model with an intercept of the client's own: by how often it has each class, or by its mean."""
    out = of.apply(shared, mine.x)
    weight, n = mine.weight, mine.weight.sum()
    if not of.classes:
        wrong = (mine.y - out).reshape(len(weight), -1)
        return {**shared, "b": shared["b"] + weight @ wrong / (n + PSEUDO)}
    thought = jax.nn.softmax(out)
    usual = (weight @ thought + 1e-3) / (n + 1e-3 * of.classes)
    seen = weight @ jax.nn.one_hot(mine.y, of.classes)
    own = (seen + PSEUDO * usual) / (n + PSEUDO)
    return {**shared, "b": shared["b"] + jnp.where(n > 0, jnp.log(own) - jnp.log(usual), 0)}


def _residuals(of: Linear, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """([rows, outputs] what the loss's derivative by the outputs is, [rows] the trace of its second derivative)."""
    out = of.apply(params, batch.x)
    if not of.classes:
        wrong = (out - batch.y).reshape(len(batch.weight), -1)
        return wrong, jnp.full(len(wrong), float(wrong.shape[1]))
    p = jax.nn.softmax(out)
    return p - jax.nn.one_hot(batch.y, of.classes), jnp.sum(p * (1 - p), axis=1)


def tell_outputs(of: Linear, said: jax.Array, y: jax.Array) -> jax.Array:
    """[held, candidates, classes told] log probabilities, the true class first; or [held, candidates, outputs]."""
    if not of.classes:
        return jnp.moveaxis(y[None] - said, 0, 1).reshape(len(y), len(said), -1)
    logs = jax.nn.log_softmax(said)  # [candidates, held, classes]
    others = jnp.exp(logs).mean(axis=0) - 2.0 * jax.nn.one_hot(y, of.classes)
    likely = lax.top_k(others, min(CLASSES, of.classes) - 1)[1]
    which = jnp.concatenate([y[:, None], likely], axis=1)
    return jnp.moveaxis(jnp.take_along_axis(logs, which[None], axis=2), 0, 1)
