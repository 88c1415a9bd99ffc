"""What a server of a network keeps on its disk, so that a killed one goes on: replies as they come, then its state.

A reply is written before it is merged, the state after the merge; both whole or not at all. A server that starts again
finds its last state, and the replies to that round which had already come: those clients are not asked again.
"""

import contextlib
from pathlib import Path

from apiece.files import replace_file


class Ledger:
    """The files of one method and seed: `state.safetensors`, and `replies/` of the round at hand.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     ledger = Ledger(Path(place))
    ...     ledger.keep(3, 1, b"said")
    ...     ledger.replies(3), ledger.replies(4), list(ledger.folder.glob("replies/*"))
    ({1: b'said'}, {}, [])
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state.safetensors"

    def keep(self, round: int, i: int, reply: bytes) -> None:
        """Write the reply of client i to the message of a round."""
        with replace_file(self.folder / "replies" / f"{round}-{i}") as temporary:
            temporary.write_bytes(reply)

    def replies(self, round: int) -> dict[int, bytes]:
        """The replies to this round that were kept; those of others are of no use any more, and go."""
        found = {}
        for path in sorted(self.folder.glob("replies/[0-9]*-[0-9]*")):
            of_round, _, i = path.name.partition("-")
            if of_round == str(round) and i.isdigit():
                found[int(i)] = path.read_bytes()
            else:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        return found
