"""What is ranked, tuned and gained by: the user's choice, the labels' where nobody chose, and who is compared with."""

import io
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from apiece import compare
from apiece.data import digits, from_rows
from apiece.errors import UserError
from apiece.evaluate import auc
from apiece.experiment import Spec
from apiece.experiment.build import ModelSpec, arena, model_of
from apiece.experiment.check import check_spec
from apiece.experiment.constant import judge_constants
from apiece.experiment.criterion import criterion_of
from apiece.report import terminal, write_report

CLIENTS, EACH = 4, 60


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(CLIENTS * EACH, 3)).astype(np.float32)


OWNER = np.repeat(np.arange(CLIENTS), EACH)
SPLIT = np.tile([0, 1, 2], CLIENTS * EACH // 3)


def rare(single=0):
    """Fifteen labels of a hundred are yes; the first `single` clients have none among their test examples."""
    x = rows()
    noisy = x[:, 0] + np.random.default_rng(1).normal(size=len(x))
    y = (np.argsort(np.argsort(noisy)) >= 0.85 * len(x)).astype(int)
    y[(single > OWNER) & (SPLIT == 2)] = 0
    return from_rows(x, y, OWNER, split=SPLIT, classes=("no", "yes"))


def shown(record):
    text = io.StringIO()
    Console(width=80, file=text).print(terminal.comparison(record))
    return " ".join(text.getvalue().split())


HOW = dict(rounds=2, seeds=1, tune=1, baselines=False, newcomer_examples=[])


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    out = tmp_path_factory.mktemp("skewed") / "run"
    return compare(rare(single=1), ["local", "fed_avg"], **HOW, out=out)


def test_skewed_labels_are_ranked_by_auc_and_tuned_by_log_loss_and_it_is_said(skewed):
    record = skewed.record
    assert (record.ranking.metric, record.ranking.higher, record.ranking.chosen_by) == ("auc", True, "loss")
    said = shown(record)
    assert "% of the training labels are 'no', and to say so always would be as accurate" in said
    assert "AUC of each client by itself, weighed by its test examples; defined for 3 of 4 clients" in said


def test_a_ranking_by_auc_is_that_of_the_clients_who_have_both_classes(skewed):
    place, found = skewed.place, {}
    _, y, offsets = place.splits["test"]
    for name, trials in skewed.trials.items():
        margin = trials[0].arrays["test_margin"]
        mine = np.array([(auc(margin[a:b], np.asarray(y)[a:b] == 1), b - a) for a, b in pairwise(offsets)])
        both = mine[~np.isnan(mine[:, 0])]
        found[name] = np.average(both[:, 0], weights=both[:, 1])
        told = skewed.record.methods[name].statistic("test", "auc", "mean_weighted").mean
        assert told == pytest.approx(found[name])
    assert skewed.record.ranking.order == sorted(found, key=found.get, reverse=True)


def test_gains_are_told_in_points_of_the_criterion_and_harm_by_the_loss(skewed):
    record = skewed.record
    assert record.baseline.name == "local" and record.baseline.validation["constant"] == 0.5
    scores = [trials[0].arrays["test_metric_auc"] for trials in skewed.trials.values()]
    gain = 100 * np.nanmean(scores[1] - scores[0])
    assert record.methods["fed_avg"].harm.gain.mean == pytest.approx(gain)
    assert "points of AUC" in shown(record) and "by its log loss" in shown(record)


def test_the_page_tells_the_same(skewed):
    page = write_report(skewed.folder).read_text(encoding="utf-8")
    for words in ("Test AUC", "no method: own constant", "best baseline on validation", "entropy of the test labels"):
        assert words in page


@pytest.mark.parametrize(
    ("rank", "choose", "metric", "higher", "chosen"),
    [
        ("accuracy", None, "accuracy", True, ("validation_error", False)),
        ("error", None, "accuracy", True, ("validation_error", False)),
        ("log_loss", None, "loss", False, ("validation_loss", False)),
        ("auc", None, "auc", True, ("validation_auc", True)),
        ("f1", "loss", "f1", True, ("validation_loss", False)),
        (None, "error", "auc", True, ("validation_error", False)),
    ],
)
def test_who_names_a_metric_is_ranked_and_tuned_by_it(rank, choose, metric, higher, chosen):
    place = check_spec(Spec(rank=rank, choose=choose, methods={"local": {}}, baselines=False), rare())
    assert place.criterion[:3] == (metric, higher, chosen)


def test_labels_without_a_large_majority_change_nothing_and_few_mixed_clients_are_ranked_by_log_loss():
    assert criterion_of(Spec(), digits(clients=5), "accuracy", ()).metric == "accuracy"
    assert check_spec(Spec(methods={"local": {}}, baselines=False), rare(single=3)).criterion.metric == "loss"


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        ("rmse", "rank = 'rmse' is for numbers, and rows has classes: take accuracy"),
        ("acu", "rank = 'acu': did you mean 'auc'"),
    ],
)
def test_a_wrong_metric_is_named(rank, words):
    with pytest.raises(UserError, match=words):
        check_spec(Spec(rank=rank, methods={"local": {}}, baselines=False), rare())


