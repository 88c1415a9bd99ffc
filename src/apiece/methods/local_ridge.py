"""Local ridge: every client alone, its linear model solved and not trained."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.draw import whole
from apiece.client.solve import newton
from apiece.client.weigh import rows_known
from apiece.errors import UserError
from apiece.protocol import Batch, Client, Data, Loss, Message, Method, Params, Tree, keep_work
from apiece.registry import Ridge

GRID = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)  # ridges that a client tries, the strongest first: each starts the next
FOLDS = 5
FREE = 0.1  # the pull on the intercept of a classifier, divided by the examples: a class never seen is not impossible


def local_ridge(loss: Loss, *, model: Any, ridge: Ridge = 0.0) -> Method:
    """Every client alone with the solution of its ridge problem: the strongest that a linear model gets by itself.

    Client: v = argmin L_i(v) + ridge/2 |w|^2, once, when it enrolls; w is the matrix of the model, and its intercept is
    free. One ridge for all, which tuning chooses on validation; or, with ridge = 0, each client's own, of seven the one
    with the least loss in five-fold cross-validation on its training examples. As 0 is among what tuning tries, every
    client has its own where that is better on validation.

    Solves: min L_i(v) + ridge/2 |w|^2 for each client alone, to rounding.
    Sent: nothing.
    Kept: v by the client.
    Forgetting: the same; it is solved again.
    Guarantee: the least of its problem; any engine, clients do not meet.
    Reference: Hoerl and Kennard 1970 (Ridge regression).

    Args:
        model: the model, given by whoever runs the method: a linear map with an intercept, for numbers or classes.
        ridge: strength of the pull to zero; 0: each client chooses.

    >>> from apiece.models import linear, objective
    >>> model = linear((1,))
    >>> method = local_ridge(objective(model, "regression").loss, model=model, ridge=1.0)
    >>> mine = Data(jnp.array([[-1.0], [1.0]]), jnp.array([4.0, 6.0]), start=0, size=2, capacity=2)
    >>> v = method.enroll(model.init(jax.random.key(0)), (), mine, jax.random.key(0))
    >>> round(float(v["w"][0, 0]), 4), round(float(v["b"][0]), 4)  # alone: 1; and the mean
    (0.5, 5.0)
    """

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        check_linear(model, params, data)
        mine = whole(data, 0, rows_known(data, "local_ridge"))
        solve = lambda start, batch, ridge: newton(lambda v: ridge_loss(loss, v, batch, ridge, key), start)
        own = lambda: choose_ridge(loss, solve, tree.zeros(params), mine, key)
        chosen = lax.cond(ridge > 0, lambda: jnp.asarray(ridge, mine.weight.dtype), own)
        return solve(tree.zeros(params), mine, chosen)

    return Method(
        init=lambda params, key: (),
        message=lambda server, i: (),
        merge=lambda server, replies, cohort, key: (),
        enroll=enroll,
        local=lambda v, message, data, key: (v, ()),
        personal=lambda v, message, data, key: v,
        keep=keep_work,
    )


def ridge_loss(loss: Loss, v: Params, batch: Batch, ridge: Tree, key: Tree) -> jax.Array:
    """The client's loss with its pull to zero; of a classifier the intercept is pulled a little, too.

    >>> flat = lambda v, batch, key: 0.0
    >>> batch = Batch(jnp.zeros((1, 2)), jnp.zeros(1), jnp.ones(1))
    >>> float(ridge_loss(flat, {"w": jnp.ones((1, 2)), "b": jnp.ones(1)}, batch, 0.5, None))
    0.5
    """
    classes = jnp.issubdtype(batch.y.dtype, jnp.integer)
    free = FREE / jnp.maximum(batch.weight.sum(), 1) if classes else 0.0
    square = lambda leaf, by: by / 2 * jnp.sum(leaf * leaf)
    return loss(v, batch, key) + square(v["w"], ridge) + square(v["b"], free)


def choose_ridge(loss: Loss, solve: Any, start: Params, mine: Batch, key: Tree) -> jax.Array:
    """Of `GRID`, the ridge with the least held-out loss in cross-validation on the client's own examples."""
    # Folds are dealt in a random order: rows may be sorted by label or by time.
    order = jnp.argsort(jnp.where(mine.weight > 0, jax.random.uniform(key, mine.weight.shape), 2.0))
    fold = jnp.argsort(order) % FOLDS

    def held_out(which: Tree) -> jax.Array:
        rest, out = (mine._replace(weight=mine.weight * chosen) for chosen in (fold != which, fold == which))

        def at(v: Params, ridge: Tree) -> tuple[Params, jax.Array]:
            v = solve(v, rest, ridge)
            return v, loss(v, out, key) * out.weight.sum()

        return lax.scan(at, start, jnp.array(GRID, mine.weight.dtype))[1]

    return jnp.array(GRID, mine.weight.dtype)[jnp.argmin(lax.map(held_out, jnp.arange(FOLDS)).sum(0))]


def check_linear(model: Any, params: Params, data: Data) -> None:
    """The model is one matrix `w` and a bias `b`, applied to the example itself, with one answer an example.

    >>> from apiece.models import mlp
    >>> model = mlp((2,), 3, hidden=(4,))
    >>> try: check_linear(model, model.init(jax.random.key(0)), Data(jnp.ones((5, 2)), jnp.zeros(5, int), 0, 5))
    ... except UserError as error: print(error)
    method 'local_ridge' solves linear models, of one matrix 'w' and one bias 'b', and mlp 2-4-3 is another: take the
    model 'softmax' or 'linear', or the method 'local', which has a ridge for any model
    """
    plain = isinstance(params, dict) and set(params) == {"w", "b"} and (params["w"].ndim, params["b"].ndim) == (2, 1)
    given = jax.eval_shape(lambda x: model.apply(params, jax.tree.map(lambda leaf: leaf[:1], x)), data.x)
    if not plain or not isinstance(given, jax.ShapeDtypeStruct) or given.ndim > 2:
        raise UserError(
            "method 'local_ridge' solves linear models, of one matrix 'w' and one bias 'b', and "
            f"{getattr(model, 'name', 'the model')} is another: take the model 'softmax' or 'linear', or the method "
            "'local', which has a ridge for any model"
        )
