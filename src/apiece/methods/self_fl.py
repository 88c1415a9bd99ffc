"""Self-FL: every client starts at the others' mean and stops where its own data should stop pulling."""

import inspect
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import descend
from apiece.errors import UserError, suggest
from apiece.estimate.variance import bootstrap, moments, none_yet, number_type, observe, pooled, sandwich
from apiece.methods.posterior_pull import posterior_pull
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import FromZero, Passes, StepSize
from apiece.theory.formulas import RULES, precision, pull, whole_steps

BY_STEPS = RULES  # as published: a start and a number of steps; and with the pull of the whole hierarchy
ESTIMATORS = ("bootstrap", "sandwich", "welford")
STEPWISE = (
    "variance", "augmented", "smoothing", "l_max", "refits", "adapt_init", "adapt_steps", "adapt_weights", "summed",
    "printed", "variances", "clusters",
)  # fmt: skip
ROUNDING = 1e-6  # less than this part of all precisions is what rounding leaves to a client that is alone


class Register(NamedTuple):
    """The server's state.

    `variances` and `steps`: what every client last reported, 0 for nothing yet; `total`: the sum of all precisions;
    `optima`: the moments of the optima, by which the spread is estimated; `latest`: every cluster's model, and whether
    it has one.
    """

    x: Params
    spread: jax.Array
    variances: jax.Array
    total: jax.Array
    optima: Tree
    latest: Tree
    steps: jax.Array


class View(NamedTuple):
    """What a client is shown; `variance`: its own as the server has it; `others`: the sum of the others' precisions."""

    x: Params
    spread: jax.Array
    variance: jax.Array
    others: jax.Array


class Own(NamedTuple):
    """What a client keeps: the personal model, its own optimum, the variance of that, and what was seen for Welford."""

    model: Params
    optimum: Tree
    variance: jax.Array
    seen: Tree


class Report(NamedTuple):
    """What a client answers; `steps`: how many it took, for all to see."""

    model: Params
    optimum: Tree
    variance: jax.Array
    steps: jax.Array


