"""Clients without labels borrow them: models of labelled clients who are like them, by what their inputs look like.

Two kinds of sensors name the same things differently. Half of the sensors of each kind have labels; the others have
none, and use the model of those partners whose inputs are distributed like theirs.

Run it: python examples/weak_supervision.py
"""

import numpy as np

import apiece
from apiece.estimate import bias_from_distance, mean_distance

CLIENTS, ROWS = 16, 60
rng = np.random.default_rng(0)
kind = np.arange(CLIENTS) % 2
labelled = np.arange(CLIENTS) < CLIENTS // 2
centre = np.array([[2.0, 0, 0, 0], [0, 2.0, 0, 0]])  # where each kind's inputs lie
x = np.stack([rng.standard_normal((ROWS, 4)) + centre[k] for k in kind]).astype(np.float32)
y = (x[:, :, 2] + 0.3 * rng.standard_normal((CLIENTS, ROWS)) > 0).astype(np.int64)
y[kind == 1] = 1 - y[kind == 1]  # the second kind calls it the other way round

# Only clients with labels can take gradients. Who is like whom is known from the inputs alone.
owner = np.repeat(np.flatnonzero(labelled), ROWS)
federation = apiece.data.from_rows(x[labelled].reshape(-1, 4), y[labelled].reshape(-1), owner, classes=("off", "on"))
distance = np.array([[mean_distance(a, b) for b in x] for a in x])
b = bias_from_distance(distance, convexity=1.0)
among = b[np.ix_(labelled, labelled)]
result = apiece.fit("all_for_all", federation=federation, rounds=50, options={"bias": among.tolist(), "eps": 1.0})
print(result.partners())


def right(model, i):
    """How often a model is right at a client, whose labels nobody trained with."""
    return np.mean(result.predict(model, x[i]).argmax(1) == y[i])


shared = apiece.fit("fed_avg", federation=federation, rounds=50)
names, borrowed, pooled = list(federation.ids), [], []
for i in np.flatnonzero(~labelled):
    partner = names[np.argmin(b[i, labelled])]
    borrowed.append(right(result.personal(partner), i))
    pooled.append(right(shared.personal(partner), i))
print(
    f"clients without labels: {np.mean(borrowed):.2f} right with their partners' model, "
    f"{np.mean(pooled):.2f} with everybody's"
)
