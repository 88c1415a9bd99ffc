"""Self-FL's posterior mean, found without anybody's optimum: a pull to the shared model, as strong as was measured."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import descend, steps_taken, toward
from apiece.client.draw import FULL_CHUNK
from apiece.errors import UserError
from apiece.estimate.spread import Slope, measure_slope, spread_of
from apiece.estimate.variance import number_type
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.theory.formulas import precision

BORROWED = 20.0  # examples: how much the noise that all clients have counts beside one's own
MOMENTUM = 0.9  # of the fit of one's own model
HARDEST = 1e4  # the strongest pull, in units of 1/lr: nothing is left of one's own


class Centre(NamedTuple):
    """The server: the shared model, s0, what an example's noise and curvature usually are, and what clients told."""

    x: Params
    spread: jax.Array
    usual: jax.Array
    told: Slope


class Prior(NamedTuple):
    """What a client is shown: where the others are, how far from there it may be, and the usual noise and curvature."""

    x: Params
    spread: jax.Array
    usual: jax.Array


def posterior_pull(
    loss: Loss,
    *,
    steps: Tree = 20,
    lr: Tree = 0.1,
    batch: int = 32,
    tune_lr: Tree = 0.1,
    tune_steps: Tree = 200,
    tune_epochs: Tree | None = None,
    population: int,
) -> Method:
    """What `self_fl` is with rule "posterior"; its text says what it does."""
    most = max(batch, FULL_CHUNK) if batch else 0

    def init(params: Params, key: Tree) -> Server:
        if not population:
            raise UserError("method 'self_fl' keeps a table of all clients: give option 'population', their number")
        number = number_type(params)
        told = Slope(*(jnp.zeros(population, number) for _ in Slope._fields))
        return Centre(params, jnp.zeros((), number), jnp.zeros(2, number), told)

    def local(client: Client, prior: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        train_key, measure_key = jax.random.split(key)
        y = descend(loss, prior.x, data, train_key, steps=steps, lr=lr, batch=batch)
        return client, (tree.sub(y, prior.x), measure_slope(loss, prior.x, data, measure_key))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        updates, slopes = replies
        present = cohort.weight > 0
        row = jnp.where(present & (cohort.ids < population), cohort.ids, population)  # `population`: no row at all
        told = jax.tree.map(
            lambda table, new: table.at[row].set(new.astype(table.dtype), mode="drop"), server.told, slopes
        )
        weight = _weights(server.spread, slopes, present, cohort.weight)
        spread = spread_of(told, _in_common(updates, weight, present)).astype(server.spread.dtype)
        weight = _weights(spread, slopes, present, cohort.weight)
        sizes = jnp.where(told.known, told.size, 0)
        usual = jnp.stack([sizes @ told.noise, sizes @ told.curvature]) / jnp.maximum(sizes.sum(), 1)
        return Centre(tree.step(server.x, 1.0, mean(updates, weight)), spread, usual.astype(spread.dtype), told)

    def personal(client: Client, prior: Message, data: Data, key: Tree) -> Params:
        measure_key, tune_key = jax.random.split(key)
        mine = measure_slope(loss, prior.x, data, measure_key)
        lam = jnp.minimum(pull_of(mine, prior.usual, prior.spread), HARDEST / tune_lr)
        # Curvature is known here, and bounds the step; beside the pull it is stable wherever it alone is.
        rate = jnp.minimum(tune_lr, 1 / jnp.sqrt(jnp.maximum(mine.curvature_square, jnp.finfo(lam.dtype).tiny)))
        rate = rate / (1 + rate * lam)
        count = steps_taken(data, tune_steps, tune_epochs, most)
        pull = toward(prior.x, lam)
        return descend(loss, prior.x, data, tune_key, steps=count, lr=rate, batch=most, shift=pull, **momentum(count))

    def momentum(count: Tree) -> dict[str, Any]:
        """Ten times as far along flat directions; shrinking, for batches leave noise that is as large as the step."""
        if getattr(loss, "optimizer", None) is not None:
            return {}
        return {"optimizer": optax.chain(optax.trace(MOMENTUM), optax.scale_by_schedule(lambda k: 1 - k / count))}

    def report(server: Server) -> dict:
        told = server.told
        return {
            "spread": server.spread,
            "variances": jnp.where(told.known, told.variance, 0),
            "own": jnp.where(told.known, server.spread / (server.spread + told.variance), 0),
            "pulls": jnp.where(told.known, pull_of(told, server.usual, server.spread), 0),
        }

    return Method(
        init=init,
        message=lambda server, i: Prior(server.x, server.spread, server.usual),
        merge=merge,
        enroll=lambda params, prior, data, key: (),
        local=local,
        personal=personal,
        report=report,
    )


def pull_of(slope: Slope, usual: jax.Array, spread: Tree) -> jax.Array:
    """lam = f / (n s0), f = tr(S) / tr(H) how noisy an example is: 1 of a likelihood, the noise variance of squares.

    f is the client's own and everybody's, which counts as 20 examples do.

    >>> own = Slope(*(jnp.array(each) for each in (4.0, 1.0, 3.0, 1.0, 1.0, 20.0)))
    >>> float(pull_of(own, jnp.array([1.0, 1.0]), spread=0.2))  # f = 2
    0.5
    """
    noise, curvature = (
        slope.size * own + BORROWED * usual for own, usual in zip((slope.noise, slope.curvature), usual, strict=True)
    )
    ratio = jnp.maximum(noise, 0) / jnp.maximum(curvature, jnp.finfo(curvature.dtype).tiny)
    return ratio / jnp.maximum(slope.size * spread, jnp.finfo(ratio.dtype).tiny ** 0.5)


def _weights(spread: Tree, slopes: Slope, present: jax.Array, unless: jax.Array) -> jax.Array:
    """The precisions of those who answered; `unless` nobody knows its own."""
    known = slopes.known & present
    sure = jnp.where(known, precision(spread, slopes.variance), 0)
    usual = sure.sum() / jnp.maximum(known.sum(), 1)
    return jnp.where(present, jnp.where(known.any(), jnp.where(known, sure, usual), unless), 0)


def _in_common(updates: Params, weight: jax.Array, present: jax.Array) -> jax.Array:
    """The part of the clients' squared updates that is their mean: 0 where they cancel, 1 where all are the same."""
    share = weight / jnp.maximum(weight.sum(), jnp.finfo(weight.dtype).tiny)
    middle = mean(updates, weight)
    square = jax.vmap(lambda update: tree.dot(update, update))(updates)
    every = jnp.sum(jnp.where(present, share * square, 0))
    chance = jnp.sum(share**2)
    part = tree.dot(middle, middle) / jnp.where(every > 0, every, 1)
    return jnp.where(every > 0, jnp.clip((part - chance) / jnp.maximum(1 - chance, 1e-6), 0, 1), 0)
