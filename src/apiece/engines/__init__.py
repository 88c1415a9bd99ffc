"""Engines run methods; all of them are an `Engine` to the rest of the house.

`Vectorized`: whole runs in one compiled program. `Asynchronous`: replies merged as they come. `Remote`: client by
client, over bytes. What is simulated of the world: who takes part (`Participation`, `Availability`), who fails to
(`Faults`), how long clients take (`Pace`), when replies arrive (`Speeds`, `Delays`, `Recorded`).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apiece.engines.engine import Engine, RunState
    from apiece.engines.remote.engine import Remote
    from apiece.engines.simulation.asynchronous import Asynchronous
    from apiece.engines.simulation.multihost import join
    from apiece.engines.simulation.vectorized import Vectorized
    from apiece.engines.world.arrivals import Delays, Recorded, Speeds
    from apiece.engines.world.cohort import Availability, Participation, take_turns
    from apiece.engines.world.faults import Faults
    from apiece.engines.world.pace import Pace

_HOME = {
    "Engine": "engine",
    "RunState": "engine",
    "Vectorized": "simulation.vectorized",
    "Asynchronous": "simulation.asynchronous",
    "Remote": "remote.engine",
    "Participation": "world.cohort",
    "Availability": "world.cohort",
    "take_turns": "world.cohort",
    "Faults": "world.faults",
    "Pace": "world.pace",
    "Speeds": "world.arrivals",
    "Delays": "world.arrivals",
    "Recorded": "world.arrivals",
    "join": "simulation.multihost",
}

__all__ = ["Engine", "RunState", "Vectorized", "Asynchronous", "Remote", "Participation", "Availability",
           "take_turns", "Faults", "Pace", "Speeds", "Delays", "Recorded", "join"]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Each is loaded when it is asked for: who only wants all cores does not wait for every engine."""
    if name not in _HOME:
        raise AttributeError(f"module 'apiece.engines' has no attribute '{name}'")
    return getattr(importlib.import_module(f"apiece.engines.{_HOME[name]}"), name)
