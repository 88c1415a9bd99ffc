"""Methods of the catalog with one mistake each: which of them the contract finds, by which line, and which it cannot.

A check on behaviour knows what every method must keep, not what this one was meant to be. So a mistake that turns a
method into another sound one is not found here; the golden numbers and the identities of a method find it, and for
each of these the test that does is run. (That the methods themselves pass is in `test_conformance.py`.)
"""

import functools
import sys
import types

import jax
import jax.numpy as jnp
import pytest
import test_partial

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import descend, toward
from apiece.methods import apfl, ditto, fed_avg, fed_per, partial, scaffold, self_fl
from apiece.split import divide, join, under
from apiece.testing import CHECKS, check_method

pytestmark = pytest.mark.thorough  # it is the checker that is checked

apfl_file = sys.modules[apfl.__module__]  # `apiece.methods.apfl` is the factory
BY_HAND = [name for name, check in CHECKS.items() if check.engines == ("functions",)]


def mutant_of(factory, **changes):
    """The factory, with functions of its method replaced: each change is given the method and gives the function."""

    @functools.wraps(factory)
    def mutated(loss, **options):
        method = factory(loss, **options)
        return method._replace(**{name: change(method) for name, change in changes.items()})

    return mutated


# (a) the reply is a model


def model_of_the_reply(method):
    def local(client, message, data, key):
        client, update = method.local(client, message, data, key)
        return client, tree.add(message, update)

    return local


def models_are_averaged(method):
    return lambda x, replies, cohort, key: mean(replies, cohort.weight)


def half_of_the_reply_is_a_model(method):
    def local(client, message, data, key):
        client, (moved, change) = method.local(client, message, data, key)
        return client, (tree.add(message[0], moved), change)

    return local


# (b) a key is used twice


def ditto_with_one_key(loss, *, lam=0.1, steps=20, lr=0.1, batch=32):
    """Ditto whose two trainings see the same batches."""
    base = fed_avg(loss, steps=steps, lr=lr, batch=batch)

    def local(v, x, data, key):
        v = descend(loss, v, data, key, steps=steps, lr=lr, batch=batch, shift=toward(x, lam))
        return v, base.local((), x, data, key)[1]

    return ditto(loss, lam=lam, steps=steps, lr=lr, batch=batch)._replace(local=local)


def noise_from_the_key_of_the_batches(method):
    def local(client, message, data, key):
        client, reply = method.local(client, message, data, key)
        return client, jax.tree.map(lambda leaf: leaf + 1e-3 * jax.random.normal(key, leaf.shape), reply)

    return local


# (c) personal ignores the state


def everybody_uses_x(method):
    return lambda client, x, data, key: x


def the_control_is_forgotten(method):
    """Scaffold whose clients keep their c_i, and never correct by it."""

    def local(own, message, data, key):
        _, reply = method.local(tree.zeros(own), message, data, key)
        return tree.add(own, reply[1]), reply

    return local


# (d) the wrong layers


@functools.wraps(fed_per)
def the_first_layer_is_private(loss, *, private, **options):
    return fed_per(loss, private="hidden0, w", **options)


@functools.wraps(partial)
def the_parts_are_exchanged(loss, *, private, **options):
    return partial(loss, private=f"not {private}", **options)


def the_head_is_sent_as_well(method):
    def local(v, x, data, key):
        after, reply = method.local(v, x, data, key)
        return after, (reply, tree.sub(after, v))

    return local


def the_head_is_ignored(method):
    return lambda x, replies, cohort, key: method.merge(x, replies[0], cohort, key)


def the_bias_is_everybodys(method):
    """FedPer whose clients all use one output bias, though each trains its own."""
    no_bias = lambda leaf: leaf if leaf.ndim > 1 else jnp.zeros_like(leaf)
    return lambda v, x, data, key: method.personal(jax.tree.map(no_bias, v), x, data, key)


def the_first_layer_is_left_out(method):
    def local(client, x, data, key):
        client, reply = method.local(client, x, data, key)
        rest, hidden = divide(reply, under("hidden0"))
        return client, join(rest, tree.zeros(hidden))

    return local


