"""Attacked, guarded and robust methods: the contract, what each wrapper does, and what holds under attack."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from apiece import tree
from apiece.aggregate import Rule, as_rule, bucketing, centered_clipping, geometric_median, krum, median, plain_mean
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, scaffold
from apiece.models import objective, quadratic
from apiece.protocol import Cohort, Data
from apiece.testing import check_method
from apiece.testing.case import CLASSES
from apiece.wrap import attacked, attackers, attackers_of, corrupted, guarded, rejections, robust, staged
from apiece.wrap.attacks import Attack, alie, inner_product, label_flip, mimic, noise, not_a_number, sign_flip

KEY = jax.random.key(0)


def loss(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def cohort(weight, ids=None):
    ids = jnp.arange(len(weight)) if ids is None else jnp.asarray(ids)
    return Cohort(ids, jnp.asarray(weight, jnp.float32), jnp.zeros(len(weight), jnp.int32), jnp.int32(len(weight)))


def merged(method, replies, weight, x=None, ids=None):
    """The model after one merge, and the server."""
    x = jnp.zeros(jax.tree.leaves(replies)[0].shape[1:]) if x is None else x
    server = jax.jit(method.merge)(method.init(x, KEY), replies, cohort(weight, ids), KEY)
    return method.message(server, 0), server


# The contract: FedAvg under nearly everything at once; then rule and attack with memories, replies unlike the model.


def under_everything(loss, *, steps=2, lr=0.1, batch=8, most=5.0, scale=3.0):
    defended = guarded(robust(fed_avg(loss, steps=steps, lr=lr, batch=batch), bucketing(krum(byzantine=1))), most=most)
    noisy = attacked(defended, noise(scale=scale), clients=[1])
    return attacked(noisy, label_flip(classes=CLASSES), share=0.25, population=4, seed=1)


def with_memories(loss, *, steps=2, lr=0.1, batch=8):
    reply = lambda params: (params, params)
    clipped = robust(scaffold(loss, steps=steps, lr=lr, batch=batch), bucketing(centered_clipping()), reply=reply)
    return attacked(clipped, mimic(warmup=2), clients=[3], reply=reply)


FUNCTIONS = [
    "states_keep_their_shapes",
    "hyper_parameters_may_be_traced",
    "message_and_reply_are_the_only_channel",
    "nothing_leaks_out_of_a_trace",
    "replies_of_weight_zero_never_matter",
]


@pytest.mark.thorough
@pytest.mark.parametrize("factory", [under_everything, with_memories])
def test_a_wrapped_method_keeps_the_contract(factory):
    assert len(check_method(factory, checks=FUNCTIONS)) == len(FUNCTIONS)


@pytest.mark.thorough
def test_a_wrapped_method_is_the_same_on_both_engines():
    def noisy(loss, *, steps=2, lr=0.1, batch=8):
        return attacked(
            robust(fed_avg(loss, steps=steps, lr=lr, batch=batch), bucketing(plain_mean)), "noise", clients=[1]
        )

    assert check_method(noisy, engines=("vectorized", "remote"), checks=["engines_agree"])


def test_the_order_of_a_cohort_and_a_cohort_of_one_are_fine_for_a_wrapped_method():
    checks = ["the_order_of_a_cohort_is_rounding", "one_client_is_enough"]
    assert check_method(with_memories, engines=("vectorized",), checks=checks)


@pytest.mark.parametrize("factory", [under_everything, with_memories])
def test_a_round_of_nobody_leaves_the_server_as_it_was(factory):
    method, x = factory(loss), jnp.ones(2)
    server = method.init(x, KEY)
    reply = (x, x) if factory is with_memories else x
    replies = jax.tree.map(lambda leaf: jnp.full((4, *leaf.shape), jnp.nan), reply)
    after = jax.jit(method.merge)(server, replies, cohort(np.zeros(4)), KEY)
    jax.tree.map(np.testing.assert_array_equal, after, server)


# robust


def test_the_aggregate_stands_in_the_place_of_every_reply():
    replies, weight = jnp.array([[1.0], [np.nan], [2.0], [50.0]]), np.array([9.0, 0, 1, 1])
    x, _ = merged(robust(fed_avg(loss, server_lr=0.5), median()), replies, weight)
    assert x == 1  # half of 2: the sizes 9, 1, 1 do not count
    x, _ = merged(robust(fed_avg(loss), "mean"), replies, weight)
    np.testing.assert_allclose(x, merged(fed_avg(loss), replies, weight)[0], rtol=1e-6)


def test_clipping_remembers_its_last_answer_in_the_server(x64):
    method = robust(fed_avg(loss), centered_clipping(radius=1.0, steps=1))
    replies, server, merge = jnp.array([[3.0], [3.0]]), method.init(jnp.zeros(1), KEY), jax.jit(method.merge)
    for answer in (1, 2, 3, 3):
        server = merge(server, replies, cohort([1, 1]), KEY)
        assert server.last == answer
    assert server.inner == 1 + 2 + 3 + 3


def test_replies_unlike_the_model_need_to_be_described():
    method = robust(scaffold(loss), centered_clipping())
    x = jnp.zeros(2)
    with pytest.raises(UserError, match=r"give robust\(\.\.\., reply="):
        method.merge(method.init(x, KEY), (jnp.ones((3, 2)), jnp.ones((3, 2))), cohort(np.ones(3)), KEY)
    method = attacked(scaffold(loss), mimic(), clients=[0])
    with pytest.raises(UserError, match=r"give attacked\(\.\.\., reply="):
        method.merge(method.init(x, KEY), (jnp.ones((3, 2)), jnp.ones((3, 2))), cohort(np.ones(3)), KEY)


def test_the_order_of_the_cohort_breaks_no_tie_and_draws_no_other_buckets():
    replies, ids = jnp.array([[1.0], [2.0], [4.0], [8.0], [16.0]]), np.array([4, 0, 3, 1, 2])
    for rule in (krum(byzantine=3), bucketing(median())):
        method = robust(fed_avg(loss), rule)
        here = merged(method, replies, np.ones(5), ids=ids)[0]
        turned = np.array([2, 0, 4, 1, 3])
        assert merged(method, replies[turned], np.ones(5), ids=ids[turned])[0] == here


# guarded


def test_what_no_honest_client_sends_is_rejected_and_counted():
    replies = {"a": jnp.array([1.0, 2.0, 3.0, 1.0, 99.0, np.nan, np.inf, np.nan]), "b": jnp.ones((8, 2))}
    weight = np.array([1.0, 1, 1, 1, 1, 1, 1, 0])
    x = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
    got, server = merged(guarded(fed_avg(loss), most=10.0), replies, weight, x)
    np.testing.assert_allclose(got["a"], 7 / 4, rtol=1e-6)
    assert rejections(server) == {"not_finite": 2, "too_large": 1}  # who was absent was not rejected
    assert server.rejected.too_large.dtype == jnp.int32
    got, server = merged(guarded(fed_avg(loss), most=np.inf), replies, weight, x)
    np.testing.assert_allclose(got["a"], 106 / 5, rtol=1e-6)
    assert rejections(server) == {"not_finite": 2, "too_large": 0}


def test_rejections_add_up_over_rounds_and_are_found_inside_other_wrappers():
    method = attacked(guarded(robust(fed_avg(loss), "median")), not_a_number(), clients=[1])
    server, merge = method.init(jnp.zeros(1), KEY), jax.jit(method.merge)
    for _ in range(3):
        server = merge(server, jnp.ones((3, 1)), cohort(np.ones(3)), KEY)
    assert rejections(server) == {"not_finite": 3, "too_large": 0}
    assert method.message(server, 0) == 3
    with pytest.raises(UserError, match=r"wrap the method in guarded"):
        rejections(robust(fed_avg(loss), "median").init(jnp.zeros(1), KEY))


def test_when_all_are_rejected_the_model_stays():
    x, server = merged(guarded(fed_avg(loss)), jnp.full((3, 1), np.nan), np.ones(3), jnp.array([4.0]))
    assert x == 4 and rejections(server)["not_finite"] == 3


# attacked


def test_only_the_attackers_that_take_part_forge():
    replies = jnp.array([[1.0], [3.0], [5.0], [7.0]])
    method = attacked(fed_avg(loss), sign_flip(scale=2.0, of="honest"), clients=[0, 2])
    assert merged(method, replies, np.ones(4))[0] == (3 + 7 - 2 * 2 * 5) / 4
    np.testing.assert_allclose(merged(method, replies, [0, 1, 1, 1])[0], (3 + 7 - 2 * 5) / 3, atol=1e-6)
    assert merged(method, replies, [0, 1, 0, 1])[0] == 5
    assert merged(method, replies, np.ones(4), ids=[5, 6, 7, 8])[0] == 4


def test_a_flipped_label_is_an_honest_method_on_spoiled_data():
    y = jnp.array([0, 1, 2, 2, 0, 2, 1, 1], jnp.int32)
    data = Data(jnp.zeros(8), y, np.int32(2), np.int32(3), 4)
    spoiled = Data(jnp.zeros(8), 2 - y, np.int32(2), np.int32(3), 4)
    base = ditto(loss, steps=3, batch=0)
    method = attacked(base, label_flip(classes=3), clients=[1])
    server = method.init(jnp.float32(0.5), KEY)
    for i, seen in ((0, data), (1, spoiled)):
        message = method.message(server, jnp.int32(i))
        client = method.enroll(jnp.float32(0.5), message, data, KEY)
        got, wanted = method.local(client, message, data, KEY), base.local(client, message[0], seen, KEY)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert method.personal(got[0], message, data, KEY) == got[0]


def test_an_attack_on_data_touches_the_attackers_own_rows_alone():
    touched = []

    def note(data):
        touched.append(len(data.y))
        return dataclasses.replace(data, y=2 - data.y)

    y = jnp.array([0, 1, 2, 2, 0, 2, 1, 1] * 20, jnp.int32)
    method = attacked(fed_avg(loss, steps=1, batch=0), Attack(data=note), clients=[1])
    server = method.init(jnp.float32(0.5), KEY)
    for start in (2, 157):  # the last rows of all, too
        data = Data(jnp.zeros(160), y, np.int32(start), np.int32(3), 4)
        reply = method.local((), method.message(server, 1), data, KEY)[1]
        np.testing.assert_allclose(reply, 0.1 * np.mean(2 - y[start : start + 3] - 0.5), rtol=1e-5)
    assert touched == [4, 4]


SPOILED = {
    "noise": lambda method: attacked(method, "noise", clients=[1]),
    "not_a_number": lambda method: attacked(method, "not_a_number", clients=[1]),
    "corrupted": lambda method: corrupted(method, share=1.0, kind="infinite"),
    "defended": lambda method: attacked(robust(method, "mean"), "noise", clients=[1]),
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_is_forged_or_broken_is_heard_in_both_stages_of_a_method(how):
    method = SPOILED[how](staged(*[fed_avg(loss, steps=1, batch=0)] * 2, rounds=1))
    x, data = jnp.float32(0), Data(jnp.zeros(2), jnp.ones(2), 0, 2, 2)
    server = method.init(x, KEY)
    for stage, honest in ((1, 0.1), (2, 0.19)):
        message = method.message(server, 0)
        reply = method.local(method.enroll(x, message, data, KEY), message, data, KEY)[1]
        server, counted = method.merge_counted(server, tree.stack([reply, reply]), cohort(np.ones(2)), KEY)
        assert counted.all()
        inner = server
        while hasattr(inner, "inner"):
            inner = inner.inner
        assert not abs(inner[stage] - honest) < 0.01


def test_replies_of_the_honest_pass_through_untouched():
    # A whole number this large is no float32.
    replies = {"count": jnp.array([2**24 + 1, 5], jnp.int32), "w": jnp.ones((2, 2))}
    heard = fed_avg(loss)._replace(merge=lambda server, replies, cohort, key: replies)
    method = attacked(heard, noise(), clients=[1])
    server = method.merge(method.init(jnp.zeros(2), KEY), replies, cohort(np.ones(2)), KEY)
    assert server.inner["count"][0] == 2**24 + 1


def test_an_attack_outside_the_defence_only():
    for defended in (robust(attacked(fed_avg(loss), "noise", clients=[0]), "median"),
                     guarded(attacked(fed_avg(loss), "noise", clients=[0]))):  # fmt: skip
        with pytest.raises(UserError, match="so that the attack comes first"):
            defended.init(jnp.zeros(1), KEY)


def test_who_attacks_is_drawn_from_the_seed_of_the_run():
    method = attacked(fed_avg(loss), "noise", share=0.2, population=50)
    drawn = [attackers_of(jax.jit(method.init)(jnp.zeros(1), jax.random.key(seed))) for seed in (0, 0, 1, 2)]
    assert drawn[0] == drawn[1] and len({*map(tuple, drawn)}) == 3
    assert all(len(set(who)) == 10 and 0 <= min(who) <= max(who) < 50 for who in drawn)
    fixed = attacked(fed_avg(loss), "noise", share=0.2, population=50, seed=1)
    for seed in (0, 1):
        assert attackers_of(fixed.init(jnp.zeros(1), jax.random.key(seed))) == attackers(
            share=0.2, population=50, seed=1
        )


def test_attackers_are_named_or_drawn():
    drawn = attackers(share=0.2, population=50, seed=1)
    assert len(set(drawn)) == 10 and drawn == attackers(share=0.2, population=50, seed=1)
    assert drawn != attackers(share=0.2, population=50, seed=2) and max(drawn) < 50
    for wrong in ({}, {"clients": [1], "share": 0.1}, {"share": 0.1}, {"share": 1.5, "population": 4}):
        with pytest.raises(UserError, match=r"say who attacks|share of attackers"):
            attackers(**wrong)
    with pytest.raises(UserError, match="given by their ids"):
        attackers(clients=[-1])
    with pytest.raises(UserError, match="an attack is a name"):
        attacked(fed_avg(loss), 3, clients=[1])


# What holds: gradient descent (step 0.3, 400 rounds) on 20 quadratic clients in 10 dimensions, of which 4 attack.

N, BYZANTINE, DIMENSION, LR = 20, (1, 5, 9, 13), 10, 0.3
RULES = {  # each over buckets of two; the mean of equal buckets is the mean
    "mean": as_rule(plain_mean),
    "krum": krum(byzantine=len(BYZANTINE)),
    "median": median(),
    "geometric_median": geometric_median(),
    "centered_clipping": centered_clipping(radius=LR),
}
# Replies are steps -LR times a gradient, and so is the noise, which is 10 times a standard normal gradient.
ATTACKS = {
    "sign_flip": sign_flip(scale=3.0, of="honest"),
    "alie": alie(),
    "inner_product": inner_product(eps=0.5),
    "noise": noise(scale=10 * LR),
    "mimic": mimic(warmup=20),
}


def clients(shared):
    """(H, b, the optimum of the honest clients' mean): clients of one optimum, or of optima apart."""
    rng = np.random.default_rng(1)
    bases = [np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)))[0] for _ in range(N)]
    h = np.array([q @ np.diag(rng.uniform(0.5, 1.5, DIMENSION)) @ q.T for q in bases])
    optimum = rng.standard_normal(DIMENSION) + (0 if shared else 0.5) * rng.standard_normal((N, DIMENSION))
    b = np.einsum("ijk,ik->ij", h, optimum)
    honest = np.setdiff1d(np.arange(N), BYZANTINE)
    return h, b, np.linalg.solve(h[honest].mean(0), b[honest].mean(0))


