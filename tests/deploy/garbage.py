"""What a site that is broken, or malicious, may send instead of its answer: a kind after the other."""

import json
import os

import numpy as np
import safetensors.numpy

from apiece.engines.remote.letter import read_letter, write_letter

MANY = 40_000_000  # bytes, where some thousand are expected


def changed(body, change):
    """The codec's bytes with other arrays under the same header."""
    length = int.from_bytes(body[:8], "little")
    about = json.loads(body[8 : 8 + length])["__metadata__"]
    leaves = safetensors.numpy.load(body)
    return safetensors.numpy.save({name: np.asarray(change(leaf)) for name, leaf in leaves.items()}, about)


class Garbage:
    """Spoils the answers of one site to the tasks of a run; what is asked before the first round it answers well."""

    KINDS = ("not a number", "wrong shapes", "huge", "random bytes", "old round", "too many bytes", "half of it")

    def __init__(self, answer):
        self.answer, self.count, self.first = answer, 0, None

    def __call__(self, wire):
        said = self.answer(wire)
        letter = read_letter(said)
        head, body = letter.head, letter.body
        if head.get("task") not in ("visit", "judge") or not body:
            return said
        self.first = self.first or said
        kind = self.KINDS[self.count % len(self.KINDS)]
        self.count += 1
        if kind == "not a number":
            return write_letter(head, changed(body, lambda leaf: leaf * np.asarray(np.nan, leaf.dtype)
                                              if leaf.dtype.kind == "f" else leaf))  # fmt: skip
        if kind == "wrong shapes":
            return write_letter(head, changed(body, lambda leaf: np.repeat(np.atleast_1d(leaf), 3, axis=0)))
        if kind == "huge":
            return write_letter(head, changed(body, lambda leaf: (1e6 * leaf).astype(leaf.dtype)))
        if kind == "random bytes":
            return os.urandom(1000)
        if kind == "old round":
            return self.first if self.count > 5 else write_letter(head | {"round": -1}, body)
        if kind == "too many bytes":
            return write_letter(head, bytes(MANY))
        return said[: len(said) // 2]
