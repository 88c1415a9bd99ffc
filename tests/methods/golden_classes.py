"""The NumPy programs behind the golden numbers of methods that look at classes: plain loops; nothing of apiece.

The network is linear, of two layers: features f = A x, scores W f; its loss is the log loss of the softmax.
"""

import numpy as np

# Three clients; class 2 is the second client's alone, class 3 nobody's.
SIZES = np.array([4, 3, 6])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(7)
X = RNG.normal(size=(SIZES.sum(), 3))
Y = np.array([0, 0, 0, 1] + [2, 2, 0] + [1, 1, 1, 1, 0, 1])
CLASSES, FEATURES = 4, 2
A, W = RNG.normal(size=(FEATURES, 3)), RNG.normal(size=(CLASSES, FEATURES))
OWN = [slice(*OFFSETS[i : i + 2]) for i in range(len(SIZES))]


def chances(scores):
    each = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return each / each.sum(axis=-1, keepdims=True)


def slopes(a, w, x, y, factor, pull=None):
    """Of the mean over examples of factor * log loss, with pull(f, label) added to the slope of f: by a, and by w."""
    by_a, by_w = np.zeros_like(a), np.zeros_like(w)
    for t in range(len(y)):
        f = a @ x[t]
        wrong = factor[t] * (chances(w @ f) - np.eye(CLASSES)[y[t]])
        by_f = w.T @ wrong + (0 if pull is None else pull(f, y[t]))
        by_a += np.outer(by_f, x[t]) / len(y)
        by_w += np.outer(wrong, f) / len(y)
    return by_a, by_w


def fed_proto(rounds, steps, lr, lam, cohorts):
    """(Everybody's (a, w), the prototypes, which are known) after so many rounds."""
    models = [(A, W) for _ in SIZES]
    prototypes, known = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES, bool)
    for r in range(rounds):
        sums, counts = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)
        pull = lambda f, label, c=prototypes, k=known: 2 * lam * (f - c[label]) if k[label] else 0 * f
        for i in cohorts[r]:
            a, w = models[i]
            x, y = X[OWN[i]], Y[OWN[i]]
            for _ in range(steps):
                by_a, by_w = slopes(a, w, x, y, np.ones(len(y)), pull)
                a, w = a - lr * by_a, w - lr * by_w
            models[i] = a, w
            for t in range(len(y)):
                sums[y[t]] += a @ x[t]
                counts[y[t]] += 1
        prototypes, known = prototypes.copy(), known.copy()
        for label in range(CLASSES):
            if counts[label]:
                prototypes[label], known[label] = sums[label] / counts[label], True
    return models, prototypes, known


def fed_rod(rounds, steps, lr, head_lr):
    """(The shared (a, w), everybody's v) after so many rounds of everybody."""
    a, w, own = A, W, [np.zeros_like(W) for _ in SIZES]
    for _ in range(rounds):
        sum_a, sum_w = np.zeros_like(A), np.zeros_like(W)
        for i in range(len(SIZES)):
            x, y = X[OWN[i]], Y[OWN[i]]
            alike = [len(y) / (len(set(y)) * sum(y == label)) for label in y]
            ya, yw = a, w
            for _ in range(steps):
                by_a, by_w = slopes(ya, yw, x, y, alike)
                ya, yw = ya - lr * by_a, yw - lr * by_w
                own[i] = own[i] - head_lr * slopes(a, w + own[i], x, y, np.ones(len(y)))[1]
            sum_a, sum_w = sum_a + SIZES[i] * (ya - a), sum_w + SIZES[i] * (yw - w)
        a, w = a + sum_a / SIZES.sum(), w + sum_w / SIZES.sum()
    return (a, w), own


def fed_ala(rounds, steps, lr, ala_steps, ala_lr, ala_share):
    """(The shared (a, w), everybody's own w and weights, everybody's model); w is aggregated adaptively."""
    a, w = A, W
    own, weights = [W for _ in SIZES], [np.ones_like(W) for _ in SIZES]

    def work(i):
        x, y = X[OWN[i]], Y[OWN[i]]
        some, weight = int(np.ceil(ala_share * len(y))), weights[i]
        mixed = lambda weight: own[i] + (w - own[i]) * weight
        for _ in range(ala_steps):
            slope = slopes(a, mixed(weight), x[:some], y[:some], np.ones(some))[1] * (w - own[i])
            weight = np.clip(weight - ala_lr * slope, 0, 1)
        ya, yw = a, mixed(weight)
        for _ in range(steps):
            by_a, by_w = slopes(ya, yw, x, y, np.ones(len(y)))
            ya, yw = ya - lr * by_a, yw - lr * by_w
        return ya, yw, weight

    for _ in range(rounds):
        worked = [work(i) for i in range(len(SIZES))]
        own, weights = [yw for _, yw, _ in worked], [weight for *_, weight in worked]
        share = SIZES / SIZES.sum()
        a = a + sum(p * (ya - a) for p, (ya, _, _) in zip(share, worked, strict=True))
        w = w + sum(p * (yw - w) for p, (_, yw, _) in zip(share, worked, strict=True))
    return (a, w), own, weights, [work(i)[:2] for i in range(len(SIZES))]
