"""Methods with a private part, and APFL: traces, where they meet FedAvg and Local, and what is sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import B, H
from golden import fed_avg as golden_fed_avg
from golden_partial import TOY, felt
from golden_partial import apfl as golden_apfl
from golden_partial import partial as golden_partial
from partial_runs import ENGINES, run

from apiece.errors import UserError
from apiece.methods import fed_avg, local
from apiece.methods.apfl import apfl
from apiece.methods.partial import fed_bn, fed_per, fed_rep, lg_fed_avg, partial
from apiece.models import mlp, objective, quadratic, softmax
from apiece.protocol import Data
from apiece.split import join, paths, split

QUADRATIC = dict(loss=objective(quadratic(2), "custom").loss, data=(H, B), initial=np.zeros(2))
KEY = jax.random.key(0)


def close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


ORDERS = [
    pytest.param(fed_per, "together", dict(steps=2, lr=0.1), id="fed_per"),
    pytest.param(fed_rep, "private_first", dict(steps=2, lr=0.1, inner_steps=3, inner_lr=0.2), id="fed_rep"),
    pytest.param(partial, "alternate", dict(steps=2, lr=0.1, inner_lr=0.2, order="alternate"), id="alternate"),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("factory", "order", "options"), ORDERS)
def test_the_orders_follow_their_programs(factory, order, options, engine):
    seen = run(factory, TOY, (3,), engine=engine, private="w", **options)
    given = {name: value for name, value in options.items() if name != "order"}
    trace, v = golden_partial(TOY, 3, order, **given)
    close(seen[-1][0]["theta"], trace[-1])
    close(seen[-1][1]["w"], v)
    close(seen[-1][1]["theta"], np.tile(trace[-1], (2, 1)))


@pytest.mark.usefixtures("x64")
def test_lg_fed_avg_is_fed_per_with_the_parts_exchanged():
    turned = TOY._replace(P=TOY.B, B=TOY.P, C=np.swapaxes(TOY.C, 1, 2), t=TOY.r, r=TOY.t)
    lg = run(lg_fed_avg, TOY, (3,), private="not w", steps=2, lr=0.1)[-1]
    per = run(fed_per, turned, (3,), private="w", steps=2, lr=0.1)[-1]
    close(lg[0]["w"], per[0]["theta"])
    close(lg[1]["theta"], per[1]["w"])


@pytest.mark.usefixtures("x64")
def test_a_converged_partial_method_leaves_no_gradient_on_average():
    seen = run(fed_per, TOY, (600,), private="w", steps=1, lr=0.2)
    close(felt(TOY, seen[-1][0]["theta"]).mean(), 0, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_an_untrained_private_part_is_fed_avg_on_the_rest():
    seen = run(fed_rep, TOY, (3,), private="w", steps=2, lr=0.1, inner_steps=1, inner_lr=0.0)
    close(seen[-1][0]["theta"], golden_fed_avg(TOY.P, TOY.t, np.ones(2) / 2, 3, steps=2, lr=0.1)[-1])


# What is sent, for a network.

MODEL = mlp((6,), 3, hidden=(5, 4))
LOSS = objective(MODEL, "classification").loss
PARAMS = MODEL.init(KEY)
DATA = Data(jnp.ones((4, 6)), jnp.zeros(4, int), 0, 4, 4)


def sent(factory, **options):
    method = factory(LOSS, **options)
    message = method.message(method.init(PARAMS, KEY), 0)
    client = method.enroll(PARAMS, message, DATA, KEY)
    after, reply = jax.eval_shape(method.local, client, message, DATA, KEY)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, client)
    assert paths(message) == paths(reply)
    assert not set(paths(client)) & set(paths(reply))
    return paths(reply), paths(client)


def test_nothing_private_is_sent():
    out, rest = ["out/b", "out/w"], ["hidden0/b", "hidden0/w", "hidden1/b", "hidden1/w"]
    assert sent(fed_per) == sent(fed_rep) == (rest, out)
    assert sent(lg_fed_avg) == (out, rest)
    assert sent(partial, private="input", order="alternate") == (rest[2:] + out, rest[:2])
    assert sent(fed_bn, private="hidden1/b") == (rest[:2] + rest[3:] + out, ["hidden1/b"])


@pytest.mark.parametrize("order", ["together", "alternate"])
def test_what_a_client_uses_is_what_it_has_and_what_it_was_sent(order):
    method = partial(LOSS, order=order, steps=3)
    x, v = split(PARAMS, "output")
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), method.personal(v, x, DATA, KEY), join(x, v)))


def test_a_model_without_such_a_part_is_refused_with_a_remedy():
    one_layer = softmax((4,), 3).init(KEY)
    with pytest.raises(UserError, match=r"'output'.*nothing is left to share.*private = 'b'"):
        fed_per(LOSS).init(one_layer, KEY)
    with pytest.raises(UserError, match=r"no parameter is private under private = 'norm'.*hidden0/b"):
        fed_bn(LOSS).init(PARAMS, KEY)
    with pytest.raises(UserError, match=r"'order' of method 'partial'.*did you mean 'together'"):
        partial(LOSS, order="togther")


# APFL.


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("adapt", [False, True])
def test_apfl_follows_its_program(adapt, engine):
    options = dict(steps=3, lr=0.1, mix=0.3, adapt=adapt)
    seen = run(apfl, TOY, (4,), engine=engine, **QUADRATIC, **options)
    trace, models, shares = golden_apfl(H, B, 4, **options)
    close(seen[-1][0], trace[-1])
    close(seen[-1][1], models)
    assert (np.abs(shares - 0.3).max() > 0.01) == adapt


@pytest.mark.usefixtures("x64")
def test_apfl_is_fed_avg_at_one_end_and_local_at_the_other():
    work = dict(steps=3, lr=0.1, **QUADRATIC)
    shared, alone = (run(factory, TOY, (4,), **work)[-1] for factory in (fed_avg, local))
    none, all_own = (run(apfl, TOY, (4,), mix=mix, **work)[-1] for mix in (0.0, 1.0))
    close(none[1], shared[1], atol=1e-12)
    close(all_own[1], alone[1], atol=1e-12)
    close(none[0], shared[0], atol=1e-12)
    close(all_own[0], shared[0], atol=1e-12)


def test_apfl_draws_the_batches_of_fed_avg():
    data = Data(jax.random.normal(KEY, (9, 6)), jnp.arange(9) % 3, 0, 9, 9)
    for how in (dict(steps=3), dict(epochs=2)):
        ours = jax.jit(apfl(LOSS, batch=4, **how).local)(PARAMS, PARAMS, data, KEY)[1]
        theirs = jax.jit(fed_avg(LOSS, batch=4, **how).local)((), PARAMS, data, KEY)[1]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours, theirs)


def test_a_share_beyond_one_is_refused():
    with pytest.raises(UserError, match=r"'mix' of method 'apfl' is a share from 0 to 1, not 1.5"):
        apfl(LOSS, mix=1.5)


def test_an_adapted_share_stays_a_share():
    steep = lambda w, batch, key: 100 * (batch.weight * (w - batch.y) ** 2).sum()
    data = Data(jnp.zeros(1), jnp.array([3.0]), 0, 1, 1)
    method = apfl(steep, mix=0.5, adapt=True, steps=1, lr=0.1, batch=0)
    (_, share), _ = method.local((jnp.float32(1), jnp.float32(0.5)), jnp.float32(0), data, KEY)
    assert share == 1
    (_, share), _ = method.local((jnp.float32(-1), jnp.float32(0.5)), jnp.float32(0), data, KEY)
    assert share == 0
