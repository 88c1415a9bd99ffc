"""Fine-tuning, server optimizers and stages: of any method, and nothing else changed."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from apiece import tree
from apiece.engines.costs import costs
from apiece.methods import ditto, fed_adam, fed_avg, fed_clup, fed_prox, ftfa, rtfa, scaffold
from apiece.methods.fed_adam import adam_uncorrected
from apiece.methods.ffgg import ffgg
from apiece.methods.partial import partial
from apiece.models import objective
from apiece.protocol import Cohort, Data
from apiece.testing import check_method
from apiece.wrap import discounted, fine_tuned, pipeline, server_optimized, staged

DATA = Data(jnp.zeros(3), jnp.array([0.0, 3.0, 6.0]), np.int32(0), np.int32(3), 3)
KEY = jax.random.key(0)


def loss(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


@pytest.mark.parametrize("lam", [0.0, 0.5, 4.0])
def test_the_ridge_holds_the_model_where_it_started(lam):
    tuned = fine_tuned(fed_avg(loss), loss, epochs=None, steps=200, lr=0.2, batch=0, lam=lam)
    np.testing.assert_allclose(tuned.personal((), jnp.float32(10), DATA, KEY), (3 + lam * 10) / (1 + lam), rtol=1e-5)


def test_the_ridge_may_be_traced():
    run = lambda lam: fine_tuned(fed_avg(loss), loss, epochs=None, steps=200, lr=0.2, batch=0, lam=lam).personal(
        (), jnp.float32(10), DATA, KEY
    )
    np.testing.assert_allclose(jax.jit(jax.vmap(run))(jnp.array([0.0, 4.0])), [3, 43 / 5], rtol=1e-5)


def test_epochs_rule_over_steps():
    tuned = fine_tuned(fed_avg(loss), loss, epochs=1, steps=99, lr=0.5, batch=0)
    np.testing.assert_allclose(tuned.personal((), jnp.float32(10), DATA, KEY), 3 + 7 / 2, rtol=1e-6)


def test_fine_tuning_starts_from_the_model_the_method_would_have_used():
    tuned = fine_tuned(ditto(loss), loss, epochs=0)
    assert tuned.personal(jnp.float32(7), jnp.float32(1), DATA, KEY) == 7


def test_what_is_tuned_and_the_tuning_itself_draw_from_keys_apart():
    # Half a step towards one example, twice: of the examples 0, 3 and 6 the model tells which two.
    half = dict(steps=1, epochs=None, lr=0.5, batch=1)
    twice = jax.jit(fine_tuned(fine_tuned(fed_avg(loss), loss, **half), loss, **half).personal)
    ends = [float(twice((), jnp.float32(9), DATA, jax.random.key(seed))) for seed in range(12)]
    alike = sum(end in [((9 + y) / 2 + y) / 2 for y in (0, 3, 6)] for end in ends)
    assert 0 < alike < 12, "a third by chance, and not all"


def test_training_itself_is_not_changed():
    base = fed_avg(loss, steps=2, batch=0)
    assert fine_tuned(base, loss)._replace(personal=None) == base._replace(personal=None)


def test_the_catalogs_two_are_made_of_it():
    by_hand = fine_tuned(fed_avg(loss), loss, epochs=4, lr=0.3, batch=2, lam=0.7)
    catalog = rtfa(loss, lam=0.7, tune_epochs=4, tune_lr=0.3, batch=2)
    plain = ftfa(loss, tune_epochs=4, tune_lr=0.3, batch=2)
    at = ((), jnp.float32(10), DATA, KEY)
    assert by_hand.personal(*at) == catalog.personal(*at)
    assert plain.personal(*at) == fine_tuned(fed_avg(loss), loss, epochs=4, lr=0.3, batch=2).personal(*at)


# A model of two parameters, a and b, on two clients; all gradients are full ones.

Y = jnp.array([[0.0, 1.0], [2.0, -1.0], [4.0, 3.0], [1.0, 1.0]])
START = {"a": jnp.float32(1), "b": jnp.float32(-1)}
OFFSETS, SIZES = (0, 3), (3, 1)


def curved(p, batch, key):
    value = (p["a"] - batch.y[:, 0]) ** 2 / 2 + (p["a"] + p["b"] - batch.y[:, 1]) ** 2 / 2
    return (batch.weight * value).sum() / batch.weight.sum()


def mine(i):
    return Data(Y, Y, np.int32(OFFSETS[i]), np.int32(SIZES[i]), 3)


def play(method, rounds, server=None, clients=None, cohorts=None):
    """Server and clients after so many rounds by hand; `cohorts`: who takes part in each."""
    server = method.init(START, KEY) if server is None else server
    clients = [None, None] if clients is None else clients
    merge = jax.jit(method.merge)

    @jax.jit
    def work(client, message, data):
        return method.local(client, message, data, KEY)

    for r in range(rounds):
        replies, here = [], (0, 1) if cohorts is None else cohorts[r]
        for i in here:
            message = method.message(server, i)
            client = method.enroll(START, message, mine(i), KEY) if clients[i] is None else clients[i]
            clients[i], reply = work(client, message, mine(i))
            replies.append(reply)
        ids, weight = jnp.array(here), jnp.array([SIZES[i] for i in here], jnp.float32)
        server = merge(server, tree.stack(replies), Cohort(ids, weight, jnp.zeros(len(here), int), 2), KEY)
    return server, clients


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6), a, b)


FULL = dict(steps=2, lr=0.1, batch=0)
FFGG = dict(private="b", start="zero", inner_steps=2, inner_lr=0.3, lr=0.2, batch=0)
UPDATES = [
    pytest.param(fed_avg(curved, **FULL), id="fed_avg"),
    pytest.param(fed_prox(curved, **FULL), id="fed_prox"),
    pytest.param(fed_clup(curved, **FULL), id="fed_clup"),
    pytest.param(scaffold(curved, **FULL), id="scaffold"),
    pytest.param(partial(curved, private="b", **FULL), id="partial"),
    pytest.param(ffgg(curved, **FFGG), id="ffgg"),
    pytest.param(staged(fed_avg(curved, **FULL), ffgg(curved, **FFGG), 1), id="staged"),
]


@pytest.mark.parametrize("method", UPDATES)
def test_plain_steps_of_size_one_are_the_method_itself(method):
    wrapped = server_optimized(method, optax.sgd(1.0))
    (state, _), clients = play(wrapped, 2)
    usual, others = play(method, 2)
    same(state, usual)
    same(clients, others)


@pytest.mark.parametrize("optimizer", [optax.adam(0.1), optax.sgd(0.5, momentum=0.9)])
def test_the_rest_of_a_servers_state_is_merged_as_ever(optimizer):
    base = scaffold(curved, **FULL)
    (x, c), _ = play(server_optimized(base, optimizer, model="0"), 1)[0]
    plain_x, plain_c = play(base, 1)[0]
    same(c, plain_c)
    assert x["a"] != plain_x["a"]


def test_fed_adam_is_fed_avg_with_adam_on_the_server():
    by_hand = server_optimized(fed_avg(curved, **FULL), adam_uncorrected(0.01, 0.9, 0.99, 1e-3))
    same(play(by_hand, 3)[0], play(fed_adam(curved, **FULL), 3)[0])


def test_a_part_can_be_tuned_alone():
    tuned = fine_tuned(fed_avg(curved), curved, epochs=None, steps=100, lr=0.5, batch=0, part="b")
    model = tuned.personal((), START, mine(1), KEY)
    assert model["a"] == START["a"]
    np.testing.assert_allclose(model["b"], 1 - START["a"], atol=1e-6)  # the client's one example is (1, 1)


# Stages.

SECOND = [
    pytest.param(scaffold(curved, **FULL), id="scaffold"),
    pytest.param(ditto(curved, **FULL), id="ditto"),
    pytest.param(ffgg(curved, **FFGG), id="ffgg"),
    pytest.param(fed_avg(curved, steps=1, lr=0.3, batch=0), id="fed_avg"),
]


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("rounds", [0, 2])
def test_two_stages_are_two_runs_one_after_the_other(second, rounds):
    first = fed_avg(curved, **FULL)
    (round, x, state), clients = play(staged(first, second, rounds), rounds + 2)
    after_first = play(first, rounds)[0]
    expected, own = play(second, 2, server=second.init(after_first, KEY))
    assert round == rounds + 2
    same(x, after_first)
    same(state, expected)
    same([client[3] for client in clients], own)


def test_the_model_is_carried_out_of_a_larger_state():
    first, second = fed_adam(curved, **FULL), ffgg(curved, **FFGG)
    (_, (x, _), state), _ = play(staged(first, second, 2, carry=lambda server: server[0]), 3)
    same(x, play(first, 2)[0][0])
    same(state, play(second, 1, server=second.init(x, KEY))[0])


def test_the_first_stage_is_the_first_method():
    first = ditto(curved, **FULL)
    method = staged(first, scaffold(curved, **FULL), 5)
    (_, x, _), clients = play(method, 3)
    expected, own = play(first, 3)
    same(x, expected)
    same([client[2] for client in clients], own)
    server = method.init(START, KEY)
    message, inner = method.message(server, 0), first.message(START, 0)
    same(method.personal(clients[0], message, mine(0), KEY), first.personal(own[0], inner, mine(0), KEY))


def test_a_client_that_missed_the_switch_enrolls_in_the_second_stage():
    second = ditto(curved, **FULL)
    method = staged(fed_avg(curved, **FULL), second, 2)
    server, clients = play(method, 4, cohorts=[(0, 1), (0, 1), (0,), (0,)])
    message = method.message(server, 1)
    same(method.personal(clients[1], message, mine(1), KEY), server[2])  # Ditto enrolls at the shared model
    after, _ = method.local(clients[1], message, mine(1), KEY)
    expected, _ = second.local(server[2], server[2], mine(1), KEY)
    same(after[3], expected)


def test_a_late_reply_of_the_first_stage_does_not_count_in_the_second():
    method = staged(fed_avg(curved, **FULL), ffgg(curved, **FFGG), 1)
    server = method.init(START, KEY)
    message = method.message(server, 0)
    late = method.local(method.enroll(START, message, mine(0), KEY), message, mine(0), KEY)[1]
    server, clients = play(method, 1)
    message = method.message(server, 1)
    timely = method.local(clients[1], message, mine(1), KEY)[1]
    both = Cohort(jnp.arange(2), jnp.ones(2), jnp.zeros(2, int), 2)
    alone = both._replace(weight=jnp.array([0.0, 1.0]))
    replies = tree.stack([late, timely])
    same(method.merge(server, replies, both, KEY), method.merge(server, replies, alone, KEY))


def test_stages_share_places_in_what_is_sent():
    base = fed_avg(curved, **FULL)
    size = lambda method: tree.size_in_bytes(method.message(method.init(START, KEY), 0))
    assert size(staged(base, ffgg(curved, **FFGG), 1)) == size(base) + 1
    assert size(staged(ffgg(curved, **FFGG), base, 1, carry=lambda theta: START)) == size(base) + 1
    assert size(staged(base, scaffold(curved, **FULL), 1)) == 2 * size(base) + 1


def test_a_pipeline_ends_with_the_private_part_tuned():
    second = partial(curved, private="b", **FULL)
    method = pipeline(
        curved, fed_avg(curved, **FULL), second, rounds=1, private="b", epochs=None, steps=100, lr=0.5, batch=0
    )
    server, clients = play(method, 3)
    model = method.personal(clients[1], method.message(server, 1), mine(1), KEY)
    same(model["a"], server[2]["a"])
    np.testing.assert_allclose(model["b"], 1 - model["a"], atol=1e-6)


def test_the_example_of_three_stages_tunes_once():
    page = (Path(__file__).parents[2] / "docs" / "how-to-partial-personalization.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "three_stages" in block)
    names = {}
    exec(code.partition("result = ")[0], names)
    model = names["mlp"]((64,), 10)
    method, params = names["three_stages"](objective(model, "classification").loss), model.init(KEY)
    found = costs(method, params, (jnp.zeros((1, 64)), jnp.zeros(1, int)), size=40)
    assert found.gradients_personal == 5 * 2, "five passes over two batches"


@pytest.mark.thorough
def test_stages_keep_the_contract():
    def two_stages(loss, *, lr: float = 0.1, steps: int = 2, batch: int = 4):
        shared = fed_avg(loss, lr=lr, steps=steps, batch=batch)
        return staged(shared, ffgg(loss, private="b", lr=lr, inner_steps=1, batch=batch, tune_epochs=1), 1)

    checks = ["states_keep_their_shapes", "hyper_parameters_may_be_traced", "replies_of_weight_zero_never_matter"]
    found = check_method(two_stages, engines=("vectorized", "remote"), checks=[*checks, "engines_agree"])
    assert len(found) == 3 + 2


def test_a_late_reply_counts_less_and_one_in_time_all_of_it():
    loss = lambda params, batch, key: 0.0
    cohort = Cohort(jnp.arange(3), jnp.ones(3), delay=jnp.array([0, 3, 8]), population=3)
    replies = {"w": jnp.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])}
    moved = lambda **how: discounted(fed_avg(loss), **how).merge({"w": jnp.zeros(2)}, replies, cohort, None)["w"]
    np.testing.assert_allclose(moved(power=0.5), np.array([1.0, 2.0]) * (1 + 1 / 2 + 1 / 3) / 3, rtol=1e-6)
    np.testing.assert_allclose(moved(power=0.0), [1.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(moved(power=0.0, scale=0.1), [0.1, 0.2], rtol=1e-6)
