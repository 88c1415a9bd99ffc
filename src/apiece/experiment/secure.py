"""A spec's secure aggregation: what is refused, with the reason, and what an engine is told."""

from collections.abc import Callable
from typing import Any

import jax

from apiece.engines.contact import visit_shapes
from apiece.engines.remote.masks import FEWEST, library
from apiece.engines.remote.secure import Secure
from apiece.errors import UserError
from apiece.experiment.privacy import APART, expected_clients
from apiece.experiment.spec_tables import TrainSpec
from apiece.protocol import Data, Method, Params
from apiece.wrap.private import averages_replies, check_numbers

UNLIKE = (1.0, 2.0, 4.0)  # weights of a trial: a merge must be by the mean that these give


def secure_of(train: TrainSpec, population: int) -> Secure | None:
    """What both parties of a run know of masks; None: replies go as they are.

    >>> secure_of(TrainSpec(), 5) is None
    True
    """
    if train.secure is None:
        return None
    if train.private is not None or train.weights == "uniform":  # under noise everybody counts alike
        return Secure(train.secure.least, dict.fromkeys(range(population), 1.0))
    return Secure(
        train.secure.least, None if train.weights == "examples" else dict(enumerate(map(float, train.weights)))
    )


def check_secure(
    name: str, method: Method, train: TrainSpec, init: Callable[[Any], Params], client: Data, population: int
) -> None:
    """A `UserError` that says why a method, or the rest of a spec, cannot go with masked replies."""
    if train.secure is None:
        return
    library()
    _check_rest(train, population)
    said = f"method '{name}' under [train.secure]: "
    if name in APART:
        raise UserError(f"{said}{APART[name]}; take another method, or leave the table out")
    params = jax.eval_shape(init, jax.random.key(0))
    _, reply = visit_shapes(method, params, (client.x, client.y), client.capacity or 1)
    try:
        check_numbers(reply)
    except UserError as error:
        raise UserError(said + str(error).replace("noised", "masked")) from None
    alike = train.weights == "uniform" or train.private is not None
    given = (method, params, reply, population)
    if averages_replies(*given, (1.0, 1.0, 1.0) if alike else UNLIKE):
        return
    if not alike and averages_replies(*given):
        raise UserError(f"{said}its merge counts everybody alike, and masked replies are weighed before they are sent; "
                        "set train.weights = 'uniform'")  # fmt: skip
    raise UserError(
        f"{said}its merge is no weighted mean of the replies (it keeps models or numbers of single clients, groups "
        "them, or weighs replies by what they say), and a masked sum is all that the server sees; take another "
        "method, or leave the table out"
    )


def _check_rest(train: TrainSpec, population: int) -> None:
    if train.arrivals is not None:
        raise UserError("train.secure goes with rounds: masks cancel among clients that answer together, and where "
                        "replies are merged as they arrive ([train.arrivals]) nobody does; leave one out")  # fmt: skip
    if train.defence is not None:
        raise UserError("train.secure and train.defence exclude each other: robust rules and bounds look at single "
                        "replies, and masks hide these; leave one of them out")  # fmt: skip
    if train.attack is not None or (train.faults is not None and train.faults.corrupt):
        raise UserError("train.secure goes with neither train.attack nor train.faults.corrupt: both change single "
                        "replies at the server, where there are none; leave one of them out")  # fmt: skip
    if train.compress is not None:
        raise UserError("train.secure and train.compress exclude each other: a masked number has 64 bits, whatever it "
                        "was, and places of numbers cannot be masked; leave one of them out")  # fmt: skip
    if train.private is not None and train.private.at == "server":
        raise UserError("train.secure goes with noise at the clients: a server that sees no single reply cannot clip "
                        "it; take private.at = 'clients'")  # fmt: skip
    if expected_clients(train, population) < FEWEST:
        raise UserError(f"train.secure needs {FEWEST} clients in a round: of two, each would learn the other's reply "
                        "from the sum")  # fmt: skip
