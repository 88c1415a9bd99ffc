"""A client's memory on its own disk, in one file that is there as a whole: what makes work exactly once.

The file holds the committed state, the pending work, its round, the digest of the message and the reply to it. So a
process that is killed anywhere goes on as if nothing had been: either the file is there with its reply, which is sent
again, or it is not, and the work is done again from the state before.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import files
from apiece.engines.contact import Visit
from apiece.engines.remote.halves import NEVER, Agreement, Memory
from apiece.errors import UserError
from apiece.protocol import Tree


class Answered:
    """The last visit that was answered: its round, the digest of the message, and the reply.

    `seen` is the latest round of any message: the server never goes back.

    >>> Answered().round, Answered(round=3, digest="ab", reply=b"said").reply
    (-1, b'said')
    """

    def __init__(self, round: int = NEVER, digest: str = "", reply: bytes = b"", seen: int = NEVER) -> None:
        self.round, self.digest, self.reply, self.seen = round, digest, reply, max(seen, round)


def save_memory(path: Path, memory: Memory, answered: Answered, about: dict[str, Any]) -> None:
    """Write a client's memory, whole or not at all."""
    arrays = {"reply": np.frombuffer(answered.reply, np.uint8)}
    if memory.client is not None:
        arrays |= files.arrays_by_path("client", memory.client)
    if memory.pending is not None:
        arrays |= files.arrays_by_path("after", memory.pending.after)
        arrays |= files.arrays_by_path("kept", memory.pending.kept)
    stands = {
        "known": memory.client is not None,
        "pending": memory.round if memory.pending is not None else None,
        **{name: getattr(answered, name) for name in ("round", "digest", "seen")},
    }
    files.write_arrays(path, {name: _bits(leaf) for name, leaf in arrays.items()}, {**about, "stands": stands})


def load_memory(path: Path, terms: Agreement) -> tuple[Memory, Answered]:
    """(memory, last answer) of a file; of one that is not there, nothing is remembered, and the client enrolls."""
    if not path.exists():
        return Memory(), Answered()
    arrays, about = files.read_arrays(path)
    try:
        stands = about["stands"]
        take = lambda name, like: _rebuilt(name, like, arrays)
        client = take("client", terms.client) if stands["known"] else None
        answered = Answered(stands["round"], stands["digest"], arrays["reply"].tobytes(), stands["seen"])
        if stands["pending"] is None:
            return Memory(client), answered
        kept = take("kept", terms.client) if any(name.split("/")[0] == "kept" for name in arrays) else ()
        before = client if client is not None else jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), terms.client)
        work = Visit(take("after", terms.client), kept, ())
        return Memory(client, before, work, stands["pending"]), answered
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not the memory of this method and model ({error}); move it away, and the client "
                        "enrolls anew") from None  # fmt: skip


def _rebuilt(name: str, like: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    def one(shape: Any, leaf: np.ndarray) -> Any:
        whole = leaf.view(jnp.dtype(shape.dtype)) if jnp.dtype(shape.dtype).kind == "V" else leaf
        if whole.shape != shape.shape or whole.dtype != shape.dtype:
            raise ValueError(f"{name} has {whole.dtype}{whole.shape}, expected {shape.dtype}{shape.shape}")
        return jnp.asarray(whole)

    return jax.tree.map(one, like, files.rebuild_tree(name, like, arrays))


def _bits(leaf: np.ndarray) -> np.ndarray:
    """Types that NumPy does not know by itself are kept as their bits."""
    return leaf.view(f"u{leaf.dtype.itemsize}") if leaf.dtype.kind == "V" else leaf
