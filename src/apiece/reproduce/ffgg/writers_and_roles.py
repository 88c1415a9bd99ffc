"""Two natural federations, cut to a size on which deep networks can be trained often: writers and roles."""

from dataclasses import replace

import numpy as np

from apiece.data.federation import Federation
from apiece.data.sources.real import mnist_by_writer, shakespeare_roles
from apiece.data.splits import SPLITS

LEAST_DIGITS = 60  # of a writer who trains
LEAST_CHARACTERS, MOST_SEQUENCES = 3000, 250  # of a role; so many to train on at most
LENGTH = 20


def writers(count: int, new: int) -> Federation:
    """So many writers of MNIST digits, and others who never train; pictures halved to 14x14 by means of 2x2 pixels."""
    every = mnist_by_writer()
    digits = sum(getattr(every, part).sizes for part in SPLITS)
    old = halved(replace(some(every, np.flatnonzero(digits >= LEAST_DIGITS), count), new=None))
    others = every.new
    assert others is not None  # the file has them
    return replace(old, new=halved(some(others, np.arange(others.clients), new)))


def roles(count: int, new: int) -> Federation:
    """So many roles of Shakespeare's, of middling length, as sequences of 20 characters; and others who never train."""
    every = shakespeare_roles(min_characters=LEAST_CHARACTERS, length=LENGTH)
    chosen = some(every, np.flatnonzero(every.train.sizes <= MOST_SEQUENCES), count + new)
    return replace(chosen.take(np.arange(count)), new=chosen.take(np.arange(count, count + new)))


def some(federation: Federation, among: np.ndarray, count: int) -> Federation:
    """A fixed random choice of the clients.

    >>> from apiece.data import digits
    >>> some(digits(clients=20), np.arange(5), 3).clients
    3
    """
    return federation.take(np.sort(np.random.default_rng(0).permutation(among)[:count]))


def halved(federation: Federation) -> Federation:
    """The pictures at half their size."""
    parts = {part: getattr(federation, part) for part in SPLITS}
    return replace(federation, **{part: replace(split, x=half(split.x)) for part, split in parts.items()})


def half(x: np.ndarray) -> np.ndarray:
    """Pictures [examples, height, width] by means over 2x2 pixels.

    >>> half(np.arange(16, dtype=np.uint8).reshape(1, 4, 4)).tolist()
    [[[2, 4], [10, 12]]]
    """
    examples, height, width = x.shape
    return x.reshape(examples, height // 2, 2, width // 2, 2).mean((2, 4)).astype(x.dtype)
