"""A round of secure aggregation as two parties that exchange bytes: the same over a network and in one process.

The server asks in four stages (`STAGES`); whoever does not answer one drops out of the round. What a client sends in
the third is its weighted reply, and its weight, under masks: the server learns their sums over those who sent them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.remote.codec import UNREADABLE, Schema, decode, encode, schema_of
from apiece.engines.remote.masks import FEWEST, Masker, Public, TooFew, add_up, from_ring, needed
from apiece.errors import UserError
from apiece.protocol import Tree

STAGES = ("keys", "shares", "visit", "unmask")
Head = dict[str, Any]


class Secure(NamedTuple):
    """What both parties know: the share of a round's clients without which it is abandoned, and whose reply counts how
    much (None: by its number of examples)."""

    least: float
    weights: Mapping[int, float] | None = None

    def weight_of(self, i: int, examples: int) -> float:
        """How much a client's reply counts.

        >>> Secure(0.67).weight_of(3, 12), Secure(0.67, {3: 1.0}).weight_of(3, 12)
        (12.0, 1.0)
        """
        return float(examples) if self.weights is None else float(self.weights[i])


def masked_schema(reply: Schema) -> Schema:
    """What a masked reply looks like: a number of the ring for each of its own, and one for its weight."""
    return schema_of("masked reply", {"masked": np.zeros(1 + numbers_of(reply), np.uint64)})


def numbers_of(reply: Schema) -> int:
    """How many numbers a reply has."""
    return sum(int(np.prod(shape, dtype=int)) for _, _, shape in reply.leaves)


class SecureClient:
    """A client's side, round after round; of each round there is one `Masker`, in memory alone."""

    def __init__(self, how: Secure, i: int, reply: Schema) -> None:
        self.how, self.i, self.reply = how, i, reply
        self._masker: Masker | None = None

    def keys(self, round: int) -> Head:
        """Public keys for a round; for one that is over there are none any more."""
        if self._masker is None or self._masker.round < round:
            self._masker = Masker(self.i, round, self.how.least)
        return {"keys": [key.hex() for key in self._of(round).publish()]}

    def shares(self, round: int, head: Head) -> Head:
        """Sealed shares for everybody whose keys these are."""
        roster = {i: Public(*_list(keys, 2)) for i, keys in _table(head, "roster").items()}
        return {"sealed": {str(j): box.hex() for j, box in self._of(round).share(roster).items()}}

    def ready(self, round: int) -> None:
        """A `UserError` if this client has no secrets of this round: it was restarted, and drops out."""
        self._of(round)

    def mask(self, round: int, head: Head, plain: bytes) -> bytes:
        """The reply that is in these bytes, which stay here, under its masks."""
        reply, header = decode(self.reply, plain)
        weight = self.how.weight_of(self.i, header["examples"])
        values = [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(reply)]
        inbox = {j: _bytes(box) for j, box in _table(head, "inbox").items()}
        masked = self._of(round).mask(np.concatenate([*(weight * each for each in values), [weight]]), inbox)
        return encode(masked_schema(self.reply), {"masked": masked}, {"round": round})

    def unmask(self, round: int, head: Head) -> Head:
        """What takes the masks of a sum away, if these are left."""
        left = head.get("left")
        if not isinstance(left, list) or not all(isinstance(i, int) for i in left):
            raise UserError("the letter does not say who is left")
        return {"told": {str(j): part.hex() for j, part in self._of(round).unmask(left).items()}}

    def _of(self, round: int) -> Masker:
        if self._masker is None or self._masker.round != round:
            raise UserError(
                f"client {self.i} has no keys of round {round}: it was started again since, and is left out"
            )
        return self._masker


