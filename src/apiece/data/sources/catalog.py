"""Federations by name: `source("digits", clients=30, partition="by_classes", k=2)`."""

import inspect
from collections.abc import Callable
from typing import Any

from apiece.data.federation import Federation
from apiece.data.sources import hub, real, synthetic
from apiece.data.sources.digits import digits
from apiece.data.sources.fashion import fashion_mnist
from apiece.data.sources.sentiment import sentiment140
from apiece.errors import UserError, suggest

MADE: dict[str, Callable[..., Federation]] = {  # by formulas, or from what a dependency carries
    "digits": digits,
    "quadratics": synthetic.quadratics,
    "linear": synthetic.linear,
    "linear_spectrum": synthetic.linear_spectrum,
    "logistic": synthetic.logistic,
    "two_level_gaussian": synthetic.two_level_gaussian,
    "bernoulli_means": synthetic.bernoulli_means,
    "many": synthetic.many,
}
READ: dict[str, Callable[..., Federation]] = {  # from files that a user has, or fetches
    "mnist_by_writer": real.mnist_by_writer,
    "cifar10_subset": real.cifar10_subset,
    "shakespeare_roles": real.shakespeare_roles,
    "har_by_subject": real.har_by_subject,
    "audiomnist_by_speaker": real.audiomnist_by_speaker,
    "heart_by_hospital": real.heart_by_hospital,
    "school_by_school": real.school_by_school,
    "vehicle_by_sensor": real.vehicle_by_sensor,
    "fashion_mnist": fashion_mnist,
    "femnist": hub.femnist,
    "mnist": hub.mnist,
    "cifar10": hub.cifar10,
    "cifar100": hub.cifar100,
    "shakespeare": hub.shakespeare,
    "sentiment140": sentiment140,
}
SOURCES = MADE | READ


def source(name: str, **options: Any) -> Federation:
    """Make the federation of that name; options are the arguments of its function.

    >>> source("linear", clients=5, features=3).clients
    5
    >>> try: source("digits", client=30)
    ... except UserError as error: print(error)
    data 'digits' has no option 'client': did you mean 'clients'?
    """
    if name not in SOURCES:
        raise UserError(f"unknown data '{name}': {suggest(name, SOURCES)}")
    known = inspect.signature(SOURCES[name]).parameters
    for option in options:
        if option not in known:
            tail = suggest(option, known) if known else "it takes none"
            raise UserError(f"data '{name}' has no option '{option}': {tail}")
    return SOURCES[name](**options)
