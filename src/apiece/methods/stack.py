"""Stack: shared, personal, local and group models, mixed; clients weigh them by what their held-out rows say."""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import full_loss
from apiece.client.draw import whole
from apiece.client.linear import deal_folds, smoothness_of, solve_pulled
from apiece.client.solve import accelerated
from apiece.client.weigh import each_loss, rows_known
from apiece.methods.fed_avg import fed_avg
from apiece.methods.fed_em import Mixture, predict_mixed
from apiece.methods.ifca import start_apart
from apiece.methods.local_ridge import check_linear, ridge_loss
from apiece.protocol import Batch, Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, NotNegative, Number, Passes, Positive, Pull, Ridge, StepSize

SOLVE = 40  # accelerated steps to a candidate
WEIGH = 25  # of EM, for a client's own weights
HELD_OUT = (0, 1)  # of four folds, one after the other
LOCAL = 3  # where the local model stands among candidates
GUIDED = 20  # rounds in which the groups that are given count; then everybody chooses


def stack(
    loss: Loss,
    *,
    model: Any,
    lam: Pull = 1.0,
    nearer: NotNegative = 0.1,
    ridge: Ridge = 0.1,
    groups: int = 2,
    members: Annotated[Any, Number(each=True)] | None = None,
    alone: Annotated[Any, Number(most=1, each=True)] | None = None,
    on_shared: NotNegative = 1.0,
    on_path: NotNegative = 1.0,
    on_nearer: NotNegative = 1.0,
    on_local: NotNegative = 1.0,
    on_groups: NotNegative = 1.0,
    trust: NotNegative = 0.03,
    decay: NotNegative = 0.0,
    apart: Positive = 0.1,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """A mixture of a shared model, two between it and one's own, a local one and that of a group; weights by client.

    Candidates of client i, of n examples: x, the shared model, by FedAvg;  p(c) = argmin L_i(p) + c/(2n) |p - x|^2 for
    c = lam and c = nearer;  local_ridge's with `ridge`;  and x_k, k = argmin_j L_i(x_j), of `groups` models as IFCA's.
    Its weights: e is held out of its n examples, with candidates trained without it, r_e(j) ~ w_j exp(-l_e(j)), and
    w_j <- (W_j + trust sum_e r_e(j)) / (1 + trust n_e), W the pooled weights `on_...`, scaled to sum 1: EM.
    Probabilities of classes are mixed, or predicted numbers; not parameters.

    Solves: FedAvg's and IFCA's problems; the candidates' own, to rounding; maximum likelihood of the weights under a
      Dirichlet prior of strength 1/trust around W.
    Sent: x and all x_k down, a number that guides to a group, and whether to keep to the local model; FedAvg's update
      of x and of one x_k, and which, up.
    Kept: nothing.
    Forgetting: the same; nothing is kept.
    Guarantee: as FedAvg for x; a mixture is no worse than its best candidate up to the error of the weights.
    Reference: Wolpert 1992 (Stacked generalization); what `apiece advise` recommends where no one candidate will do.

    All weight on x is FedAvg; on the path it is RTFA, whose pull is lam/n here; on local it is local_ridge; on groups
    it is IFCA. A new client has the pooled pull and weights, and chooses its group. A client that is to be alone still
    trains with the others; its own predictions are those of its local model.

    Args:
        model: the model, given by whoever runs the method: a linear map with an intercept. lam, nearer: pulls, each
        divided by the client's examples. ridge: of the local model. groups: how many; 1: none. members: the group of
        each client in the first rounds, for a start that is known to be good. alone: for each client 1, if all its
        weight is on local, or 0. on_shared, on_path, on_nearer, on_local, on_groups: pooled weights. trust: what a
        held-out example counts against them; 0: they are everybody's.
        decay: a ridge on x and the x_k, in their training.
        apart: how far from one another group models start. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> from apiece.models import objective, softmax
    >>> model = softmax((2,), 2)
    >>> method = stack(objective(model, "classification").loss, model=model, groups=1)
    >>> mine = Data(jnp.ones((4, 2)), jnp.array([0, 1, 1, 1]), 0, 4, 4)
    >>> x = model.init(jax.random.key(0))
    >>> mixture = method.personal((), method.message(method.init(x, None), 0), mine, jax.random.key(0))
    >>> round(float(mixture.pi.sum()), 5), len(mixture.pi)
    (1.0, 4)
    """
    square = lambda params: sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(params))
    regular: Loss = lambda params, batch, key: loss(params, batch, key) + decay / 2 * square(params)
    base = fed_avg(regular, steps=steps, epochs=epochs, lr=lr, batch=batch)
    guide = None if members is None else jnp.asarray(members, jnp.int32)
    lonely = None if alone is None else jnp.asarray(alone, jnp.float32) > 0
    kinds = [on_shared, on_path, on_nearer, on_local, *([on_groups] if groups > 1 else [])]

    def init(params: Params, key: Tree) -> Server:
        return (params, start_apart(params, key, groups, apart), jnp.zeros((), jnp.int32)) if groups > 1 else params

    def message(server: Server, i: Tree) -> Message:
        if lonely is None:
            return message_of(server, i)
        return message_of(server, i), jnp.where(i < len(lonely), lonely[jnp.minimum(i, len(lonely) - 1)], False)

    def message_of(server: Server, i: Tree) -> Message:
        if groups == 1:
            return server
        x, several, round = server
        if guide is None:
            return x, several, jnp.array(-1, jnp.int32)
        mine = jnp.where(i < len(guide), guide[jnp.minimum(i, len(guide) - 1)], -1)
        return x, several, jnp.where(round < GUIDED, mine, -1).astype(jnp.int32)

    def choose(several: Params, guided: Tree, data: Data, key: Tree) -> Tree:
        losses = lax.map(lambda one: full_loss(loss, one, data, jax.random.fold_in(key, groups)), several)
        return jnp.where(guided >= 0, guided, jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)))

    def local(client: Client, said: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        said = said if lonely is None else said[0]
        if groups == 1:
            return base.local(client, said, data, key)
        x, several, guided = said
        shared_key, group_key = jax.random.split(key)
        k = choose(several, guided, data, key)
        client, update = base.local(client, x, data, shared_key)
        own = base.local((), tree.take(several, k), data, group_key)[1]
        return client, (update, jax.nn.one_hot(k, groups, dtype=jnp.float32), own)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        if groups == 1:
            return tree.step(server, server_lr, mean(replies, cohort.weight))
        x, several, round = server
        update, chosen, own = replies
        weight = jnp.where(cohort.weight[:, None] > 0, cohort.weight[:, None] * chosen, 0)
        several = tree.step(several, server_lr, tree.stack([mean(own, weight[:, k]) for k in range(groups)]))
        return tree.step(x, server_lr, mean(update, cohort.weight)), several, round + 1

    def candidates(x: Params, group: Params | None, rows: Batch) -> Params:
        """Stacked, of these rows."""
        n = jnp.maximum(rows.weight.sum(), 1)
        smooth = smoothness_of(rows, jnp.issubdtype(rows.y.dtype, jnp.integer))
        pulled = lambda start, c: solve_pulled(loss, start, x, rows, c / n, smoothness=smooth, steps=SOLVE)
        path = pulled(x, lam)
        slope = jax.grad(lambda v: ridge_loss(loss, v, rows, ridge, None))
        alone = accelerated(slope, tree.zeros(x), smoothness=smooth + ridge, convexity=ridge, steps=2 * SOLVE)
        return tree.stack([x, path, pulled(path, nearer), alone, *([] if group is None else [group])])

    def personal(client: Client, said: Message, data: Data, key: Tree) -> Mixture:
        said, keeps = (said, False) if lonely is None else said
        x = said if groups == 1 else said[0]
        check_linear(model, x, data)
        group = None if groups == 1 else tree.take(said[1], choose(said[1], jnp.array(-1), data, key))
        rows = whole(data, 0, rows_known(data, "stack"))
        fold = deal_folds(key, len(rows.weight))

        def explained(out: Tree) -> tuple[jax.Array, jax.Array]:
            """([rows, candidates] log densities of those that are held out, which these are)."""
            rest = rows._replace(weight=jnp.where(fold == out, 0, rows.weight))
            losses = lax.map(lambda one: each_loss(loss, one, rows, key), candidates(x, group, rest))
            return -losses.T, jnp.where(fold == out, rows.weight, 0)

        said_of, counts = lax.map(explained, jnp.array(HELD_OUT))
        pooled = jnp.stack([jnp.asarray(each, said_of.dtype) for each in kinds])
        pooled = pooled / pooled.sum()
        pi = own_weights(said_of.reshape(-1, len(kinds)), counts.reshape(-1), pooled, trust)
        pi = jnp.where(keeps, jnp.zeros_like(pi).at[LOCAL].set(1), pi)
        label = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), data.y)
        return Mixture(candidates(x, group, rows), pi, label)

    return base._replace(init=init, message=message, merge=merge, local=local, personal=personal, predict=predict_mixed)


def own_weights(explained: jax.Array, present: jax.Array, pooled: jax.Array, trust: Tree) -> jax.Array:
    """A client's weights of candidates: EM on log densities of examples, shrunken to the pooled weights.

    >>> both = jnp.log(jnp.array([[0.9, 0.1], [0.9, 0.1]]))
    >>> own_weights(both, jnp.ones(2), jnp.array([0.5, 0.5]), 0.0).tolist()
    [0.5, 0.5]
    """

    def again(_: Tree, w: jax.Array) -> jax.Array:
        r = jax.nn.softmax(jnp.log(w) + explained, axis=1)
        r = jnp.where(present[:, None] > 0, r * present[:, None], 0)
        return ((pooled + trust * r.sum(axis=0)) / (1 + trust * present.sum())).astype(w.dtype)

    return lax.fori_loop(0, WEIGH, again, pooled)
