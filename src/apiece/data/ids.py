"""The ids of clients: made where there are none, compared and looked up among a million."""

import numpy as np

from apiece.errors import suggest


def number_clients(clients: int) -> np.ndarray:
    """The ids of clients that have no names: their numbers.

    >>> number_clients(3).tolist()
    ['0', '1', '2']
    """
    return np.arange(clients).astype(f"U{len(str(max(clients - 1, 0)))}")


def all_differ(ids: np.ndarray) -> bool:
    """Whether no id repeats.

    >>> all_differ(np.array(["ann", "bob"])), all_differ(np.array(["ann", "ann"]))
    (True, False)
    """
    if ids.dtype.itemsize == 0:
        return len(ids) <= 1
    # Sorting a million strings takes seconds; sorting their hashes a tenth of that.
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1).astype(np.uint64)
    hashed = np.zeros(len(ids), np.uint64)
    for column in letters.T:
        hashed = mix_hash(hashed, column)
    hashed.sort()
    return bool((hashed[1:] != hashed[:-1]).all()) or len(set(ids.tolist())) == len(ids)


def mix_hash(hashed: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The hash of each row, with one more column of it, both uint64.

    >>> one, two = mix_hash(np.zeros(2, np.uint64), np.array([7, 8], np.uint64))
    >>> bool(one == two)
    False
    """
    mixed = (hashed ^ column) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


def suggest_id(word: str, ids: np.ndarray) -> str:
    """The end of a message about an id that is not there: a near one, or some that are.

    >>> suggest_id("bobb", np.array(["ann", "bob"]))
    "did you mean 'bob'?"
    """
    # `suggest` compares with every name, which is fine for hundreds: look among those with the longest common prefix.
    near = ids
    for end in range(1, len(word) + 1):
        narrower = near[np.char.startswith(near, word[:end])]
        if len(narrower) == 0:
            break
        near = narrower
    tail = suggest(word, near[:500].tolist())
    if len(ids) > 20 and tail.startswith("known: "):
        return f"there are {len(ids)} clients, such as " + ", ".join(f"'{i}'" for i in ids[:3])
    return tail
