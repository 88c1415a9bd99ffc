"""Is this the right part to keep private? What the clients' gradients of the shared part say about a split."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.client.descend import full_gradient
from apiece.client.solve import solve
from apiece.errors import UserError
from apiece.protocol import Data, Loss, Params, Tree
from apiece.split import Part, given, split

NOTHING_LEFT = 0.1  # of the shared part's gradient, after the private part was tuned
DISAGREEMENT = 0.3


class SplitDiagnosis(NamedTuple):
    """What a split leaves to share. Per client, in the order given (NaN for one without examples).

    left: |F_m|, the gradient of the shared part after the client tuned its private part.
    before: the same before tuning. ratio: left / before. agreement: |mean F_m| / mean |F_m| over clients, 1 where
    all pull the shared part in one direction; `chance` is what unrelated directions would give.
    shared, private: numbers of parameters. advice: in words.

    >>> SplitDiagnosis._fields[:3]
    ('left', 'before', 'ratio')
    """

    left: np.ndarray
    before: np.ndarray
    ratio: np.ndarray
    agreement: float
    chance: float
    shared: int
    private: int
    advice: str


def diagnose_split(
    loss: Loss,
    params: Params,
    x: Tree,
    y: Tree,
    offsets: np.ndarray,
    *,
    private: str | Part = "output",
    steps: int = 100,
    lr: Tree = 0.1,
    batch: int = 0,
    solver: str = "gradient",
    seed: int = 0,
    group: int = 64,
) -> SplitDiagnosis:
    """Tune each client's private part from `params`, and look at the gradient of the shared part before and after.

    F_m(theta) = dL_m/dtheta (theta, w_m), w_m being tuned by `steps` steps of the `solver`. Near 0 for everybody while
    theta is not trained: the private part fits the data without it, too much is private. Large, and pointing
    everywhere: clients want different shared parts, too little is private (or the wrong part).

    Args:
        params: the model at which to look, initial or trained. x, y, offsets: everybody's training examples, client m's
        being rows offsets[m] to offsets[m + 1]. private: the part to judge, see `apiece.split`. steps, lr, batch,
        solver: the tuning, as FFGG's inner solve. group: clients whose gradients are held at once.

    >>> loss = lambda p, batch, key: (batch.weight * (p["a"] * batch.x + p["b"] - batch.y) ** 2).sum() / 2
    >>> start = {"a": jnp.array(0.0), "b": jnp.array(0.0)}
    >>> one_each = diagnose_split(loss, start, np.ones(3), np.array([1.0, 5.0, 3.0]), np.arange(4), private="b", lr=0.5)
    >>> one_each.before.tolist(), one_each.left.round(3).tolist()
    ([1.0, 5.0, 3.0], [0.0, 0.0, 0.0])
    >>> print(one_each.advice)
    After tuning the private part (1 of 2 parameters), 0% of the shared part's gradient is left at the median client:
    the private part fits the data without the shared one. Unless the shared part is trained already, too much
    is private: keep less.
    """
    offsets = np.asarray(offsets)
    sizes = np.diff(offsets).astype(np.int32)
    present = np.flatnonzero(sizes)
    if not len(present):
        raise UserError("no client has an example: there is nothing to look at")
    theta, w = split(params, private)
    at_once = None if jax.devices()[0].platform == "cpu" else group
    norms = np.full((2, len(sizes)), np.nan)
    total = tree.zeros(theta)

    @jax.jit
    def look(theta: Params, w: Params, x: Tree, y: Tree, who: tuple) -> tuple:
        one = partial(_gradients, loss, theta, w, x, y, int(sizes.max()), (solver, steps, lr, batch), seed)
        return lax.map(one, who, batch_size=at_once)

    x, y = jax.device_put((x, y))
    for first in range(0, len(present), group):
        who = present[first : first + group]
        before, left, gradients = look(theta, w, x, y, (who, offsets[who].astype(np.int32), sizes[who]))
        norms[:, who] = before, left
        total = tree.add(total, jax.tree.map(lambda leaf: leaf.sum(0), gradients))
    before, left = norms
    ratio = np.divide(left, before, out=np.zeros_like(left), where=before > 0)
    ratio[sizes == 0] = np.nan
    among = len(present) * float(np.nanmean(left))
    agreement = float(tree.norm(total)) / among if among > 0 else 1.0
    shared, own = (sum(jnp.size(leaf) for leaf in jax.tree.leaves(part)) for part in (theta, w))
    chance = len(present) ** -0.5
    advice = _advice(float(np.nanmedian(ratio)), agreement, chance, shared, own)
    return SplitDiagnosis(left, before, ratio, agreement, chance, shared, own, advice)


def _gradients(
    loss: Loss, theta: Params, w: Params, x: Tree, y: Tree, capacity: int, how: tuple, seed: int, who: tuple
) -> tuple:
    """(|gradient before|, |F|, F) of one client."""
    i, start, size = who
    solver, steps, lr, batch = how
    data = Data(x, y, start, size, capacity)
    key = jax.random.fold_in(jax.random.key(seed), i)
    before = full_gradient(given(loss, w), theta, data, key)
    w = solve(given(loss, theta), w, data, key, solver=solver, steps=steps, lr=lr, batch=batch)
    left = full_gradient(given(loss, w), theta, data, key)
    return tree.norm(before), tree.norm(left), left


def _advice(ratio: float, agreement: float, chance: float, shared: int, private: int) -> str:
    found = (
        f"After tuning the private part ({private} of {shared + private} parameters), {ratio:.0%} of the shared part's "
        "gradient is left at the median client"
    )
    if ratio < NOTHING_LEFT:
        return (
            f"{found}: the private part fits the data without the shared one. Unless the shared part is trained "
            "already, too much is private: keep less."
        )
    pulls = f"the clients' pulls on it agree by {agreement:.2f} (1: one direction; {chance:.2f}: by chance)"
    if agreement < max(DISAGREEMENT, 1.5 * chance):
        return (
            f"{found}, and {pulls}: clients want different shared parts. Keep more private, or another part; if the "
            "shared part is trained already, this is what it cannot give them."
        )
    return f"{found}, and {pulls}: there is something to learn together, and the private part leaves it to be learnt."