def switchable(hyper, round):
    """Every rule under every attack in one compiled program."""
    which, what = (jnp.asarray(hyper[name], int) for name in ("rule", "attack"))
    rules, attacks = list(RULES.values()), list(ATTACKS.values())

    def forge(attack):
        def rows(scene, memory):
            row, after = attack.forge(scene, memory)
            return jnp.broadcast_to(row, scene.rows.shape), after

        return rows

    rule = Rule(lambda *given: lax.switch(which, [r.combine for r in rules], *given), remembers=True)
    attack = Attack(lambda *given: lax.switch(what, [forge(a) for a in attacks], *given), init=attacks[-1].init)
    descent = fed_avg(objective(quadratic(DIMENSION), "custom").loss, steps=1, batch=0, lr=LR)
    return attacked(robust(descent, bucketing(rule, size=2)), attack, clients=BYZANTINE)


@pytest.fixture(scope="module")
def distances():
    """(shared optimum?, rule, attack) -> how far from the optimum the run ends."""
    with jax.enable_x64(True):
        engine, found = None, {}
        for shared in (True, False):
            h, b, optimum = clients(shared)
            if engine is None:
                engine = Vectorized(switchable, h, b, np.arange(N + 1), block=400)
            engine.train = engine.examples(h, b, np.arange(N + 1))
            for r, rule in enumerate(RULES):
                for a, attack in enumerate(ATTACKS):
                    run = engine.start(quadratic(DIMENSION).init, 0, {"rule": float(r), "attack": float(a)})
                    server = engine.advance(run, 400).server
                    found[shared, rule, attack] = float(np.linalg.norm(np.asarray(server.inner.inner) - optimum))
    return found


