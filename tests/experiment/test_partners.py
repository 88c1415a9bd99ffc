"""Who learns from whom: from `fit`, in the record, and on the terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

import apiece
from apiece import fit
from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment.partners import find_partners
from apiece.report.partners import partners
from apiece.report.terminal import comparison


def relabelled(clients=6, seed=0):
    """Digits whose odd clients name every digit one further: two groups that have nothing in common."""
    made = digits(clients=clients, alpha=100.0, seed=seed)
    for split in (made.train, made.validation, made.test):
        owner = np.repeat(np.arange(clients), np.diff(split.offsets))
        split.y[owner % 2 == 1] = (split.y[owner % 2 == 1] + 1) % 10
    return made


def test_the_groups_of_a_run_are_named():
    found = fit("all_for_all", federation=relabelled(), rounds=2, options={"clusters": [0, 1] * 3}).partners()
    odd = [client for client in found.clients if int(client) % 2]
    assert sorted(map(sorted, found.members)) == sorted([sorted(odd), sorted(set(found.clients) - set(odd))])
    mine = found.of(odd[0])
    assert {partner.partner for partner in mine} == {*odd[1:]}
    assert all(partner.weight > 0 and partner.bias <= 0.5 for partner in mine)
    assert len(found.rows) == 2 * 3 * 2


def test_a_method_without_partners_says_so():
    with pytest.raises(UserError, match="'fed_avg' does not say who learns from whom"):
        fit("fed_avg", federation=digits(clients=4), rounds=1).partners()


def test_a_newcomer_joins_those_whom_its_examples_fit_best():
    made = relabelled(clients=10)
    found = fit("all_for_all", federation=made, rounds=60, options={"clusters": [k % 2 for k in range(10)]})
    x, y = made.test.x, made.test.y
    owner = np.repeat(np.arange(10), np.diff(made.test.offsets))
    for kind in (0, 1):
        mine = owner % 2 == kind
        model = found.onboard(x[mine][:20], y[mine][:20])
        right = np.argmax(found.predict(model, x[mine][20:]), axis=1) == y[mine][20:]
        assert right.mean() > 0.75, kind


def test_the_record_and_the_terminal_have_them(tmp_path):
    how = dict(rounds=3, seeds=1, tune=1, baselines=False, newcomer_examples=[], out=tmp_path / "run")
    methods = {"all_for_all": {"clusters": [0, 1, 0, 1]}, "fed_avg": {}}
    record = apiece.compare(digits(clients=4), methods, **how).record
    kept = record.methods["all_for_all"].partners
    assert kept.groups == [0, 1, 0, 1]
    assert np.isnan(kept.bias[0][1]) or kept.bias[0][1] == np.inf
    assert record.methods["fed_avg"].partners is None
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison(record))
    assert "all_for_all: who learns from whom, 2 groups" in console.export_text()
    assert partners("fed_avg", record.methods["fed_avg"]) is None


def test_what_is_no_matrix_of_these_clients_gives_none():
    assert find_partners(["a", "b"], {"w": [1.0]}) is None
    assert find_partners(["a", "b"], {}) is None
