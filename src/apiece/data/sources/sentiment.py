"""Short texts by their authors, glad or not: words as tokens, for `text_lstm`."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from apiece.data.deal import deal, from_rows
from apiece.data.federation import Federation
from apiece.data.sources.hub import SHARES, arrow_table, need
from apiece.errors import UserError

REPO = "stanfordnlp/sentiment140"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[!?:;()]+")


def sentiment140(
    users: int | None = None,
    min_size: int | None = 10,
    words: int = 10_000,
    length: int = 30,
    shares: Sequence[float] = SHARES,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Tweets of the hub's stanfordnlp/sentiment140 (LEAF's Sent140) by their users, in a good or a bad mood.

    x holds the first `length` words of a text, as their places among the `words` most frequent of all training texts (0
    for others), then -1. `users`: only so many, those with the most tweets; `folder`: a local copy.
    """
    table = arrow_table(REPO, ["train"], folder)
    need(table, ("text", "user", "sentiment"), folder or REPO)
    who, said = np.asarray(table.column("user").to_pylist(), np.str_), table.column("text").to_pylist()
    mood = table.column("sentiment").to_numpy()
    ids, client, sizes = np.unique(who, return_inverse=True, return_counts=True)
    chosen = np.argsort(-sizes, kind="stable")[:users]
    chosen = np.sort(chosen[sizes[chosen] >= (min_size or 1)])
    if not len(chosen):
        raise UserError(f"no user has min_size = {min_size} tweets; the most that one has are {sizes.max()}")
    rows = np.flatnonzero(np.isin(client, chosen) & (mood != 2))  # 2 is neither; the training part has none
    client = np.searchsorted(chosen, client[rows])
    split = deal(client, shares, seed)
    x = tokens([said[row] for row in rows], split == 0, words, length)
    y = (mood[rows] > 2).astype(np.int32)
    return from_rows(x, y, client, name="sentiment140", ids=ids[chosen], classes=("bad", "good"), split=split)


def tokens(texts: Sequence[str], train: np.ndarray, words: int, length: int) -> np.ndarray:
    """[texts, length]: words by their rank among the training texts' most frequent, from 1; 0 for others, -1 for none.

    >>> tokens(["Good, good day", "bad day!", ""], np.array([True, True, True]), words=2, length=3).tolist()
    [[2, 2, 1], [0, 1, 0], [0, -1, -1]]
    """
    apart = [WORD.findall(text.lower())[:length] or ["<nothing>"] for text in texts]
    count = Counter(word for found, known in zip(apart, train, strict=True) if known for word in found)
    common = sorted(count.items(), key=lambda item: (-item[1], item[0]))[:words]
    rank = {word: place for place, (word, _) in enumerate(common, start=1)}
    out = np.full((len(texts), length), -1, np.int32)
    for row, found in zip(out, apart, strict=True):
        row[: len(found)] = [rank.get(word, 0) for word in found]
    return out
