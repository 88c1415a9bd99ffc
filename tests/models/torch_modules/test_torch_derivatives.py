"""A PyTorch module's loss has the value and the derivatives of the same loss in JAX, under every transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from jax.sharding import AxisType  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from torch_twins import KEY, batch, gap, network, twins  # noqa: E402

from apiece.client.descend import descend  # noqa: E402
from apiece.engines.costs import gradients_in  # noqa: E402
from apiece.models.failures import raise_failures  # noqa: E402
from apiece.models.torch.module import from_torch  # noqa: E402
from apiece.models.torch.passes import Passes  # noqa: E402
from apiece.protocol import Data  # noqa: E402

THEIRS, OURS, JUDGE = twins()
PARAMS = THEIRS.init(KEY)
WAY = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape), PARAMS)
ROUNDING = 1e-6


def down(loss, params, given, lr=0.3):
    return jax.tree.map(lambda p, g: p - lr * g, params, jax.grad(loss)(params, given, KEY))


def curved(loss, params, given):
    return jax.jvp(lambda p: jax.grad(loss)(p, given, KEY), (params,), (WAY,))[1]


def curved_backwards(loss, params, given):
    along = lambda p: sum(jax.tree.leaves(jax.tree.map(jnp.vdot, jax.grad(loss)(p, given, KEY), WAY)))
    return jax.grad(along)(params)


def mixed(loss, params, given):
    """How the gradient in one layer changes with another."""
    own = lambda w, v: loss({**params, "hidden/weight": w, "out/weight": v}, given, KEY)
    slope = lambda w: jax.grad(own, argnums=1)(w, params["out/weight"])
    return jax.jvp(slope, (params["hidden/weight"],), (WAY["hidden/weight"],))[1]


def by_weight(loss, params, given):
    """How the loss, and its slope along a way, change with the weight of an example that is there."""
    weighed = lambda weight: given._replace(weight=jnp.where(given.weight > 0, weight, 0))
    along = lambda w: sum(jax.tree.leaves(jax.tree.map(jnp.vdot, jax.grad(loss)(params, weighed(w), KEY), WAY)))
    return jax.grad(lambda w: loss(params, weighed(w), KEY))(given.weight), jax.grad(along)(given.weight)


def through_a_loop(loss, params, given):
    return jax.grad(lambda p: loss(jax.lax.fori_loop(0, 3, lambda k, q: down(loss, q, given), p), given, KEY))(params)


def of_a_traced_length(loss, params, given):
    length = given.weight.sum().astype(int)
    return jax.lax.fori_loop(0, length, lambda k, p: down(loss, p, given), params)


def under_cond(loss, params, given):
    return jax.lax.cond(given.weight.sum() > 1, lambda p: down(loss, p, given), lambda p: p, params)


def vmapped(loss, params, given):
    turned = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), given)
    many = jax.vmap(lambda g: curved(loss, params, g))(turned)
    return many, jax.vmap(lambda lr: down(loss, params, given, lr))(jnp.array([0.1, 0.2, 0.3]))


def remade(loss, params, given):
    return jax.grad(jax.checkpoint(loss))(params, given, KEY)


def divided(loss, params, given):
    """A client on each of two devices, and their sum."""
    mesh = jax.make_mesh((2,), ("clients",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    def work(lr):
        end = jax.lax.fori_loop(0, 5, lambda k, p: down(loss, p, given, lr[0]), params)
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, "clients")[None], end)

    return jax.shard_map(work, mesh=mesh, in_specs=P("clients"), out_specs=P("clients"), check_vma=False)(
        jnp.array([0.1, 0.2])
    )


PLAIN = (lambda loss, p, b: loss(p, b, KEY), down, curved, curved_backwards, mixed, by_weight, through_a_loop)
NESTED = (of_a_traced_length, under_cond, vmapped, remade, divided)


@pytest.mark.parametrize("what", PLAIN[1:3], ids=lambda what: what.__name__)
def test_every_derivative_is_that_of_jax_step_by_step(what):
    assert gap(what(THEIRS.objective.loss, PARAMS, batch()), what(JUDGE.loss, PARAMS, batch())) < ROUNDING


@pytest.mark.parametrize("what", [*PLAIN, *NESTED], ids=lambda what: what.__name__)
def test_every_derivative_is_that_of_jax_in_a_compiled_program(what):
    program = jax.jit(what, static_argnums=0)
    found = program(THEIRS.objective.loss, PARAMS, batch())
    raise_failures()
    assert gap(found, program(JUDGE.loss, PARAMS, batch())) < ROUNDING


def test_outputs_and_outcomes_are_those_of_jax():
    given = batch(absent=0)
    assert gap(THEIRS.apply(PARAMS, given.x), OURS.apply(PARAMS, given.x)) < ROUNDING
    assert gap(THEIRS.objective.outcomes(PARAMS, given), JUDGE.outcomes(PARAMS, given)) < ROUNDING


def test_absent_rows_never_reach_the_module():
    given, poisoned = batch(), batch()
    poisoned = poisoned._replace(x=jnp.where(given.weight[:, None] > 0, given.x, jnp.nan))
    loss, outcomes = THEIRS.objective.loss, THEIRS.objective.outcomes
    assert gap(jax.grad(loss)(PARAMS, poisoned, KEY), jax.grad(loss)(PARAMS, given, KEY)) == 0
    assert np.isfinite(outcomes(PARAMS, poisoned)).all()
    nobody = given._replace(weight=jnp.zeros(7))
    assert float(loss(PARAMS, nobody, KEY)) == 0 and gap(down(loss, PARAMS, nobody), PARAMS) == 0


def test_many_steps_in_one_call_are_the_steps_one_by_one():
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1], leaf]), batch())
    keys = jax.random.split(KEY, 3)

    def one_by_one(loss, params):
        step = lambda k, p: down(loss, p, jax.tree.map(lambda leaf: leaf[k], batches))
        return jax.lax.fori_loop(0, 3, step, params)

    loss = THEIRS.objective.loss
    together = lambda p: loss.sgd(p, batches, keys, 0.3)
    assert gap(jax.jit(together)(PARAMS), one_by_one(JUDGE.loss, PARAMS)) < ROUNDING
    after = lambda loss, run: jax.grad(lambda p: loss(run(p), batch(), KEY))(PARAMS)
    assert gap(after(loss, together), after(JUDGE.loss, lambda p: one_by_one(JUDGE.loss, p))) < ROUNDING


@pytest.mark.parametrize("how", [dict(steps=5), dict(epochs=2)])
def test_a_client_takes_its_plain_steps_in_one_call_and_they_count_one_by_one(monkeypatch, how):
    calls = []
    for name in ("descend", "slope"):
        real = getattr(Passes, name)
        monkeypatch.setattr(Passes, name, lambda *args, name=name, real=real: calls.append(name) or real(*args))
    together = from_torch(network(("drop", torch.nn.Dropout(0.5)))).objective.loss  # the draws are the same too
    one_by_one = lambda params, batch, key: together(params, batch, key)
    x, y, _ = batch(absent=0)

    def work(loss):
        return lambda p, x, y, lr: descend(loss, p, Data(x, y, 0, 7, 7), KEY, lr=lr, batch=3, **how)

    given, steps = (PARAMS, x, y, jnp.float32(0.3)), how.get("steps", 6)
    programs = [jax.make_jaxpr(work(loss))(*given).jaxpr for loss in (together, one_by_one)]
    assert [gradients_in(program) for program in programs] == [steps, steps]
    calls.clear()
    found = jax.block_until_ready(jax.jit(work(together))(*given))
    assert calls == ["descend"]
    assert gap(found, jax.jit(work(one_by_one))(*given)) < ROUNDING
    assert calls == ["descend"] + ["slope"] * steps
    assert gap(found, PARAMS) > 1e-3


def test_dropout_is_drawn_from_the_key_and_leaves_the_generator_of_pytorch_alone():
    loss = from_torch(network(("drop", torch.nn.Dropout(0.5)))).objective.loss
    before = torch.get_rng_state()
    value = jax.jit(lambda seed: loss(PARAMS, batch(), jax.random.key(seed)))
    first, again, other = value(0), value(0), value(1)
    assert first == again and first != other
    assert torch.equal(before, torch.get_rng_state())
    there = jax.jit(lambda p: curved(loss, p, batch()))(PARAMS)  # the second derivative sees the same units dropped
    beyond = lambda s: jax.tree.map(lambda p, w: p + s * w, PARAMS, WAY)
    ahead, behind = (jax.grad(loss)(beyond(s), batch(), KEY) for s in (1e-2, -1e-2))
    assert gap(there, jax.tree.map(lambda a, b: (a - b) / 2e-2, ahead, behind)) < 1e-3


def test_dropout_is_off_when_a_model_is_judged():
    dropped = from_torch(network(("drop", torch.nn.Dropout(0.5))))
    given = batch(absent=0)
    assert gap(dropped.objective.outcomes(PARAMS, given), JUDGE.outcomes(PARAMS, given)) < ROUNDING
    assert gap(dropped.apply(PARAMS, given.x), OURS.apply(PARAMS, given.x)) < ROUNDING


def test_the_modes_of_training_are_those_the_module_was_given_in():
    still = network(("drop", torch.nn.Dropout(0.5)))
    still.get_submodule("drop").eval()
    loss = from_torch(still).objective.loss
    assert gap(loss(PARAMS, batch(), KEY), JUDGE.loss(PARAMS, batch(), KEY)) < ROUNDING


def test_two_devices_draw_what_one_would():
    loss = from_torch(network(("drop", torch.nn.Dropout(0.5)))).objective.loss
    mesh = jax.make_mesh((2,), ("clients",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    def work(seed):
        step = lambda k, p: jax.tree.map(
            lambda a, g: a - 0.3 * g, p, jax.grad(loss)(p, batch(), jax.random.fold_in(jax.random.key(seed[0]), k))
        )
        return jax.tree.map(lambda leaf: leaf[None], jax.lax.fori_loop(0, 50, step, PARAMS))

    two = jax.jit(jax.shard_map(work, mesh=mesh, in_specs=P("clients"), out_specs=P("clients"), check_vma=False))
    found = two(jnp.arange(2))
    alone = [jax.jit(work)(jnp.array([seed])) for seed in range(2)]
    assert gap(found, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *alone)) < ROUNDING


def test_a_constant_loss_has_derivatives_too():
    flat = from_torch(network(), loss=lambda outputs, labels: torch.ones(len(labels))).objective.loss
    assert gap(jax.grad(flat)(PARAMS, batch(), KEY), jax.tree.map(jnp.zeros_like, PARAMS)) == 0
    assert gap(curved(flat, PARAMS, batch()), jax.tree.map(jnp.zeros_like, PARAMS)) == 0
