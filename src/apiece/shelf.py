"""Things that are dear to make, kept for a while by what they were made of: models, objectives, compiled engines."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import numpy as np

__all__ = ["Shelf", "frozen"]

Made = TypeVar("Made")


class Shelf:
    """At most so many things; the one that was asked for longest ago goes first.

    What is not equal is never taken for the same, so a key holds the functions and values that made the thing, not
    their names; who has a key that cannot be compared (a list of strangers' objects, say) gets a new thing each time.

    >>> shelf, made = Shelf(most=2), []
    >>> make = lambda word: shelf.take(word, lambda: made.append(word) or word.upper())
    >>> [make(word) for word in ("a", "b", "a", "c", "b")], made
    (['A', 'B', 'A', 'C', 'B'], ['a', 'b', 'c', 'b'])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: OrderedDict[Hashable, Any] = OrderedDict()
        self._busy = threading.RLock()  # two threads that want the same thing at once may both make it; one is kept

    def take(self, key: Any, make: Callable[[], Made]) -> Made:
        """The thing of this key, made if it is not here."""
        try:
            key = frozen(key)
        except TypeError:
            return make()
        with self._busy:
            if key in self._things:
                self._things.move_to_end(key)
                return self._things[key]
        made = make()
        with self._busy:
            made = self._things.setdefault(key, made)
            while len(self._things) > self.most:
                self._things.popitem(last=False)
        return made

    def clear(self) -> None:
        """Let go of everything."""
        with self._busy:
            self._things.clear()

    def __len__(self) -> int:
        """How many things are here."""
        return len(self._things)


def frozen(value: Any) -> Hashable:
    """Values, also lists, tables and arrays of them, as one that can be compared; `TypeError` if that cannot be.

    A number's kind counts: 1, 1.0 and True make different programs.

    >>> frozen({"b": [1, 2], "a": np.zeros(2)}) == frozen({"a": np.zeros(2), "b": [1, 2]})
    True
    >>> frozen(1) == frozen(1.0)
    False
    """
    if isinstance(value, Mapping):
        return type(value), frozenset((frozen(key), frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(frozen(each) for each in value)
    if hasattr(value, "__array__"):  # NumPy's and JAX's
        array = np.asarray(value)
        return np.ndarray, array.shape, array.dtype.str, array.tobytes()
    hash(value)
    return type(value), value
