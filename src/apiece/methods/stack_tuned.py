"""StackTuned: a shared network, the same with a last layer of one's own, and the same fine-tuned, mixed by client."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import descend, steps_taken
from apiece.client.draw import whole
from apiece.client.linear import deal_folds, smoothness_of, solve_pulled
from apiece.client.weigh import each_loss, rows_known
from apiece.methods.fed_avg import fed_avg
from apiece.methods.fed_em import Mixture, predict_mixed
from apiece.methods.head import see
from apiece.methods.stack import own_weights
from apiece.protocol import Batch, Client, Data, Loss, Message, Method, Params, Tree
from apiece.registry import FromZero, NotNegative, Passes, Positive, Pull, StepSize
from apiece.split import given, join, split

SOLVE = 40  # accelerated steps to a last layer
HELD_OUT = 0  # of four folds


def stack_tuned(
    loss: Loss,
    *,
    model: Any,
    lam: Pull = 1.0,
    nearer: NotNegative = 0.1,
    tune_part: str = "",
    tune_epochs: Passes = 5,
    tune_lr: StepSize = 0.1,
    on_shared: NotNegative = 1.0,
    on_path: NotNegative = 1.0,
    on_nearer: NotNegative = 1.0,
    on_tuned: NotNegative = 1.0,
    trust: NotNegative = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A mixture of a shared network, two with last layers of one's own, and a fine-tuned one; weights by client.

    Candidates of client i, of n examples: x, the shared model, by FedAvg;  x with the last layer
    h(c) = argmin L_i(x, h) + c/(2n) |h - h_x|^2 on the features that x gives, for c = lam and c = nearer;  and x after
    `tune_epochs` passes of descent on the client's examples, all of it or a part. Its weights: a quarter e is held out,
    with candidates trained without it, r_e(j) ~ w_j exp(-l_e(j)), and
    w_j <- (W_j + trust sum_e r_e(j)) / (1 + trust n_e), W the pooled weights `on_...`, scaled to sum 1: EM.
    Probabilities of classes are mixed, or predicted numbers; not parameters.

    Solves: FedAvg's problem; the last layers' own, to rounding; maximum likelihood of the weights under a Dirichlet
      prior of strength 1/trust around W.
    Sent: x down, FedAvg's update up.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: as FedAvg for x.
    Reference: Wolpert 1992 (Stacked generalization); what `apiece advise` recommends for networks.

    All weight on x is FedAvg; on the tuned one, of all parts, it is FTFA, with other draws. A new client has the pooled
    pull and weights.

    Args:
        model: the model, given by whoever runs the method. If it ends with a dense layer "out" and tells what that
        sees (`features`), it gets last layers; else these candidates are x. lam, nearer: pulls of the last layer, each
        divided by the client's examples. tune_part: what is fine-tuned, see `apiece.split`; nothing: all. tune_epochs,
        tune_lr: passes and steps of that. on_shared, on_path, on_nearer, on_tuned: pooled weights. trust: what a
        held-out example counts against them; 0: they are everybody's.
        steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> from apiece.models import mlp, objective
    >>> model = mlp((2,), 2, hidden=(3,))
    >>> method = stack_tuned(objective(model, "classification").loss, model=model)
    >>> mine = Data(jnp.ones((4, 2)), jnp.array([0, 1, 1, 1]), 0, 4, 4)
    >>> mixture = method.personal((), model.init(jax.random.key(0)), mine, jax.random.key(0))
    >>> round(float(mixture.pi.sum()), 5), len(mixture.pi)
    (1.0, 4)
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch, server_lr=server_lr)

    def candidates(x: Params, rows: Batch, count: Tree, key: Tree) -> Params:
        """Stacked, of these rows; fine-tuned by so many steps."""
        tuned = tune(loss, x, kept_rows(rows), key, tune_part, steps=count, lr=tune_lr, batch=batch)
        if not has_head(model, x, rows):
            return tree.stack([x, x, x, tuned])
        n = jnp.maximum(rows.weight.sum(), 1)
        seen = rows._replace(x=see(model, x, rows.x))
        smooth = smoothness_of(seen, jnp.issubdtype(rows.y.dtype, jnp.integer))
        head = head_in(x)
        pulled = lambda start, c: solve_pulled(head_loss, start, head, seen, c / n, smoothness=smooth, steps=SOLVE)
        path = pulled(head, lam)
        return tree.stack([x, with_head(x, path), with_head(x, pulled(path, nearer)), tuned])

    def personal(client: Client, x: Message, data: Data, key: Tree) -> Mixture:
        rows = whole(data, 0, rows_known(data, "stack_tuned"))
        deal_key, rest_key, score_key, tune_key = jax.random.split(key, 4)
        count = steps_taken(data, 0, tune_epochs, batch)
        out = deal_folds(deal_key, len(rows.weight)) == HELD_OUT
        rest = candidates(x, rows._replace(weight=jnp.where(out, 0, rows.weight)), count, rest_key)
        said = -lax.map(lambda one: each_loss(loss, one, rows, score_key), rest).T
        pooled = jnp.stack([jnp.asarray(each, said.dtype) for each in (on_shared, on_path, on_nearer, on_tuned)])
        pi = own_weights(said, jnp.where(out, rows.weight, 0), pooled / pooled.sum(), trust)
        label = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), data.y)
        return Mixture(candidates(x, rows, count, tune_key), pi, label)

    return base._replace(personal=personal, predict=predict_mixed)


def head_loss(head: Params, batch: Batch, key: Tree) -> jax.Array:
    """The mean loss of a last layer on what it sees: log loss of classes, or half the squared error.

    >>> rows = Batch(jnp.ones((1, 2)), jnp.array([0]), jnp.ones(1))
    >>> round(float(head_loss({"w": jnp.zeros((2, 2)), "b": jnp.zeros(2)}, rows, None)), 4)
    0.6931
    """
    out = batch.x @ head["w"].T + head["b"]
    if jnp.issubdtype(batch.y.dtype, jnp.integer):
        each = -jnp.take_along_axis(jax.nn.log_softmax(out), batch.y[:, None], axis=1)[:, 0]
    else:
        each = ((out - batch.y.reshape(out.shape)) ** 2).sum(axis=1) / 2
    return jnp.sum(batch.weight * each) / jnp.maximum(batch.weight.sum(), 1)


def kept_rows(rows: Batch) -> Data:
    """Rows of weight as a client's data, those of none behind them, where nobody reads.

    >>> kept = kept_rows(Batch(jnp.arange(3.0), jnp.arange(3), jnp.array([0.0, 1.0, 1.0])))
    >>> kept.x[: int(kept.size)].tolist()
    [1.0, 2.0]
    """
    order = jnp.argsort(rows.weight <= 0, stable=True)
    x, y = jax.tree.map(lambda leaf: leaf[order], (rows.x, rows.y))
    return Data(x, y, 0, (rows.weight > 0).sum(dtype=jnp.int32), len(order))


def tune(loss: Loss, x: Params, data: Data, key: Tree, part: str, **how: Any) -> Params:
    """The model after descent on a client's examples, all of it or a part."""
    if not part:
        return descend(loss, x, data, key, **how)
    held, own = split(x, part)
    return join(held, descend(given(loss, held), own, data, key, **how))


