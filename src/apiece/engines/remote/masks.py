"""Secure aggregation, experimental: replies under masks that cancel in the sum, so that a server sees no single one.

After Bonawitz et al. (2017), one round, everything fresh: X25519 keys, a seed of one's own, Shamir's shares of both.

    keys     everybody: two public keys
    shares   everybody, for everybody else, sealed: shares of the seed of its mask key, and of the seed of its own mask
    visit    y_i = x_i + own mask_i + sum_{j > i} mask_ij - sum_{j < i} mask_ij     (mod 2^64)
    unmask   whoever is left: of those whose y came, its shares of their own masks' seeds; of the others, of their keys'

Numbers are fixed-point in a ring of 2^64, so that masks cancel to the last bit. Cryptography is that of `cryptography`
(X25519, HKDF, ChaCha20, AES-GCM) and of `pycryptodome` (Shamir's shares): nothing of it is made here.
"""

import dataclasses
import importlib.util
import math
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError

FRACTION = 28  # bits behind the point
RANGE = 2.0 ** (62 - FRACTION)  # of a sum
SEED = 16  # bytes: what Shamir's shares are made of
FEWEST = 3  # clients: a sum of two tells each of them the other


class TooFew(UserError):
    """Fewer clients are left than unmask a sum: the round is abandoned."""


