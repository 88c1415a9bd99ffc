"""Metrics of a client's outputs, against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from apiece.evaluate.outputs import balanced_accuracy, macro_auc, macro_f1


@pytest.mark.parametrize("classes", [2, 5])
def test_they_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(classes)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 60)])
    logits = rng.normal(size=(len(labels), classes)) + 1.5 * np.eye(classes)[labels]
    said, likely = logits.argmax(1), np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert macro_f1(logits, labels) == pytest.approx(f1_score(labels, said, average="macro"))
    assert balanced_accuracy(logits, labels) == pytest.approx(balanced_accuracy_score(labels, said))
    theirs = roc_auc_score(labels, likely[:, 1] if classes == 2 else likely, multi_class="ovr")
    assert macro_auc(logits, labels) == pytest.approx(theirs)


def test_a_client_with_one_class_has_no_auc():
    assert np.isnan(macro_auc(np.zeros((3, 2)), np.zeros(3, int)))
