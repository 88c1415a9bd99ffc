"""Four federations of features: a network pre-trained on some of the clients, frozen, and applied to the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import optax

from apiece.data.federation import Federation
from apiece.data.sources import real
from apiece.models import Model, char_lstm, cnn2, cnn3, sensor_cnn
from apiece.models.pretrain import features, pretrained

SHARES = (0.8, 0.1, 0.1)  # as published


class Frozen(NamedTuple):
    """Features to federate on, and how they came about."""

    federation: Federation
    about: dict[str, Any]


def mnist(quick: bool) -> Frozen:
    """Digits by writer; 99 of the 297 writers of MNIST's test digits are the new clients."""
    every = real.mnist_by_writer(shares=SHARES)
    assert every.new is not None
    others, mine = parted(every, 40 if quick else 180)
    if quick:
        mine = mine.take(range(60))
    mine = replace(mine, new=every.new.take(range(10 if quick else 99)))
    model = cnn2((28, 28), 10, width=8, hidden=(32,))
    return frozen(model, others, mine, epochs=4 if quick else 6, lr=0.1, batch=32)


def roles() -> Frozen:
    """The next character of Shakespeare's roles: an example is a sequence of 80 characters and the one after it."""
    others, mine = parted(real.shakespeare_roles(shares=SHARES), 223)
    model = char_lstm(len(mine.classes), embed=8, width=64, layers=1)
    adam = optax.scale_by_adam()
    return frozen(
        model, others, mine.hold_out_clients(0.1), epochs=6, lr=0.005, decay=0.7, batch=32, optimizer=adam, places=1
    )


def cifar() -> Frozen:
    """CIFAR-10 pictures, a hundred for each of a hundred clients, their classes drawn from a Dirichlet law of 0.3."""
    every = real.cifar10_subset(clients=100, partition="dirichlet_per_client", alpha=0.3, shares=SHARES)
    others, mine = parted(every, 50)
    model = cnn3((32, 32, 3), 10, width=16, hidden=(32,))
    return frozen(model, others, mine.hold_out_clients(0.2), epochs=12, lr=0.1, decay=0.85, batch=32)


def har() -> Frozen:
    """Six activities of thirty people: ten pre-train, sixteen are federated, four are new."""
    others, mine = parted(real.har_by_subject(shares=SHARES), 10)
    model = sensor_cnn((128, 9), 6, width=16, hidden=(32,))
    return frozen(model, others, mine.hold_out_clients(0.2), epochs=10, lr=0.05, batch=32)


FEDERATIONS: dict[str, Callable[[], Frozen]] = {
    "MNIST by writer": lambda: mnist(quick=False),
    "Shakespeare by role": roles,
    "CIFAR-10 by Dirichlet": cifar,
    "HAR by subject": har,
}


def parted(federation: Federation, count: int) -> tuple[Federation, Federation]:
    """(clients that pre-train and are never federated, the others), chosen once and for all.

    >>> from apiece.data import digits
    >>> [side.clients for side in parted(digits(clients=10), 3)]
    [3, 7]
    """
    shuffled = np.random.default_rng(0).permutation(federation.clients)
    old = replace(federation, new=None)
    return old.take(np.sort(shuffled[:count])), old.take(np.sort(shuffled[count:]))


def frozen(model: Model, others: Federation, mine: Federation, *, places: int | None = None, **how: Any) -> Frozen:
    """Pre-train on the others; my features, centred and with one scale, so that one grid of step sizes fits all."""
    start = pretrained(model, others, **how)
    last = features(model, start.params, mine, places=places).standardized(together=True)
    about = {
        "network": model.name,
        "pre-training clients": others.clients,
        "their validation accuracy": round(1 - start.error, 4),
        "clients": last.clients,
        "new clients": 0 if last.new is None else last.new.clients,
        "train": last.train.rows,
        "validation": last.validation.rows,
        "test": last.test.rows,
    }
    return Frozen(last, about)
