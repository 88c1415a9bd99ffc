"""NumPy programs for ridge regression and ridge softmax regression with a free intercept, by dense linear algebra."""

import numpy as np


def ridge_regression(x, y, ridge):
    """(w, b) of min mean (x w + b - y)^2 / 2 + ridge/2 |w|^2: centre, solve, and put the means back."""
    middle, level = x.mean(0), y.mean()
    centred = x - middle
    w = np.linalg.solve(centred.T @ centred / len(y) + ridge * np.eye(x.shape[1]), centred.T @ (y - level) / len(y))
    return w, level - middle @ w


def softmax_regression(x, y, classes, ridge, free, steps=50):
    """(w, b) of min mean log loss + ridge/2 |w|^2 + free/2 |b|^2: Newton's steps with the whole Hessian."""
    rows, features = x.shape
    with_one = np.hstack([x, np.ones((rows, 1))])
    pull = np.tile(np.append(np.full(features, ridge), free), classes)
    hits, v = np.eye(classes)[y], np.zeros(classes * (features + 1))
    for _ in range(steps):
        scores = with_one @ v.reshape(classes, -1).T
        chance = np.exp(scores - scores.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        slope = ((chance - hits).T @ with_one / rows).ravel() + pull * v
        curve = np.einsum("nk,kl,ni,nj->kilj", chance, np.eye(classes), with_one, with_one)
        curve -= np.einsum("nk,nl,ni,nj->kilj", chance, chance, with_one, with_one)
        v -= np.linalg.solve(curve.reshape(len(v), -1) / rows + np.diag(pull), slope)
    found = v.reshape(classes, -1)
    return found[:, :-1], found[:, -1]