@pytest.mark.thorough
def test_with_a_shared_optimum_krum_and_the_median_over_buckets_find_it_under_every_attack(distances):
    assert max(distances[True, rule, attack] for rule in ("krum", "median") for attack in ATTACKS) < 1e-12


@pytest.mark.thorough
def test_with_a_shared_optimum_noise_defeats_the_mean_and_hardly_the_geometric_median(distances):
    assert distances[True, "mean", "noise"] > 0.5
    assert distances[True, "geometric_median", "noise"] < 1e-2
    assert max(distances[True, "geometric_median", attack] for attack in ATTACKS if attack != "noise") < 1e-12


def test_clipping_by_a_fixed_radius_leaves_an_error_under_noise(distances):
    assert 0.01 < distances[True, "centered_clipping", "noise"] < 0.5


def test_with_optima_apart_an_error_remains_under_every_robust_rule(distances):
    assert min(distances[False, rule, attack] for rule in RULES if rule != "mean" for attack in ATTACKS) > 0.01
    assert max(distances[False, rule, attack] for rule in RULES if rule != "mean" for attack in ATTACKS) < 3


def test_the_mean_is_unharmed_by_attacks_that_only_rescale_it(distances):
    for shared in (True, False):
        assert max(distances[shared, "mean", attack] for attack in ("sign_flip", "inner_product")) < 1e-6


def test_youngs_inequality_in_the_rate_needs_the_coefficient_two_over_mu():
    # 2 g |<a, b>| <= g mu/2 b^2 + g c a^2 for all a and b: c = 2 / mu is enough and needed, 1 / (2 mu) is not enough.
    g, rng = 1.0, np.random.default_rng(0)
    for mu in (0.1, 1.0, 10.0):
        a, b = rng.normal(size=(2, 1000))
        bound = lambda a, b, c, mu=mu: g * mu / 2 * b**2 + g * c * a**2
        assert (2 * g * abs(a * b) <= bound(a, b, 2 / mu) + 1e-12).all()
        tight = 2 * a / mu
        np.testing.assert_allclose(2 * g * abs(a * tight), bound(a, tight, 2 / mu))
        assert (2 * g * abs(a * tight) > bound(a, tight, 1 / (2 * mu))).all()
    assert (2 * abs(1 * -2), bound(1, -2, 1 / 2, 1.0), bound(1, -2, 2, 1.0)) == (4, 2.5, 4)
