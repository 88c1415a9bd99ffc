"""From texts to sequences of characters, each to be predicted from those before it."""

from collections.abc import Sequence

import numpy as np

UNKNOWN = "<unknown>"


def cut(texts: Sequence[str], group: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of length + 1 code points, and the row each begins in; the texts of a group are joined by line breaks.

    A window starts where the one before it ends, so every character is predicted once; what is left at the end of a
    group is too short and dropped.

    >>> windows, row = cut(["to be", "or not", "that is"], np.array([0, 0, 1]), length=3)
    >>> ["".join(map(chr, window)) for window in windows], row.tolist()
    (['to b', 'be\\no', 'or n', 'that', 't is'], [0, 0, 1, 2, 2])
    """
    order = np.argsort(group, kind="stable")
    edges = np.flatnonzero(np.diff(group[order])) + 1
    pieces, rows = [], []
    for members in np.split(order, edges):
        lines = [texts[i] for i in members]
        code = np.frombuffer("\n".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32)
        starts = np.arange(0, len(code) - length, length)
        pieces.append(code[starts[:, None] + np.arange(length + 1)])
        begins = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])])
        rows.append(members[np.searchsorted(begins, starts, side="right") - 1])
    return np.concatenate(pieces), np.concatenate(rows)


def vocabulary(windows: np.ndarray, train: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The characters of the training windows in their order, after one for all others; the windows as their indexes.

    >>> windows = np.array([[98, 97], [97, 99]], np.uint32)
    >>> vocabulary(windows, np.array([True, False]))
    (('<unknown>', 'a', 'b'), array([[2, 1],
           [1, 0]], dtype=int32))
    """
    known = np.unique(windows[train])
    place = np.minimum(np.searchsorted(known, windows), len(known) - 1)
    tokens = np.where(known[place] == windows, place + 1, 0).astype(np.int32)
    return (UNKNOWN, *map(chr, known.tolist())), tokens
