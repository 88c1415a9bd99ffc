"""Many machines, one run: the same compiled rounds over every machine's devices (`jax.distributed`).

Every process runs the same script with the same spec and data, and calls `join` first; the engines then see the
devices of all of them and divide the clients over these. What a round merges is collected by XLA. Each process ends
with the same server, the same states and the same numbers.
"""

import jax

from apiece.engines.devices import ask_for_all_cores
from apiece.errors import UserError

WAIT = 120  # seconds for all processes to come together


def join(coordinator: str, processes: int, process: int, wait: int = WAIT) -> int:
    """Become process number `process` of `processes`; how many devices there are in all.

    Args:
        coordinator: "host:port" of process 0, the same for all. wait: seconds after which the others are given up.

    >>> try: join("10.0.0.1:7654", processes=2, process=2)
    ... except UserError as error: print(error)
    process 2 of 2: processes are numbered from 0 to 1
    """
    if not 0 <= process < processes:
        raise UserError(f"process {process} of {processes}: processes are numbered from 0 to {processes - 1}")
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise UserError(f"the coordinator is 'host:port' of process 0, not '{coordinator}'")
    if jax.distributed.is_initialized():
        raise UserError("this process has joined already")
    ask_for_all_cores()
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(coordinator, processes, process, initialization_timeout=wait)
    except RuntimeError as error:
        raise UserError(f"could not join {processes} processes at {coordinator} within {wait} s: {error}") from None
    return len(jax.devices())
