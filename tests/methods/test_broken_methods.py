"""Methods that are broken on purpose, one line of the contract each, and the checker that names that line."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import tree
from apiece.client.descend import full_gradient, gradient
from apiece.errors import UserError
from apiece.methods import fed_avg
from apiece.protocol import Batch
from apiece.testing import check_method

pytestmark = pytest.mark.thorough  # it is the checker that is checked


def one_step(loss, lr, direction=None):
    """FedAvg with one step a round: the sound method that the broken ones are made of. Compiles fast."""
    direction = direction or (lambda client, x, data, key: full_gradient(loss, x, data, key))
    local = lambda client, x, data, key: (client, tree.scale(-lr, direction(client, x, data, key)))
    return fed_avg(loss)._replace(local=local)


def sound(loss, *, lr=0.1):
    return one_step(loss, lr)


def the_server_grows(loss, *, lr=0.1):
    def merge(server, replies, cohort, key):
        x, history = server
        x = one_step(loss, lr).merge(x, replies, cohort, key)
        return x, jnp.concatenate([history, x["b"][None]])

    return one_step(loss, lr)._replace(
        init=lambda params, key: (params, params["b"][None]), message=lambda server, i: server[0], merge=merge
    )


def the_state_changes_its_dtype(loss, *, lr=0.1):
    halve = lambda client, x, data, key: (jax.tree.map(lambda p: p.astype(jnp.float16), x), tree.zeros(x))
    return one_step(loss, lr)._replace(enroll=lambda params, x, data, key: x, local=halve)


def float64_creeps_in(loss, *, lr=0.1):
    def merge(x, replies, cohort, key):
        share = cohort.weight / cohort.weight.sum()
        return jax.tree.map(lambda p, r: p + lr * jnp.tensordot(share, r, 1), x, replies)

    return one_step(loss, lr)._replace(merge=merge)


def the_hyper_parameter_must_be_known(loss, *, lr=0.1):
    return one_step(loss, lr if lr > 0.05 else 0.05)


def the_server_peeks(loss, *, lr=0.1):
    seen = []

    def local(client, x, data, key):
        seen.append(data.y[data.start])
        return one_step(loss, lr).local(client, x, data, key)

    def merge(x, replies, cohort, key):
        return tree.step(one_step(loss, lr).merge(x, replies, cohort, key), 1e-3 * seen[-1], x)

    return one_step(loss, lr)._replace(local=local, merge=merge)


RNG = np.random.default_rng(0)


def the_message_is_noisy(loss, *, lr=0.1):
    return one_step(loss, lr)._replace(message=lambda x, i: tree.scale(1 + 0.01 * RNG.random(), x))


KEPT = []


def a_tracer_is_kept(loss, *, lr=0.1):
    def local(client, x, data, key):
        KEPT[:] = [x]
        return one_step(loss, lr).local(client, x, data, key)

    return one_step(loss, lr)._replace(local=local)


COUNTER = [0]


def a_counter_counts_traces(loss, *, lr=0.1):
    COUNTER[0] += 1
    return one_step(loss, lr * (1 + 0.01 * COUNTER[0]))


def everybody_counts(loss, *, lr=0.1):
    merge = lambda x, replies, cohort, key: jax.tree.map(lambda p, r: p + r.mean(0), x, replies)
    return one_step(loss, lr)._replace(merge=merge)


def zero_times_what_is_not_a_number(loss, *, lr=0.1):
    def merge(x, replies, cohort, key):
        share = cohort.weight / cohort.weight.sum()
        return jax.tree.map(lambda p, r: p + jnp.tensordot(share, r, 1), x, replies)

    return one_step(loss, lr)._replace(merge=merge)


def the_first_counts_twice(loss, *, lr=0.1):
    def merge(x, replies, cohort, key):
        cohort = cohort._replace(weight=cohort.weight.at[0].multiply(2))
        return one_step(loss, lr).merge(x, replies, cohort, key)

    return one_step(loss, lr)._replace(merge=merge)


def the_next_row_is_read(loss, *, lr=0.1):
    def direction(client, x, data, key):
        at = (data.start + jnp.arange(2)) % len(data.y)  # a client of one example reads its neighbour's first
        return gradient(loss, x, Batch(data.x[at], data.y[at], jnp.ones(2)), key)

    return one_step(loss, lr, direction)


def padding_is_in_the_mean(loss, *, lr=0.1):
    def direction(client, x, data, key):
        at = jnp.clip(data.start + jnp.arange(data.capacity), 0, len(data.y) - 1)
        return gradient(loss, x, Batch(data.x[at], data.y[at], jnp.ones(data.capacity)), key)

    return one_step(loss, lr, direction)


def a_noughth_visit_is_not_expected(loss, *, lr=0.1):
    """The server counts rounds, the client its visits: whoever comes after the first round divides by zero."""

    def local(visits, message, data, key):
        x, rounds = message
        _, reply = one_step(loss, lr).local((), x, data, key)
        return visits + 1, tree.scale(jnp.where(rounds > 0, rounds / visits, 1.0), reply)

    def merge(server, replies, cohort, key):
        x, rounds = server
        return one_step(loss, lr).merge(x, replies, cohort, key), rounds + 1

    return one_step(loss, lr)._replace(
        init=lambda params, key: (params, jnp.float32(0)),
        merge=merge,
        enroll=lambda params, message, data, key: jnp.float32(0),
        local=local,
        personal=lambda visits, message, data, key: message[0],
    )


def a_late_enrollment_is_not_expected(loss, *, lr=0.1):
    """Who enrolls when the model has moved away from the initial one starts from what is not a number."""
    moved = lambda params, x: tree.norm(tree.sub(params, x)) > 0

    def local(v, x, data, key):
        _, reply = one_step(loss, lr).local((), x, data, key)
        return tree.add(v, reply), reply

    return one_step(loss, lr)._replace(
        enroll=lambda params, x, data, key: tree.where(moved(params, x), tree.scale(jnp.nan, x), x),
        local=local,
        personal=lambda v, x, data, key: v,
    )


def progress_is_forgotten(loss, *, lr=0.1):
    """Says that clients have nothing to keep, and has them work on."""

    def local(v, x, data, key):
        _, reply = one_step(loss, lr).local((), x, data, key)
        return tree.add(v, reply), reply

    how = dict(enroll=lambda params, x, data, key: params, personal=lambda v, x, data, key: v, forgets=True)
    return one_step(loss, lr)._replace(local=local, **how)


def others_are_counted_by_the_wayside(loss, *, lr=0.1):
    """A message that is not of the state: who was asked before changes what the next one is told."""
    asked = []

    def message(x, i):
        asked.append(i)
        return tree.scale(1 + 0.01 * len(asked), x)

    return one_step(loss, lr)._replace(message=message)


def the_model_is_not_a_model(loss, *, lr=0.1):
    return one_step(loss, lr)._replace(personal=lambda client, x, data, key: x["w"])


BROKEN = [
    (the_server_grows, 1, "the server's state after merge has the shape (2, 3)[1], not (1, 3)"),
    (the_state_changes_its_dtype, 1, "a client's state after local has the dtype float16"),
    (float64_creeps_in, 1, "beside float64 hyper-parameters the server's state after merge has the dtype float64"),
    (the_model_is_not_a_model, 1, "the model of personal has another structure"),
    (the_hyper_parameter_must_be_known, 1, "Hyper-parameters may be traced"),
    (the_server_peeks, 2, "message and reply are the only channel"),
    (the_message_is_noisy, 3, "it draws nothing and changes nothing"),
    (others_are_counted_by_the_wayside, 3, "it draws nothing and changes nothing"),
    (a_tracer_is_kept, 1, "nothing that they compute with is kept outside of them"),
    (a_counter_counts_traces, 1, "built and traced anew, they are the same program"),
    (everybody_counts, 5, "Replies of weight 0 never matter"),
    (zero_times_what_is_not_a_number, 5, "Replies of weight 0 never matter"),
    (the_first_counts_twice, 6, "Permuting the cohort changes nothing but rounding"),
    (the_next_row_is_read, 5, "Rows beyond a client's size are never read"),
    (padding_is_in_the_mean, 5, "Rows beyond a client's size are never read"),
    (a_noughth_visit_is_not_expected, 7, "Forgetting is legal"),
    (progress_is_forgotten, 7, "a state that the method says it forgets"),
    (a_late_enrollment_is_not_expected, 7, "a run whose clients enroll anew each round works"),
]


@pytest.mark.parametrize(("factory", "line", "sentence"), BROKEN, ids=[b[0].__name__ for b in BROKEN])
def test_the_broken_line_is_named(factory, line, sentence):
    with pytest.raises(AssertionError, match=f"line {line} of the contract is broken.*{re.escape(sentence)}"):
        check_method(factory, engines=["remote"])  # compiles least; that each engine finds it is tested below


ON_EACH_ENGINE = [
    (the_first_counts_twice, "the_order_of_a_cohort_is_rounding", 6),
    (the_next_row_is_read, "rows_of_others_are_never_read", 5),
    (padding_is_in_the_mean, "rows_of_others_are_never_read", 5),
    (a_noughth_visit_is_not_expected, "forgetting_is_legal", 7),
    (a_late_enrollment_is_not_expected, "a_newcomer_has_a_model", 7),
]


@pytest.mark.parametrize("engine", ["vectorized", "remote"])
@pytest.mark.parametrize(("factory", "check", "line"), ON_EACH_ENGINE)
def test_each_engine_finds_it_alone(factory, check, line, engine):
    with pytest.raises(AssertionError, match=f"line {line} of the contract is broken on the {engine} engine"):
        check_method(factory, engines=[engine], checks=[check])


def test_the_sound_method_they_are_made_of_passes():
    checked = check_method(sound)
    assert {int(name[5]) for name in checked} == set(range(1, 10))
    assert len(checked) == len(set(checked)) >= 30


def test_a_method_without_numbers_to_trace_passes():
    checked = check_method(lambda loss: one_step(loss, 0.1), engines=["remote"])
    assert all("on the vectorized engine" not in name for name in checked)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [(dict(checks=["forgeting_is_legal"]), "forgetting_is_legal"), (dict(engines=["remot"]), "remote")],
)
def test_a_misspelt_check_or_engine_is_named(asked, remedy):
    with pytest.raises(UserError, match=f"did you mean '{remedy}'"):
        check_method(sound, **asked)


def test_options_reach_the_factory_and_hyper_parameters_can_be_chosen():
    given = []

    def factory(loss, *, steps=20, lr=0.1, decay=0.5, name="x"):
        given.append((steps, lr, decay, name))
        return one_step(loss, lr)

    check_method(factory, engines=(), options={"name": "y"}, hyper={"lr": 0.3}, checks=["states_keep_their_shapes"])
    assert set(given) == {(3, 0.3, 0.5, "y")}