class SecureRound:
    """The server's side of one round: what to ask in each stage, what came, and the sum."""

    def __init__(self, how: Secure, round: int, cohort: Iterable[int], reply: Schema) -> None:
        self.how, self.round, self.cohort, self.reply = how, round, list(cohort), reply
        self.roster: dict[int, Public] = {}
        self.sealed: dict[int, dict[int, bytes]] = {}
        self.masked: dict[int, np.ndarray] = {}
        self.told: dict[int, dict[int, bytes]] = {}

    def asked(self, stage: str) -> dict[int, Head]:
        """Who is asked in this stage, and what; a `TooFew` if those who are left are too few."""
        if stage == "keys":
            return self._enough({i: {} for i in self.cohort}, "are asked", FEWEST)
        if stage == "shares":
            roster = {str(i): [key.hex() for key in public] for i, public in sorted(self.roster.items())}
            return self._enough({i: {"roster": roster} for i in self.roster}, "sent their keys", FEWEST)
        if stage == "visit":
            inbox = lambda i: {str(j): boxes[i].hex() for j, boxes in self.sealed.items() if i in boxes}
            return self._enough({i: {"inbox": inbox(i)} for i in self.sealed}, "shared their secrets", FEWEST)
        return self._enough({i: {"left": sorted(self.masked)} for i in self.masked}, "sent a masked reply")

    def take(self, stage: str, i: int, head: Head, body: bytes) -> None:
        """What a client answered in this stage; a `UserError` if it cannot be."""
        if stage == "keys":
            found = Public(*_list(head.get("keys"), 2))
            if any(len(key) != 32 for key in found):
                raise UserError(f"client {i} sends keys of another length")
            self.roster[i] = found
        elif stage == "shares":
            found_boxes = {j: _bytes(box) for j, box in _table(head, "sealed").items()}
            if set(found_boxes) != set(self.roster) - {i}:
                raise UserError(f"client {i} did not seal shares for everybody")
            self.sealed[i] = found_boxes
        elif stage == "visit":
            told, header = decode(masked_schema(self.reply), body)
            if header.get("round") != self.round:
                raise UserError(f"client {i} answered round {header.get('round')}, but this is round {self.round}")
            self.masked[i] = told["masked"]
        else:
            self.told[i] = {j: _bytes(part) for j, part in _table(head, "told").items()}

    def total(self) -> tuple[np.ndarray, float]:
        """(the sum of weighted replies, the sum of weights) of those whose masked replies came."""
        self._enough(self.told, "told how to unmask the sum")
        found = from_ring(add_up(self.roster, list(self.sealed), self.masked, self.told, self.how.least))
        if not found[-1] > 0:
            raise UserError("the masks of the round do not cancel: somebody sent other shares than were meant")
        return found[:-1], float(found[-1])

    def mean(self) -> tuple[Tree, float]:
        """(the weighted mean of the replies, the sum of weights)."""
        total, weight = self.total()
        leaves, at = [], 0
        for _, dtype, shape in self.reply.leaves:
            count = int(np.prod(shape, dtype=int))
            leaves.append((total[at : at + count] / weight).reshape(shape).astype(jnp.dtype(dtype)))
            at += count
        return jax.tree.unflatten(self.reply.structure, leaves), weight

    def _enough(self, found: dict[int, Any], did: str, fewest: int = 2) -> dict[int, Any]:
        of = len(self.cohort)
        least = max(fewest, needed(self.how.least, of))
        if len(found) < least:
            raise TooFew(f"round {self.round} is abandoned: {len(found)} of {of} clients {did}, and secure aggregation "
                         f"needs {least} (train.secure.least)")  # fmt: skip
        return found


def run_here(server: SecureRound, ask: Callable[[str, int, Head], tuple[Head, bytes] | None]) -> dict[int, str]:
    """All stages with clients of this process; who cannot answer, and why. `ask` gives None for who is not there."""
    refused: dict[int, str] = {}
    for stage in STAGES:
        for i, about in server.asked(stage).items():
            try:
                if (said := ask(stage, i, about)) is not None:
                    server.take(stage, i, *said)
            except UserError as error:
                refused[i] = str(error)
    return refused


def _table(head: Head, name: str) -> dict[int, Any]:
    """A table by client numbers, which the other party wrote."""
    found = head.get(name)
    if not isinstance(found, dict) or not all(str(key).isdigit() for key in found):
        raise UserError(f"the letter has no table '{name}' of clients")
    return {int(key): value for key, value in found.items()}


def _list(found: Any, length: int) -> list[bytes]:
    if not isinstance(found, list) or len(found) != length:
        raise UserError("the letter has no pair of keys")
    return [_bytes(each) for each in found]


def _bytes(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except UNREADABLE as error:
        raise UserError(f"the letter has something that is no bytes: {error}") from None