def self_fl(
    loss: Loss,
    *,
    rule: str = "posterior",
    variance: str = "bootstrap",
    augmented: bool = False,
    smoothing: bool = False,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    l_max: int = 40,
    l_default: int = 20,
    tune_lr: StepSize = 0.1,
    tune_steps: int = 200,
    tune_epochs: Passes | None = None,
    refits: int = 10,
    adapt_init: bool = True,
    adapt_steps: bool = True,
    adapt_weights: bool = True,
    summed: bool = False,
    printed: bool = False,
    variances: Any = (),
    spread: Tree = 0.0,
    clusters: Any = (),
    population: FromZero = 0,
) -> Method:
    """How far each client goes from the others, and what it counts, follow from how sure it is and how they differ.

    s_m is the variance of client m's own estimate, s0 that between clients, both per coordinate; w_m = 1 / (s0 + s_m).

    rule "posterior". Client m: q_m = argmin L_m(q) + lam_m/2 |q - x|^2 from x, lam_m = f_m / (n_m s0), by `tune_steps`
    steps on up to 256 examples each; and FedAvg's work on x, `l_default` steps. Server: x moves by their mean, by w_m.
    f_m = tr(S) / tr(H) is how noisy one example is, measured at x: H the Hessian of L_m, S the scatter of the
    examples' gradients (1 of a log-likelihood, the noise variance of half squares). s0 and s_m come from the same
    measurement, |g_m|^2 = (s0 + s_m) tr(H^2) (see estimate/spread.py); nobody's optimum is needed. Of quadratic
    losses q_m is the posterior mean of theta_m, direction by direction.

    rules "bayes" and "paper", by the number of steps. A_m = sum_{k != m} w_k over all who have reported. Client m, from
    x - (w_m / A_m) (q_m - x), the others' mean: q_m <- q_m - lr G_m(q_m), l_m times, with
    (1 - rho)^l_m = a / (1 / s_m + a) and rho = lr / (n_m s_m). Server: x <- sum_m w_m q_m / sum_m w_m, over those who
    answered, or over all clusters by the latest model of each. "paper": a = A_m, right only if all clients had one true
    model; "bayes": a = 1 / (s0 + 1 / A_m). The loss has to be a negative log-likelihood, for 1 / (n_m s_m) stands for
    its curvature: of half squares with noise variance 0.1 a client takes one step where 68 are needed.
    variance "bootstrap": s_m from refits of the client's own optimum z_m on resamples; "sandwich": H^-1 S H^-1 / n at
    z_m (full matrices: at most 1,000 parameters); both with s0 = max(0, variance between the z_m - mean of the s_m).
    "welford", as published: s_m is the variance of q_m over rounds, s0 that between the q_m. It feeds on itself: models
    that are alike make s0 small, which makes them more alike, until they are the shared one.
    augmented: z_m, run to anew each round, stands for q_m in start, variances and x. With everybody taking part this
    gives a quadratic client its posterior mean, up to the rounding of l_m; without it, x is a mean of shrunk models.
    summed: as published, s_m in rho is summed over all d coordinates, which makes rho d times smaller: in a model with
    many flat directions the variance per coordinate asks for a single step, and the sum for many.
    printed: with the two slips of the listing: rho = lr / (B s_m) with B the batch; and in the recursion of "welford"
    the length of the mean's move in place of its square.
    Who is alone, or whose s_m is unknown or 0, takes `l_default` steps from x.

    Solves: the estimation of theta_m from z_m ~ N(theta_m, s_m), theta_m ~ N(theta_0, s0), nothing known of theta_0.
    Sent: "posterior": x and three numbers down, an update and six numbers up. By steps: x and three numbers down; q_m,
      s_m, l_m and z_m up (no z_m with "welford" or known variances, unless augmented).
    Late: by steps, q_m and z_m are models, not updates: they estimate what is the client's own, which does not age as x
      moves on; their mean stands for x, so a late q_m pulls x back to where it was.
    Kept: "posterior": nothing by the client, a table of what clients measured by the server. By steps: q_m, z_m, s_m by
      the client (with "welford" the mean of its models); a table of the s_m, the mean of the z_m and, with `clusters`,
      a model of each by the server.
    Forgetting: "posterior": changes nothing. By steps, z_m and s_m are found anew each round, which is dear; the start
      is x unless augmented. With "welford" s_m is never known: FedAvg of `l_default` steps.
    Guarantee: synchronous, with known variances and quadratic losses, everybody taking part: "posterior" and augmented,
      the posterior mean; else a fixed point O(1 / sqrt(clients)) away from it. Asynchronous, Byzantine: none known;
      where few answer at a time, `smoothing` or `clusters` keeps x from being the model of the last to answer.
    Reference: Chen, Ding, et al. 2022 (Self-aware personalized federated learning).

    Args:
        rule: "posterior", or by steps "bayes" or "paper" (as published: with variance = "welford", summed, smoothing
        and printed).
        lr: step size. batch: examples a step, 0 for all. l_default: steps on x; by steps, of a client that cannot know
        better. tune_lr, tune_steps, tune_epochs: how a client finds its model; by steps, its optimum, and refits it.
        The others are of the rules by steps. variance: "bootstrap", "sandwich" or "welford". augmented: go by the
        clients' optima. smoothing: x goes only that part of the way which the answering clients are of all; with one in
        ten answering it is still far from the end after 200 rounds. l_max: most steps a round. refits: resamples of the
        bootstrap. adapt_init, adapt_steps, adapt_weights: without one of them, x is the start, `l_default` the steps,
        the number of examples the weight; without any it is FedAvg. summed: rho by the whole model's variance.
        printed: the listing with its slips.
        variances: every client's s_m, if known. spread: s0, beside `variances`.
        clusters: every client's cluster, from 0 on. population: the number of clients.

    >>> method = self_fl(lambda params, batch, key: 0.0, rule="bayes", variances=[0.5, 1.0, 2.0], spread=0.25)
    >>> round(float(method.message(method.init(jnp.array(0.0), None), 0).others), 4)
    1.2444
    """
    if rule == "posterior":
        _only_by_steps(locals())
        how = dict(tune_lr=tune_lr, tune_steps=tune_steps, tune_epochs=tune_epochs, population=population)
        return posterior_pull(loss, steps=l_default, lr=lr, batch=batch, **how)
    known, members = _checked(rule, variance, variances, clusters, population)
    population = population or len(known) or len(members)
    tracked, estimated = not len(known) and variance == "welford", not len(known) and variance != "welford"
    train = partial(descend, loss, lr=lr, batch=batch)
    tune = partial(descend, loss, steps=tune_steps, epochs=tune_epochs, lr=tune_lr, batch=batch)

    def init(params: Params, key: Tree) -> Server:
        if not population:
            raise UserError("method 'self_fl' keeps a table of all clients: give option 'population', their number")
        number = number_type(params)
        table = jnp.asarray(known if len(known) else np.zeros(population), number)
        between = jnp.asarray(spread if len(known) else 0, number)
        latest = _nothing_from(int(members.max()) + 1, params) if len(members) else ()
        optima, total = none_yet(params) if estimated else (), _weights(between, table).sum()
        return Register(params, between, table, total, optima, latest, jnp.zeros(population, jnp.int32))

    def message(server: Server, i: Tree) -> Message:
        own = jnp.where(i < population, server.variances[jnp.minimum(i, population - 1)], 0)  # newcomers: nothing yet
        others = server.total - _weights(server.spread, own)
        others = jnp.where(others > ROUNDING * server.total, others, 0)
        return View(server.x, server.spread, own, others)

    def enroll(params: Params, view: Message, data: Data, key: Tree) -> Client:
        unknown = jnp.zeros((), number_type(params))
        if not estimated:
            return Own(view.x, view.x if augmented else (), unknown, none_yet(params) if tracked else ())
        fit_key, estimate_key = jax.random.split(key)
        optimum = tune(view.x, data, fit_key)
        if variance == "sandwich":
            s = sandwich(loss, optimum, data, estimate_key)
        else:
            s = bootstrap(tune, optimum, data, estimate_key, refits)
        return Own(view.x, optimum, jnp.where(jnp.isfinite(s), s, 0).astype(unknown.dtype), ())  # a refit may diverge

    def local(own: Client, view: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        train_key, tune_key = jax.random.split(key)
        s = view.variance if len(known) else own.variance
        informed = (view.others > 0) & (s > 0)
        s, others = jnp.where(informed, s, 1), jnp.where(informed, view.others, 1)
        start: Params = view.x
        steps: Tree = l_default
        if adapt_init:
            weight = jnp.where(informed, _weights(view.spread, view.variance), 0)
            start = leave_out(start, own.optimum if augmented else own.model, weight, others)
        if adapt_steps:
            coordinates = sum(leaf.size for leaf in jax.tree.leaves(start)) if summed else 1
            counted = batch if printed and batch else data.size
            wanted = whole_steps(s, pull(others, view.spread, rule), lr / (counted * s * coordinates), l_max)
            steps = jnp.where(informed, wanted, l_default)
        model = train(start, data, train_key, steps=steps)
        optimum = tune(model, data, tune_key) if augmented else own.optimum
        seen: Tree = observe(own.seen, optimum if augmented else model, not printed) if tracked else ()
        s = seen.variance if tracked else own.variance
        return Own(model, optimum, s, seen), Report(model, optimum, s, jnp.asarray(steps, jnp.int32))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        present = cohort.weight > 0
        reported = replies.optimum if augmented else replies.model
        row = jnp.where(present & (cohort.ids < population), cohort.ids, population)  # `population`: no row at all
        before = server.variances.at[row].get(mode="fill", fill_value=0)
        s = before if len(known) else jnp.where(present, replies.variance, 0)
        noted = lambda table, values: table.at[row].set(values, mode="drop")
        server = server._replace(variances=noted(server.variances, s), steps=noted(server.steps, replies.steps))
        if tracked:
            server = _spread_of(server, reported, present)
        if estimated:
            # An optimum counts when it first comes in: the spread is then that of all, not of those who answered.
            server = _spread_beyond_chance(server, replies.optimum, (s > 0) & (before == 0) & (row < population))
        weight = jnp.where(present, _sureness(server, s, cohort.weight), 0) if adapt_weights else cohort.weight
        if len(members):
            every = _sureness(server, server.variances, 1.0) if adapt_weights else jnp.ones(population)
            server, reported, weight = _by_cluster(server, reported, weight, row, jnp.asarray(members), every)
        moved = mean(tree.sub(reported, server.x), weight)
        rate = present.sum() / cohort.population if smoothing else 1.0
        return server._replace(x=tree.step(server.x, rate, moved))

    def report(server: Server) -> dict[str, Tree]:
        weights = _weights(server.spread, server.variances)
        return {"spread": server.spread, "variances": server.variances, "steps": server.steps, "weights": weights}

    return Method(init, message, merge, enroll, local, personal=lambda own, view, data, key: own.model, report=report)


def leave_out(x: Params, own: Params, weight: Tree, others: Tree) -> Params:
    """The others' mean sum_{k != m} w_k z_k / A_m, from the mean of all and one's own: x - (w_m / A_m) (own - x).

    >>> leave_out(2.5, 1.0, 1.0, 1.0)
    4.0
    """
    return tree.step(x, -weight / others, tree.sub(own, x))


def _weights(spread: Tree, s: Tree) -> jax.Array:
    """The precisions; 0 where the variance is not known."""
    return jnp.where(s > 0, precision(spread, jnp.where(s > 0, s, 1)), 0)


def _sureness(server: Register, s: jax.Array, unless: Tree) -> jax.Array:
    """The precisions, with the usual variance where it is not known; `unless` none is known at all."""
    known = server.variances > 0
    usual = server.variances.sum() / jnp.maximum(known.sum(), 1)
    return jnp.where(known.any(), _weights(server.spread, jnp.where(s > 0, s, usual)), unless)


def _spread_of(server: Register, models: Params, present: jax.Array) -> Register:
    """The published estimate: the variance between the models of this round."""
    now = moments(models, present)
    spread = jnp.where(now.number > 1, now.variance, server.spread)
    return server._replace(spread=spread, total=_weights(spread, server.variances).sum())


def _spread_beyond_chance(server: Register, optima: Params, first: jax.Array) -> Register:
    """The variance between all optima so far, less what the clients' own uncertainty explains of it."""
    seen = pooled(server.optima, moments(optima, first))
    between = seen.variance * seen.number / jnp.maximum(seen.number - 1, 1)
    spread = jnp.maximum(between - server.variances.sum() / jnp.maximum(seen.number, 1), 0)
    # Nothing is known of the spread before there are two.
    total = jnp.where(seen.number > 1, _weights(spread, server.variances).sum(), 0)
    return server._replace(spread=spread, total=total, optima=seen)


def _nothing_from(clusters: int, params: Params) -> tuple[Params, jax.Array]:
    """The latest models of clusters that have not been heard of, and that they have not."""
    return jax.tree.map(lambda leaf: jnp.zeros((clusters, *leaf.shape), leaf.dtype), params), jnp.zeros(clusters, bool)


def _by_cluster(
    server: Register, models: Params, weight: jax.Array, row: jax.Array, members: jax.Array, every: jax.Array
) -> tuple[Register, Params, jax.Array]:
    """The clusters' latest models, renewed by those who answered, and their weights: the sums over their members."""
    latest, heard = server.latest
    add = partial(jax.ops.segment_sum, num_segments=len(heard))
    cluster = members[jnp.minimum(row, len(members) - 1)]
    weight = jnp.where(row < len(members), weight, 0)
    total = add(weight, cluster)

    def renewed(old: jax.Array, leaf: jax.Array) -> jax.Array:
        along = lambda values: values.reshape((-1,) + (1,) * (leaf.ndim - 1))
        share = along((weight / jnp.where(total > 0, total, 1)[cluster]).astype(leaf.dtype))
        return jnp.where(along(total > 0), add(jnp.where(share > 0, share * leaf, 0), cluster), old)

    latest, heard = jax.tree.map(renewed, latest, models), heard | (total > 0)
    return server._replace(latest=(latest, heard)), latest, jnp.where(heard, add(every, members), 0)


def _only_by_steps(given: dict[str, Any]) -> None:
    """An option that the rule "posterior" has no use for is not passed over in silence."""
    for name, parameter in inspect.signature(self_fl).parameters.items():
        if name in STEPWISE and np.size(given[name]) and given[name] != parameter.default:
            raise UserError(f"option '{name}' of method 'self_fl' is of the rules \"bayes\" and \"paper\"; the rule is "
                            "\"posterior\": leave it out, or name another rule")  # fmt: skip


def _checked(rule: str, variance: str, variances: Any, clusters: Any, population: int) -> tuple[np.ndarray, np.ndarray]:
    """The lists as arrays, or an error that names the option."""
    for option, word, words in (("rule", rule, ("posterior", *BY_STEPS)), ("variance", variance, ESTIMATORS)):
        if word not in words:
            raise UserError(f"option '{option}' of method 'self_fl' is not {word!r}: {suggest(word, words)}")
    known, members = np.asarray(variances, float), np.asarray(clusters, float)
    for option, numbers in (("variances", known), ("clusters", members)):
        if numbers.ndim != 1 or (len(numbers) and len(numbers) != (population or len(known) or len(members))):
            count = f"{population} clients" if population else "clients"
            raise UserError(f"option '{option}' of method 'self_fl' is a list of one number a client, for {count}")
    if (known <= 0).any():
        raise UserError("option 'variances' of method 'self_fl' holds numbers above 0: leave out what is not known")
    if (members < 0).any() or (members != members.round()).any():
        raise UserError("option 'clusters' of method 'self_fl' holds whole numbers from 0 on: each client's cluster")
    return known, members.astype(np.int32)
