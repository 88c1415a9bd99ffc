"""Whether a run fits the memory and the disk of this machine, from shapes alone; said before anything is written."""

import shutil
from typing import NamedTuple

import jax

from apiece import tree
from apiece.engines.contact import visit_shapes
from apiece.engines.states import disk, lie_on_disk
from apiece.errors import UserError
from apiece.experiment.build import Arena
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.world import participation_of
from apiece.machine import memory
from apiece.protocol import Method

LESS = "take fewer clients at once (train.cohort) or a smaller model"
SURELY_FITS = 16  # where everybody's model takes less than one part in so many of the memory nothing is traced


class Needs(NamedTuple):
    """Bytes that an engine holds at the same moment, and not one more than is certain.

    All that comes on top (gradients, copies at work, examples, XLA's own) differs with machine and method: what is
    refused cannot run, what is not refused may still fail.
    """

    model: int  # the initial one
    server: int
    state: int  # of each client of a round
    reply: int
    clients: int  # of a round: their states and replies lie side by side, to be merged

    @property
    def total(self) -> int:
        """All together.

        >>> Needs(model=1, server=2, state=3, reply=4, clients=10).total
        73
        """
        return self.model + self.server + self.clients * (self.state + self.reply)


def needs_of(method: Method, place: Arena, train: TrainSpec) -> Needs:
    """What a method's rounds hold at once."""
    key = jax.random.key(0)
    params = jax.eval_shape(place.model.init, key)
    size = lambda found: int(tree.size_in_bytes(found))
    model, server = size(params), size(jax.eval_shape(lambda params: method.init(params, key), params))
    at_once = 1 if train.arrivals is not None else participation_of(train).places(place.population)
    if (at_once + 1) * model < memory() // SURELY_FITS:
        return Needs(model, server, 0, 0, at_once)
    client, reply = visit_shapes(method, params, (place.x, place.y), int(place.sizes("train").max()))
    return Needs(model, server, 0 if train.stateless else size(client), size(reply), at_once)


def check_memory(name: str, method: Method, place: Arena, train: TrainSpec) -> None:
    """Raise a `UserError` that says what a method needs, and what would fit, if that is more than there is."""
    if jax.default_backend() != "cpu" or jax.process_count() > 1:  # memory of its own, or of many machines
        return
    needs, there = needs_of(method, place, train), memory()
    if needs.total <= there:
        return
    each = needs.state + needs.reply
    told = f"the model {_gb(needs.model)}, the server {_gb(needs.server)}"
    told += f", and {needs.clients:,} clients at once {_gb(each)} each" if each else ""
    raise UserError(f"method '{name}' with {place.model.name} needs {_gb(needs.total)} of memory or more ({told}); "
                    f"this machine has {_gb(there)}. {_what_fits(needs, there)}")  # fmt: skip


def check_disk(name: str, method: Method, place: Arena, train: TrainSpec) -> None:
    """Raise a `UserError` if the states of all who will be visited lie on disk and take more than is free there."""
    params = jax.eval_shape(place.model.init, jax.random.key(0))
    small = place.population * int(tree.size_in_bytes(params)) < memory() // SURELY_FITS
    if train.stateless or method.forgets or train.states == "memory" or (train.states == "auto" and small):
        return
    client, _ = visit_shapes(method, params, (place.x, place.y), int(place.sizes("train").max()))
    state = int(tree.size_in_bytes(client))
    if not lie_on_disk(place.population * state, train.states):
        return
    late = train.arrivals
    each = participation_of(train).places(place.population) if late is None else late.buffer
    visited = min(place.population, train.rounds * each + (0 if late is None else late.active))
    needed, free = visited * state, shutil.disk_usage(disk()).free
    if needed > free:
        raise UserError(f"method '{name}' keeps {_gb(state)} of each client on disk, and {train.rounds} rounds visit "
                        f"{visited:,} clients: {_gb(needed)}, and {disk()} has {_gb(free)} free. Make room there, or "
                        "name a folder on a larger disk in the environment variable TMPDIR; or take a smaller model, "
                        "or clients that forget (train.stateless)")  # fmt: skip


def out_of_memory(error: Exception) -> bool:
    """Whether it says that there was no memory left.

    >>> out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")), out_of_memory(ValueError())
    (True, False)
    """
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _what_fits(needs: Needs, there: int) -> str:
    """The remedy, by what takes most.

    >>> _what_fits(Needs(1, 1, 5, 5, 100), 52)
    'Fewer clients at once would fit: train.cohort = 5; if they keep no states (train.stateless), 10'
    >>> _what_fits(Needs(10, 1, 5, 5, 100), 12)
    'Not even one client at a time would fit: take a smaller model'
    >>> _what_fits(Needs(1, 90, 0, 0, 100), 12)
    'The server keeps too much: take fewer clients, a smaller model, or a method whose server keeps less'
    """
    free, each = there - needs.model - needs.server, needs.state + needs.reply
    if needs.server > there // 2 and needs.server > 4 * needs.model:
        return "The server keeps too much: take fewer clients, a smaller model, or a method whose server keeps less"
    if free < max(each, 1):
        return "Not even one client at a time would fit: take a smaller model"
    fewer, forgetful = free // each, min(free // max(needs.reply, 1), needs.clients)
    also = f"; if they keep no states (train.stateless), {forgetful}" if forgetful > fewer else ""
    return f"Fewer clients at once would fit: train.cohort = {fewer}{also}"


def _gb(count: float) -> str:
    """Bytes, in words.

    >>> _gb(2.5e9), _gb(3e6), _gb(12)
    ('2.5 GB', '3.0 MB', '12 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"
