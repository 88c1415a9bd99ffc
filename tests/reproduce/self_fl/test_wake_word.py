"""Speakers, warm starts and false accepts of the wake-word reproduction, on made-up recordings."""

import jax
import numpy as np
import pytest

from apiece.data.deal import from_rows
from apiece.experiment.build import arena
from apiece.experiment.contest import Rival, contest
from apiece.experiment.spec_tables import TrainSpec
from apiece.models import objective, softmax
from apiece.reproduce.self_fl.detectors import OWN, SHARED, WARM, Ground, false_accept_rates, margins_of, overall
from apiece.reproduce.self_fl.speakers import Speakers, as_one, in_parts, shuffled
from apiece.reproduce.self_fl.warm_start import warm_started

USERS = 10


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(40) % 4 == 0, USERS).astype(np.int32)
    x = (rng.normal(size=(len(y), 3)) + 0.8 * y[:, None]).astype(np.float32)
    client = np.repeat(np.arange(USERS), 40)
    return from_rows(x, y, client, classes=("other", "word"), shares=(0.4, 0.1, 0.5))


@pytest.fixture(scope="module")
def at(federation):
    group = np.arange(USERS) // 2
    clusters = as_one(federation, group)
    plain = softmax((3,), 2)
    judge = objective(plain, "classification")
    warm = warm_started(plain, judge, federation.train, steps=30, lr=0.3, batch=8)
    people = Speakers(federation.train, federation, group, clusters)
    return Ground(people, *(arena(each, warm, judge) for each in (federation, clusters, in_parts(clusters, 2))))


def test_groups_as_clients_have_the_examples_of_their_members(federation):
    clusters = as_one(federation, np.arange(USERS) // 2)
    assert clusters.ids.tolist() == list("ABCDE")
    assert clusters.train.sizes.tolist() == federation.train.sizes.reshape(5, 2).sum(1).tolist()
    np.testing.assert_array_equal(
        clusters.test.client(1)[0], np.concatenate([federation.test.client(i)[0] for i in (2, 3)])
    )


def test_a_group_is_dealt_to_its_clients_and_tests_stay_in_order(federation):
    clusters = as_one(federation, np.arange(USERS) // 2)
    dealt = in_parts(clusters, 4)
    assert dealt.clients == 20 and dealt.ids[:5].tolist() == ["A0", "A1", "A2", "A3", "B0"]
    for k in range(5):
        rows = np.concatenate([dealt.train.client(4 * k + part)[0] for part in range(4)])
        theirs = clusters.train.client(k)[0]
        assert sorted(row.tobytes() for row in rows) == sorted(row.tobytes() for row in theirs)
        assert not np.array_equal(rows, theirs)
    np.testing.assert_array_equal(dealt.test.x, clusters.test.x)


def test_fewer_rows_are_the_users_own_and_both_classes_come_early(federation):
    less = shuffled(federation.train, np.random.default_rng(0), np.arange(1, USERS + 1))
    assert less.sizes.tolist() == list(range(1, USERS + 1))
    for i in range(USERS):
        own = {row.tobytes() for row in federation.train.client(i)[0]}
        taken = [row.tobytes() for row in less.client(i)[0]]
        assert set(taken) <= own and len(set(taken)) == len(taken)


def test_a_seed_has_one_warm_start_and_another_seed_another(at):
    init = at.users.model.init
    first, again, other = (init(jax.random.key(seed)) for seed in (0, 0, 1))
    assert first is again
    assert float(abs(first["w"] - other["w"]).max()) > 0


@pytest.mark.thorough
def test_who_does_not_move_has_the_false_accepts_of_the_warm_start(at):
    rivals = {
        "still": Rival("fed_avg", dict(lr=1e-9, steps=1)),
        "local": Rival("local", dict(lr=0.3, steps=5)),
    }
    plan = TrainSpec(rounds=1, evaluate_every=1)
    found = contest(at.users, rivals, plan, (0, 1, 2), after=margins_of(at))
    still, alone = (false_accept_rates(at, found[name]) for name in rivals)
    assert still[WARM].shape == (3, 5) and 0 < still[WARM].mean() < 1
    np.testing.assert_array_equal(still[SHARED], still[WARM])
    np.testing.assert_array_equal(still[OWN], still[WARM])
    assert overall(still, OWN).value == 1.0
    assert SHARED not in alone and not np.array_equal(alone[OWN], alone[WARM])


def test_groups_as_clients_are_judged_by_user(at):
    found = contest(at.types, {"still": Rival("fed_avg", dict(lr=1e-9, steps=1))},
                    TrainSpec(rounds=1, evaluate_every=1), (0, 1), after=margins_of(at))  # fmt: skip
    rates = false_accept_rates(at, found["still"])
    np.testing.assert_array_equal(rates[OWN], rates[WARM])
