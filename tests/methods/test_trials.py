"""With default options all-for-all finds out who belongs together, proves it on held-out examples, or lets it be."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from apiece import fit
from apiece.data import digits
from apiece.methods import trials
from apiece.methods.trials import ALONE, GROUPED, TOGETHER, UNHEARD, Tried, scores


def relabelled(clients=20, groups=2, alpha=1.0, seed=0):
    """Digits with skewed labels; client k names every digit k % groups further than it is."""
    made = digits(clients=clients, alpha=alpha, seed=seed)
    for split in (made.train, made.validation, made.test):
        owner = np.repeat(np.arange(clients), np.diff(split.offsets))
        split.y[:] = (split.y + owner % groups) % 10
    return made


def run(made, method="all_for_all", rounds=80, **how):
    return fit(method, federation=made, rounds=rounds, **how)


def accuracy(found):
    return found.evaluate()["test"]["accuracy"]["mean"]


@pytest.fixture(scope="module")
def two_kinds():
    made = relabelled()
    return made, run(made)


def test_groups_hidden_under_skewed_labels_are_found(two_kinds):
    partners = two_kinds[1].partners()
    kinds = [int(client) % 2 for client in partners.clients]
    assert (np.equal.outer(partners.groups, partners.groups) == np.equal.outer(kinds, kinds)).all()
    bias, same = partners.bias, np.equal.outer(kinds, kinds)
    assert bias[~same].mean() > 2 * bias[same].mean()


def test_what_is_found_is_as_good_as_what_is_true_and_better_than_alone(two_kinds):
    made, found = two_kinds
    true = run(made, options={"clusters": [k % 2 for k in range(20)]})
    assert accuracy(found) > accuracy(true) - 0.02
    assert accuracy(found) > accuracy(run(made, "local")) + 0.02
    assert accuracy(found) > accuracy(run(made, "fed_avg")) + 0.2


def test_a_newcomer_joins_the_group_that_was_found(two_kinds):
    made, found = two_kinds
    owner = np.repeat(np.arange(20), np.diff(made.test.offsets))
    for kind in (0, 1):
        x, y = made.test.x[owner % 2 == kind], made.test.y[owner % 2 == kind]
        model = found.onboard(x[:20], y[:20])
        assert (np.argmax(found.predict(model, x[20:]), axis=1) == y[20:]).mean() > 0.8, kind


def test_clients_of_one_kind_stay_together_in_spite_of_skewed_labels():
    partners = run(relabelled(groups=1)).partners()
    assert max(partners.groups) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("alpha", [0.5, 100.0])
def test_networks_find_their_groups_too(alpha):
    made = relabelled(alpha=alpha)
    found = run(made, rounds=100, model="mlp")
    groups, kinds = found.partners().groups, [int(client) % 2 for client in found.partners().clients]
    assert (np.equal.outer(groups, groups) == np.equal.outer(kinds, kinds)).all()
    assert accuracy(found) > accuracy(run(made, "local", rounds=100, model="mlp")) + 0.02


@pytest.mark.thorough
def test_where_few_take_part_a_trial_lasts_until_all_were_there():
    made = relabelled(alpha=100.0)
    found = run(made, rounds=400, cohort=5)
    groups, kinds = found.partners().groups, [int(client) % 2 for client in found.partners().clients]
    together = np.equal.outer(groups, groups)
    assert not together[~np.equal.outer(kinds, kinds)].any()
    assert together[np.equal.outer(kinds, kinds)].mean() > 0.6


NO = np.float32(UNHEARD)


def said(phase, held, asked=(0.0,), paid=(UNHEARD,)):
    rows = len(held)
    wide = lambda values: jnp.tile(jnp.asarray(values, jnp.float32), (rows, 1))
    return Tried(jnp.full(rows, float(phase)), scores(held), wide(asked), wide(paid))


def test_what_is_not_heard_or_no_number_is_not_noted():
    start, ids = trials.nothing_tried(3), jnp.array([2, 0, 1])
    heard = jnp.array([True, False, True])
    first = trials.note(start, said(TOGETHER, [3.0, jnp.nan, UNHEARD]), ids, heard, True)
    np.testing.assert_array_equal(first.halfway[:, 0], [NO, NO, 3.0])
    then = trials.note(first, said(TOGETHER, [2.0, 9.0, 1.0]), ids, heard, False)
    np.testing.assert_array_equal(then.together[:, 0], [NO, 1.0, 2.0])
    np.testing.assert_array_equal(then.halfway[:, 0], [NO, NO, 3.0])
    alone = trials.note(
        then, said(ALONE, [1.0, 1.0, 1.0], asked=(1.0, 7.0, -1.0), paid=(4.0, 5.0, 6.0)), ids, heard, False
    )
    np.testing.assert_array_equal(alone.cross, [[NO] * 3, [NO, 4.0, NO], [NO, 4.0, NO]])
    late = trials.note(alone, said(GROUPED, [0.5, 0.5, 0.5], asked=(0.0,), paid=(8.0,)), ids, heard, False)
    np.testing.assert_array_equal(late.cross, alone.cross)


def judged(halfway, together, alone, grouped, labels=(0, 0, 2, 2)):
    column = lambda values: scores(*values) if isinstance(values, tuple) else scores(values)
    tried = trials.nothing_tried(4)._replace(labels=jnp.asarray(labels, jnp.int32))
    columns = dict(halfway=halfway, together=together, alone=alone, grouped=grouped)
    found, everybody = trials.decide(tried._replace(**{name: column(values) for name, values in columns.items()}))
    return found.labels.tolist(), bool(everybody)


def test_what_has_the_least_held_out_loss_stays():
    one = [1.0] * 4
    assert judged(one, one, one, [0.9] * 4) == ([0, 0, 2, 2], False)
    assert judged([1.2] * 4, one, one, [0.9] * 4) == ([0] * 4, True)  # together falls still, to 0.8
    assert judged(one, one, [0.8] * 4, [0.9] * 4) == ([4, 5, 6, 7], False)
    assert judged(one, one, one, [0.5, 0.9, 1.4, 0.9]) == ([0, 0, 6, 7], False)  # a group decides as one
    unknown = [UNHEARD] * 4
    assert judged(unknown, one, one, one) == ([0, 0, 2, 2], False)


def test_fewer_errors_stay_where_they_tell_whatever_the_loss_says():
    """Somebody who is sure of a few mistakes has a large loss, and few errors."""
    column = lambda loss, error: ([loss] * 4, [error] * 4, [100.0] * 4)
    together, grouped = column(1.2, 0.45), column(1.1, 0.4)
    assert judged(together, together, column(1.6, 0.25), grouped) == ([4, 5, 6, 7], False)
    assert judged(together, together, column(1.6, 0.38), grouped) == ([0, 0, 2, 2], False)  # too close to tell


def test_rows_that_are_sorted_by_label_change_nothing_of_what_is_found():
    """Half of a sorted file lacks half of the classes."""
    made = relabelled(alpha=100.0)
    for split in (made.train, made.validation, made.test):
        for a, b in pairwise(split.offsets):
            order = a + np.argsort(split.y[a:b], kind="stable")
            split.x[a:b], split.y[a:b] = split.x[order], split.y[order]
    partners = run(made).partners()
    kinds = [int(client) % 2 for client in partners.clients]
    assert (np.equal.outer(partners.groups, partners.groups) == np.equal.outer(kinds, kinds)).all()


def test_where_alone_has_fewer_errors_all_stay_apart():
    """Each client names the digits in an order of its own: nobody can learn from anybody."""
    made = relabelled(clients=10, groups=10, alpha=100.0)
    found = run(made)
    assert len(set(found.partners().groups)) == 10
    assert accuracy(found) > accuracy(run(made, "local")) - 0.02