def test_a_metric_of_classes_is_refused_for_numbers_and_auc_where_nobody_has_one():
    numbers = from_rows(rows(), rows()[:, 0], OWNER, split=SPLIT)
    with pytest.raises(UserError, match="rank = 'f1' is for classes, and rows has none: take error, rmse"):
        check_spec(Spec(rank="f1", methods={"local": {}}, baselines=False), numbers)
    with pytest.raises(UserError, match="rank = 'auc': no client of rows has several classes among its test examples"):
        check_spec(Spec(rank="auc", methods={"local": {}}, baselines=False), rare(single=CLIENTS))


def test_numbers_may_be_ranked_by_the_root_of_their_error(tmp_path):
    x = rows()
    federation = from_rows(x, x @ [1.0, 2, 3] + 5 * OWNER, OWNER, split=SPLIT)
    found = compare(federation, ["local", "fed_avg"], **HOW, rank="rmse", out=tmp_path / "run")
    for name, trials in found.trials.items():
        errors, offsets = trials[0].scores("test", "error")
        root = np.sqrt(np.add.reduceat(errors, offsets[:-1]) / np.diff(offsets))
        told = found.record.methods[name].statistic("test", "rmse", "mean_weighted").mean
        assert told == pytest.approx(np.average(root, weights=np.diff(offsets)), rel=1e-6)
    assert found.record.ranking.metric == "rmse" and not found.record.ranking.higher


# Constants, and the baseline.


def test_constants_are_the_training_labels_majority_and_mean():
    x, y = rows(), (np.arange(CLIENTS * EACH) % 3 == 0).astype(int) | (OWNER == 0)
    federation = from_rows(x, y, OWNER, split=SPLIT, classes=("no", "yes"))
    place = arena(federation, model_of(ModelSpec(), federation))
    found = judge_constants(place, np.arange(CLIENTS))
    everybody = np.bincount(federation.train.y).argmax()
    for client in range(CLIENTS):
        truth, own = federation.test.client(client)[1], np.bincount(federation.train.client(client)[1]).argmax()
        mine = slice(*found["constant"].arrays["test_offsets"][client : client + 2])
        np.testing.assert_array_equal(found["constant"].arrays["test_error"][mine], truth != everybody)
        np.testing.assert_array_equal(found["own_constant"].arrays["test_error"][mine], truth != own)
    numbers = from_rows(x, x[:, 0] + OWNER, OWNER, split=SPLIT)
    found = judge_constants(arena(numbers, model_of(ModelSpec(), numbers)), np.arange(CLIENTS))
    mean, truth = numbers.train.client(2)[1].mean(), numbers.test.client(2)[1]
    mine = slice(*found["own_constant"].arrays["test_offsets"][2:4])
    np.testing.assert_allclose(found["own_constant"].arrays["test_error"][mine], (truth - mean) ** 2, rtol=1e-5)


def test_a_constant_that_is_better_on_validation_is_what_gains_are_told_over(tmp_path):
    x = rows()
    y = np.where(np.random.default_rng(5).random(len(x)) < 0.7, OWNER % 2, 1 - OWNER % 2)  # nothing to see in x
    federation = from_rows(x, y, OWNER, split=SPLIT, classes=("a", "b"))
    hasty = {"local": {"lr": 3.0, "batch": 1}, "fed_avg": {"lr": 3.0, "batch": 1}}
    found = compare(federation, hasty, **HOW, out=tmp_path / "run")
    record = found.record
    assert record.baseline.name == "own_constant" and record.baseline.constant
    best = max(record.baseline.validation, key=record.baseline.validation.get)
    assert best == "own_constant" and set(record.baseline.validation) == {"local", "constant", "own_constant"}
    assert all(method.harm.baseline == "own_constant" for method in record.methods.values())
    assert record.ranking.order[0] in hasty, "a constant is never the first of the methods"
    said = shown(record)
    assert "gain over own_constant: points" in said and "(own) the most frequent class of the client's own" in said
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "by answering the most frequent class of the client" in page


def test_clients_that_are_proved_hurt_are_named(tmp_path):
    x = rows()
    sign = np.where(OWNER == 3, -1, 1)  # the last client is told the opposite
    y = (x[:, 0] * sign > 0).astype(int)
    federation = from_rows(x, y, OWNER, split=SPLIT, ids=["a", "b", "c", "odd one"], classes=("no", "yes"))
    found = compare(federation, ["local", "fed_avg"], **HOW | {"rounds": 10}, out=tmp_path / "run")
    assert found.record.methods["fed_avg"].harm.named == ["odd one"]
    assert "proved hurt: fed_avg: odd one." in shown(found.record)
    assert "odd one" in write_report(tmp_path / "run").read_text(encoding="utf-8")