def needed(least: float, of: int) -> int:
    """How many clients must be left of so many; more than half, so that no two sets of them are apart.

    >>> needed(2 / 3, 6), needed(0.51, 3)
    (4, 2)
    """
    return max(2, math.ceil(least * of - 1e-9), of // 2 + 1)


def to_ring(values: np.ndarray, clients: int) -> np.ndarray:
    """Numbers as fixed-point in the ring; a `UserError` if the sum of so many clients' might not fit.

    >>> from_ring(to_ring(np.array([1.5, -2.0]), 3) + to_ring(np.array([1.0, 0.25]), 3)).tolist()
    [2.5, -1.75]
    """
    values = np.asarray(values, np.float64)
    if not np.isfinite(values).all() or np.abs(values).max(initial=0) >= RANGE / max(clients, 1):
        raise UserError(f"a reply holds numbers that are not finite, or above {RANGE / max(clients, 1):.3g} with its "
                        "weight: no masked sum holds them")  # fmt: skip
    return np.rint(values * 2.0**FRACTION).astype(np.int64).view(np.uint64)


def from_ring(total: np.ndarray) -> np.ndarray:
    """The numbers of a sum in the ring."""
    return np.asarray(total, np.uint64).view(np.int64) / 2.0**FRACTION


def expand(key: bytes, count: int) -> np.ndarray:
    """So many numbers of the ring from a key, by ChaCha20."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), "<u8").astype(np.uint64)


class Pair(NamedTuple):
    """A private key that follows from a seed, and the public one."""

    private: Any
    public: bytes

    @classmethod
    def of(cls, seed: bytes) -> "Pair":
        """The pair of a seed."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        private = X25519PrivateKey.from_private_bytes(_derive(seed, b"apiece x25519"))
        return cls(private, private.public_key().public_bytes_raw())

    def agree(self, other: bytes, what: bytes) -> bytes:
        """The key that two parties share for one purpose; both find the same."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        shared = self.private.exchange(X25519PublicKey.from_public_bytes(other))
        return _derive(shared, b"apiece " + what + b"".join(sorted([self.public, other])))


class Public(NamedTuple):
    """What a client publishes for a round: the key that shares are sealed by, and the one of masks."""

    seal: bytes
    mask: bytes


@dataclasses.dataclass
class Masker:
    """A client's side of one round. Its secrets are here alone, and never on a disk: who is restarted drops out.

    >>> both = [Masker(i, round=0, least=0.6) for i in range(3)]
    >>> roster = {one.i: one.publish() for one in both}
    >>> sealed = {one.i: one.share(roster) for one in both}
    >>> inbox = lambda i: {j: boxes[i] for j, boxes in sealed.items() if j != i}
    >>> masked = {one.i: one.mask(np.array([1.0 + one.i]), inbox(one.i)) for one in both}
    >>> told = {one.i: one.unmask([0, 1, 2]) for one in both}
    >>> from_ring(add_up(roster, list(roster), masked, told, 0.6)).tolist()  # 1 + 2 + 3
    [6.0]
    """

    i: int
    round: int
    least: float

    def __post_init__(self) -> None:
        self._mask_seed, self._own_seed = secrets.token_bytes(SEED), secrets.token_bytes(SEED)
        self._seal, self._mask = Pair.of(secrets.token_bytes(SEED)), Pair.of(self._mask_seed)
        self._roster: dict[int, Public] = {}
        self._sealed: dict[int, bytes] = {}
        self._mine: dict[int, tuple[bytes, bytes]] = {}  # shares that this client holds: of mask keys, of own masks
        self._told: list[int] | None = None

    def publish(self) -> Public:
        """This round's public keys."""
        return Public(self._seal.public, self._mask.public)

    def share(self, roster: Mapping[int, Public]) -> dict[int, bytes]:
        """Shares of this client's secrets, sealed for each other client of the round."""
        from Crypto.Protocol.SecretSharing import Shamir

        if self._roster and self._roster == dict(roster):
            return dict(self._sealed)  # the same question again: its answer got lost
        if self._roster:
            raise UserError(f"client {self.i} has shared its secrets of round {self.round}: it does so once")
        if len(roster) < FEWEST or roster.get(self.i) != self.publish():
            raise UserError(f"client {self.i} is asked to mask among {len(roster)} clients, or under keys that are not "
                            f"its own; there must be {FEWEST}")  # fmt: skip
        if len({one for public in roster.values() for one in public}) < 2 * len(roster):
            raise UserError("two clients of the round have the same key")
        self._roster = dict(roster)
        order, count = sorted(roster), needed(self.least, len(roster))
        cut = lambda seed: [part for _, part in Shamir.split(count, len(order), seed, False)]
        split = lambda seed: dict(zip(order, cut(seed), strict=True))
        of_mask, of_own = split(self._mask_seed), split(self._own_seed)
        self._mine[self.i] = (of_mask[self.i], of_own[self.i])
        for j, public in roster.items():
            if j != self.i:
                key = self._seal.agree(public.seal, b"seal")
                self._sealed[j] = _sealed(key, self._about(self.i, j), of_mask[j] + of_own[j])
        return dict(self._sealed)

    def mask(self, values: np.ndarray, inbox: Mapping[int, bytes]) -> np.ndarray:
        """The numbers under their masks, among those whose sealed shares came."""
        if not self._roster or set(inbox) - set(self._roster) or len(self._mine) > 1:
            raise UserError(f"client {self.i} masks once in round {self.round}, among clients whose keys it knows")
        among = [*inbox, self.i]
        if len(among) < max(FEWEST, needed(self.least, len(self._roster))):
            raise TooFew(f"{len(among)} of {len(self._roster)} clients shared their secrets: too few to unmask a sum")
        for j, box in inbox.items():
            both = _opened(self._seal.agree(self._roster[j].seal, b"seal"), self._about(j, self.i), box)
            self._mine[j] = (both[:SEED], both[SEED:])
        total = to_ring(values, len(self._roster)) + expand(_derive(self._own_seed, b"apiece own mask"), len(values))
        for j in inbox:
            total = _with_mask(total, self.i, j, self._mask, self._roster[j].mask)
        return total

    def unmask(self, survivors: list[int]) -> dict[int, bytes]:
        """Of each client that masked: a share of its own mask if its numbers came, else of its key. Never both."""
        if self._told is not None and self._told != sorted(survivors):
            raise UserError(f"client {self.i} has told which masks to take away in round {self.round}: it does so once")
        there = set(survivors)
        if not there <= set(self._mine) or self.i not in there:
            raise UserError(f"client {self.i} is told of clients that did not mask in round {self.round}")
        if len(there) < max(2, needed(self.least, len(self._roster))):
            raise TooFew(f"{len(there)} of {len(self._roster)} clients are left: too few to unmask a sum")
        self._told = sorted(survivors)
        return {j: own if j in there else key for j, (key, own) in self._mine.items()}

    def _about(self, sender: int, receiver: int) -> bytes:
        return f"{self.round} {sender} {receiver}".encode()


def add_up(
    roster: Mapping[int, Public],
    shared: list[int],
    masked: Mapping[int, np.ndarray],
    told: Mapping[int, Mapping[int, bytes]],
    least: float,
) -> np.ndarray:
    """The server's side: the sum of the numbers whose masked form came, in the ring.

    Args:
        roster: whose keys were published. shared: of these, who shared its secrets, and so is in everybody's masks.
        masked: by client. told: what each client that is left told of the others. least: the share that is needed.
    """
    count = needed(least, len(roster))
    if len(told) < count:
        raise TooFew(f"{len(told)} of {len(roster)} clients told how to unmask the sum, and {count} are needed")
    order = {i: at + 1 for at, i in enumerate(sorted(roster))}

    def seed_of(j: int) -> bytes:
        from Crypto.Protocol.SecretSharing import Shamir

        parts = [(order[i], said[j]) for i, said in sorted(told.items()) if len(said.get(j, b"")) == SEED]
        if len(parts) < count:
            raise TooFew(f"{len(parts)} clients told their share of client {j}, and {count} are needed")
        return Shamir.combine(parts[:count], False)

    total: np.ndarray = np.asarray(np.sum(np.stack(list(masked.values())), axis=0, dtype=np.uint64))
    for j in masked:
        total = total - expand(_derive(seed_of(j), b"apiece own mask"), len(total))
    for j in set(shared) - set(masked):  # whoever dropped out is still in the masks of the others
        pair = Pair.of(seed_of(j))
        if pair.public != roster[j].mask:
            raise UserError(f"the shares of client {j} do not make its key: somebody lied about them")
        for i in masked:
            total = _with_mask(total, j, i, pair, roster[i].mask)  # its side of the mask, which nobody sent
    return total


def _with_mask(total: np.ndarray, i: int, j: int, pair: Pair, other: bytes) -> np.ndarray:
    """What client i adds for client j: plus for the one of the two that has the lower number, else minus."""
    mask = expand(pair.agree(other, b"mask"), len(total))
    return total + mask if i < j else total - mask


def _derive(secret: bytes, what: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=None, info=what).derive(secret)


def _sealed(key: bytes, about: bytes, content: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(12)
    return nonce + AESGCM(key).encrypt(nonce, content, about)


def _opened(key: bytes, about: bytes, box: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        found = AESGCM(key).decrypt(box[:12], box[12:], about)
    except (InvalidTag, ValueError):
        raise UserError("a sealed share cannot be opened: it was changed on its way, or is another round's") from None
    if len(found) != 2 * SEED:
        raise UserError("a sealed share has another length")
    return found


def library() -> None:
    """A `UserError` that says how to get what masks are made by, if it is not there."""
    if not all(importlib.util.find_spec(name) for name in ("Crypto", "cryptography")):
        raise UserError("secure aggregation needs cryptography and pycryptodome, which are not installed: "
                        "pip install 'apiece[secure]'")  # fmt: skip