def is_adapted(params: Params) -> bool:
    """Whether a model has low-rank adapters beside its own parameters (`apiece.models.adapted`).

    >>> is_adapted({"model": {}, "adapter": {}}), is_adapted({"out": {}})
    (True, False)
    """
    return isinstance(params, dict) and set(params) == {"model", "adapter"}


def head_in(params: Params) -> Params:
    """The last layer "out" of a model, what its adapter adds included.

    >>> low = {"w": {"a": jnp.ones((1, 2)), "b": jnp.ones((1, 1))}, "b": None}
    >>> inner = {"out": {"w": jnp.zeros((1, 2)), "b": jnp.zeros(1)}}
    >>> head_in({"model": inner, "adapter": {"out": low}})["w"].tolist()
    [[1.0, 1.0]]
    """
    if not is_adapted(params):
        return params["out"]
    out = params["model"]["out"]
    return {**out, "w": out["w"] + _added(params)}


def with_head(params: Params, head: Params) -> Params:
    """The model with this last layer: what `head_in` gives back.

    >>> with_head({"out": 1, "hidden": 2}, 3)
    {'out': 3, 'hidden': 2}
    """
    if not is_adapted(params):
        return {**params, "out": head}
    own = {**head, "w": head["w"] - _added(params)}  # the adapter is added to it again where the model is applied
    return {**params, "model": {**params["model"], "out": own}}


def _added(params: Params) -> Any:
    low = params["adapter"]["out"]["w"]
    return 0.0 if low is None else low["b"] @ low["a"]


def has_head(model: Any, params: Params, rows: Batch) -> bool:
    """Whether the model ends with one dense layer "out", tells what that layer sees, and has one answer an example.

    >>> rows = Batch(jnp.ones((2, 3)), jnp.zeros(2), jnp.ones(2))
    >>> from apiece.models import linear, mlp
    >>> [has_head(model, model.init(jax.random.key(0)), rows) for model in (mlp((3,), 1), linear((3,)))]
    [True, False]
    """
    inner = params["model"] if is_adapted(params) else params
    out = inner.get("out") if isinstance(inner, dict) else None
    plain = isinstance(out, dict) and set(out) == {"w", "b"} and out["w"].ndim == 2
    label = jax.tree.leaves(rows.y)[0]
    return getattr(model, "features", None) is not None and plain and label.ndim == 1