averaged = dict(local=model_of_the_reply, merge=models_are_averaged)
FOUND = {
    "fed_avg sends models": (mutant_of(fed_avg, **averaged), 4, "it is a model"),
    "ditto sends models": (mutant_of(ditto, **averaged), 4, "it is a model"),
    "apfl sends models": (mutant_of(apfl, **averaged), 4, "it is a model"),
    "fed_per sends models": (mutant_of(fed_per, **averaged), 4, "it is a model"),
    "scaffold sends a model and a difference": (
        mutant_of(scaffold, local=half_of_the_reply_is_a_model),
        4,
        r"reply\[0\]\['hidden0'\]\['b'\] .* it is a model",
    ),
    "ditto trains twice with one key": (ditto_with_one_key, 3, "one is used twice"),
    "fed_avg adds noise with the key of its batches": (
        mutant_of(fed_avg, local=noise_from_the_key_of_the_batches),
        3,
        "one is used twice",
    ),
    "ditto uses x": (mutant_of(ditto, personal=everybody_uses_x), 7, "nothing reads it"),
    "apfl uses x": (mutant_of(apfl, personal=everybody_uses_x), 7, "nothing reads it"),
    "scaffold forgets its control": (mutant_of(scaffold, local=the_control_is_forgotten), 7, "nothing reads it"),
    "fed_per keeps the first layer": (the_first_layer_is_private, 2, "out/w is sent, as message"),
    "partial exchanges the parts": (the_parts_are_exchanged, 2, "out/w is sent, as message"),
    "fed_per sends its head as well": (
        mutant_of(fed_per, local=the_head_is_sent_as_well, merge=the_head_is_ignored),
        2,
        r"out/w is sent, as reply\[1\]",
    ),
    "fed_per uses one bias": (
        mutant_of(fed_per, personal=the_bias_is_everybodys),
        2,
        "out/b is the same in the models",
    ),
    "fed_avg leaves a layer out": (mutant_of(fed_avg, local=the_first_layer_is_left_out), 4, "reply/hidden0/b is zero"),
    "ditto leaves a layer out": (mutant_of(ditto, local=the_first_layer_is_left_out), 4, "reply/hidden0/b is zero"),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_mutant_is_found(name):
    factory, line, words = FOUND[name]
    with pytest.raises(AssertionError, match=f"line {line} of the contract is broken.*{words}"):
        check_method(factory, engines=(), checks=BY_HAND)


def test_a_reply_that_cannot_be_an_update_is_declared():
    asked = dict(engines=(), checks=["a_reply_is_an_update"])
    assert check_method(self_fl, options=dict(rule="bayes"), **asked)
    with pytest.raises(AssertionError, match=r"line 4 .*reply\.model.* in a line that begins with `Late:`"):
        check_method(lambda loss, *, population: self_fl(loss, rule="bayes", population=population, batch=8), **asked)


# What the contract cannot find, because the mutant is a sound method, only another one: and the test that does.


def the_share_is_not_clipped(patch):
    """APFL whose mixture leaves [0, 1]: a method that looks beyond its two models would be one, too."""
    patch.setattr(apfl_file, "jnp", types.SimpleNamespace(asarray=jnp.asarray, clip=lambda share, low, high: share))
    return functools.partial(apfl, adapt=True), test_partial.test_an_adapted_share_stays_a_share


def every_visit_draws_the_same(patch):
    """APFL that draws by a key of its own, the same each time: a method with full batches draws nothing, and may."""
    known = apfl_file.slopes
    patch.setattr(apfl_file, "slopes", lambda data, key, **how: known(data, jax.random.key(9), **how))
    return apfl, test_partial.test_apfl_draws_the_batches_of_fed_avg


def another_layer_is_private_unless_asked(patch):
    """FedPer whose default is the first layer: what the option says is done, and that another was meant, none knows."""
    wrong = lambda loss, *, private="input", steps=20, lr=0.1, batch=32: fed_per(
        loss, private=private, steps=steps, lr=lr, batch=batch
    )
    patch.setattr(test_partial, "fed_per", wrong)
    return wrong, test_partial.test_nothing_private_is_sent


@pytest.mark.parametrize(
    "mutate", [the_share_is_not_clipped, every_visit_draws_the_same, another_layer_is_private_unless_asked]
)
def test_another_sound_method_is_found_by_what_was_meant(mutate, monkeypatch):
    factory, meant = mutate(monkeypatch)
    assert len(check_method(factory, engines=(), checks=BY_HAND)) == len(BY_HAND)
    with pytest.raises(AssertionError):
        meant()
