"""Federations by name: `source("digits", clients=30, partition="by_classes", k=2)`."""

from collections.abc import Callable
from typing import Any

from apiece.data.federation import Federation
from apiece.data.sources import hub, real, synthetic
from apiece.data.sources.digits import digits
from apiece.data.sources.fashion import fashion_mnist
from apiece.data.sources.sentiment import sentiment140
from apiece.registry import Registry

SOURCES = Registry("data", group="apiece.sources", values="typed").add(
    digits=digits,
    quadratics=synthetic.quadratics,
    linear=synthetic.linear,
    linear_spectrum=synthetic.linear_spectrum,
    logistic=synthetic.logistic,
    two_level_gaussian=synthetic.two_level_gaussian,
    bernoulli_means=synthetic.bernoulli_means,
    many=synthetic.many,
)
MADE = SOURCES.own  # by formulas, or from what a dependency carries; all others from files that a user has, or fetches
SOURCES.add(
    mnist_by_writer=real.mnist_by_writer,
    cifar10_subset=real.cifar10_subset,
    shakespeare_roles=real.shakespeare_roles,
    har_by_subject=real.har_by_subject,
    audiomnist_by_speaker=real.audiomnist_by_speaker,
    heart_by_hospital=real.heart_by_hospital,
    school_by_school=real.school_by_school,
    vehicle_by_sensor=real.vehicle_by_sensor,
    fashion_mnist=fashion_mnist,
    femnist=hub.femnist,
    mnist=hub.mnist,
    cifar10=hub.cifar10,
    cifar100=hub.cifar100,
    shakespeare=hub.shakespeare,
    sentiment140=sentiment140,
)


def source(name: str | Callable[..., Federation], **options: Any) -> Federation:
    """Make the federation of that name; options are the arguments of its function.

    >>> source("linear", clients=5, features=3).clients
    5
    >>> source("digits", client=30)
    Traceback (most recent call last):
    apiece.errors.UserError: data 'digits' has no option 'client': did you mean 'clients'?
    >>> source("digits", clients="many")
    Traceback (most recent call last):
    apiece.errors.UserError: option 'clients' of data 'digits' = 'many' is wrong: input should be a valid integer
    """
    return SOURCES.make(name, options)
