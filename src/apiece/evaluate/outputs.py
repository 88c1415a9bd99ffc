"""Metrics of a client's outputs and labels, to be named in a spec: metrics = {f1 = "apiece.evaluate:macro_f1"}."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from apiece.evaluate.binary import auc


def macro_f1(outputs: ArrayLike, labels: ArrayLike) -> float:
    """The mean over classes of F1 = 2 hits / (predicted + present), classes that are neither left out; more is better.

    >>> macro_f1([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [0, 1, 1])
    0.6666666666666666
    """
    predicted, labels = np.argmax(outputs, axis=-1).ravel(), np.asarray(labels).ravel()
    count = int(max(predicted.max(initial=0), labels.max(initial=0))) + 1
    hits = np.bincount(labels[predicted == labels], minlength=count)
    either = np.bincount(predicted, minlength=count) + np.bincount(labels, minlength=count)
    return float((2 * hits[either > 0] / either[either > 0]).mean())


def macro_auc(outputs: ArrayLike, labels: ArrayLike) -> float:
    """The mean over the classes that a client has of the AUC of each against all others; NaN with one class only.

    Outputs are logits; a class is scored by its log odds. Of two classes it is the AUC of the second.

    >>> macro_auc([[0.0, 0.1], [0.0, 0.4], [0.0, 0.35], [0.0, 0.8]], [0, 0, 1, 1])
    0.75
    """
    logits, labels = np.asarray(outputs, np.float64), np.asarray(labels)
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.ravel()
    present = np.unique(labels[labels >= 0])
    if len(present) < 2:
        return math.nan
    others = lambda k: logsumexp(np.delete(logits, k, axis=1), axis=1)
    return float(np.mean([auc(logits[:, k] - others(k), labels == k) for k in present]))


def balanced_accuracy(outputs: ArrayLike, labels: ArrayLike) -> float:
    """The mean over the classes that a client has of the share that is found; more is better.

    >>> balanced_accuracy([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [0, 1, 1])
    0.75
    """
    predicted, labels = np.argmax(outputs, axis=-1).ravel(), np.asarray(labels).ravel()
    return float(np.mean([np.mean(predicted[labels == label] == label) for label in np.unique(labels)]))
