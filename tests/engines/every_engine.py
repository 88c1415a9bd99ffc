"""Every engine by its name, made with little: a new one has its row here, and with it the tests of this folder."""

from functools import partial
from typing import get_args

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.experiment.spec_tables import TrainSpec
from apiece.testing.case import ENGINES

MAKE = {"vectorized": Vectorized, "remote": Remote, "asynchronous": partial(Asynchronous, arrivals=Speeds(active=2))}
IN_ROUNDS = get_args(TrainSpec.model_fields["engine"].annotation)  # those of a spec: with cohorts, and with faults
assert set(MAKE) == set(ENGINES) and set(IN_ROUNDS) < set(ENGINES), "an engine has no row here"
