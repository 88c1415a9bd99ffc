"""What a summary tells of a federation: how its sizes spread, how its labels are skewed."""

import numpy as np


def spread_of(values: np.ndarray) -> dict[str, float]:
    """The least, the middle and the most.

    >>> spread_of(np.array([2, 9, 4]))
    {'min': 2, 'median': 4.0, 'max': 9}
    """
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def label_skew(owner: np.ndarray, y: np.ndarray, clients: int, classes: int) -> tuple[np.ndarray, float]:
    """Classes held by each client, and the mean over clients of sum_c max(p_client(c) - p_pooled(c), 0).

    That sum is the total-variation distance, and only runs over classes the client has: clients x classes may be huge.

    >>> held, skew = label_skew(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), clients=2, classes=2)
    >>> held.tolist(), skew
    ([1, 2], 0.25)
    """
    pairs, count = np.unique(owner * classes + y, return_counts=True)
    who, what = np.divmod(pairs, classes)
    pooled = np.bincount(y, minlength=classes) / len(y)
    sizes = np.bincount(owner, minlength=clients)
    excess = np.maximum(count / sizes[who] - pooled[what], 0)
    return np.bincount(who, minlength=clients), float(excess.sum() / clients)
