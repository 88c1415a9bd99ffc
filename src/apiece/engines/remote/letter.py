"""A letter over the network: who sends what, in which run and round, around the bytes of the codec.

Every letter names the version, the run, the hash of the spec, the task, the round and the client. Both parties read
that before they look at anything else, and refuse what is not meant for them, with a reason that says what to do.
"""

import hashlib
import json
from importlib.metadata import version
from typing import Any, NamedTuple

from apiece.errors import UserError

MAGIC = b"apiece\x001"
DIGEST = 32  # bytes
HEAD = 1 << 24  # bytes that a head may have: what sites agree on is in one
WORDS = 500  # characters of a reason: the other party writes part of it
ROOM = 1 << 16  # beyond what a reply is expected to have: its head, the names of arrays


class Letter(NamedTuple):
    """What a letter is about, and its content.

    >>> read_letter(write_letter({"task": "visit", "round": 3}, b"bytes")).body
    b'bytes'
    """

    head: dict[str, Any]
    body: bytes
    digest: str  # of the whole: the same letter again has the same one


class Terms(NamedTuple):
    """What every letter of a run says of itself: which version of apiece, which run, which spec."""

    version: str
    run: str
    spec: str

    def head(self, **about: Any) -> dict[str, Any]:
        """The head of a letter of this run.

        >>> Terms("0.1", "wards", "ab12").head(task="visit")
        {'version': '0.1', 'run': 'wards', 'spec': 'ab12', 'task': 'visit'}
        """
        return {**self._asdict(), **about}

    def check(self, head: dict[str, Any], who: str) -> None:
        """Raise a `UserError` if a letter is of another version, run or spec.

        >>> try: Terms("0.1", "wards", "ab12").check({"version": "0.2"}, "the server")
        ... except UserError as error: print(error)
        the server runs apiece 0.2, and this is 0.1: install the same minor version on both sides; the server's, so that
        its run can go on
        """
        if head.get("version") != self.version:
            raise UserError(f"{who} runs apiece {head.get('version')!s:.20}, and this is {self.version}: install the "
                            "same minor version on both sides; the server's, so that its run can go on")  # fmt: skip
        if head.get("run") != self.run:
            raise UserError(f"{who} speaks of the run '{head.get('run')}', and this is '{self.run}'; a site has one "
                            "folder for each run")  # fmt: skip
        if self.spec and head.get("spec") != self.spec:
            raise UserError(f"{who} follows another spec ({head.get('spec')}, here {self.spec}): the run was changed "
                            "after it began; start a new one under another name")  # fmt: skip


def reason(error: Exception) -> str:
    """Why a letter was refused, in few words, however many the other party sent.

    >>> len(reason(UserError("so " * 1000)))
    500
    """
    return (str(error) if isinstance(error, UserError) else f"this letter cannot be worked on: {error!r}")[:WORDS]


def minor_version() -> str:
    """The part of apiece's version that both parties must share.

    >>> minor_version().count(".")
    1
    """
    return ".".join(version("apiece").split(".")[:2])


def write_letter(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A letter as bytes; its last ones are a digest of all others, which a damaged letter does not have."""
    text = json.dumps(head, sort_keys=True, allow_nan=False).encode()
    whole = MAGIC + len(text).to_bytes(4, "little") + text + body
    return whole + hashlib.sha256(whole).digest()


def read_letter(wire: bytes, limit: int | None = None) -> Letter:
    """The letter that these bytes are; a `UserError` if they are none, damaged, or more than `limit`.

    >>> try: read_letter(b"hello")
    ... except UserError as error: print(error)
    5 bytes are no letter of apiece
    """
    if limit is not None and len(wire) > limit:
        raise UserError(f"{len(wire)} bytes are more than this letter may have ({limit}); they were not read")
    start = len(MAGIC) + 4
    if len(wire) < start + DIGEST or wire[: len(MAGIC)] != MAGIC:
        raise UserError(f"{len(wire)} bytes are no letter of apiece")
    whole, digest = wire[:-DIGEST], wire[-DIGEST:]
    if hashlib.sha256(whole).digest() != digest:
        raise UserError("a letter is damaged: its digest is not that of its bytes")
    length = int.from_bytes(wire[len(MAGIC) : start], "little")
    try:
        if length > min(HEAD, len(whole) - start):
            raise ValueError(f"a head of {length} bytes")
        head = json.loads(whole[start : start + length])
        if not isinstance(head, dict):
            raise ValueError("its head is no table")
    except (ValueError, RecursionError) as error:
        raise UserError(f"a letter cannot be read: {error}") from None
    return Letter(head, whole[start + length :], digest.hex())
