"""Another deal of the same clients' rows: how much of a result is the luck of the split."""

import numpy as np

from apiece.engines.simulation.division import mesh_of, on_devices
from apiece.experiment.build import Arena


def redealt(place: Arena, seed: int) -> Arena:
    """Every client's training and validation rows dealt again, as many of each; test rows stay. Without new clients.

    >>> from apiece.data import digits
    >>> from apiece.experiment.build import ModelSpec, arena, model_of
    >>> place = arena(digits(clients=8), model_of(ModelSpec(), digits(clients=8)))
    >>> other = redealt(place, 1)
    >>> other.x.shape == place.x.shape, bool((other.x == place.x).all())
    (True, False)
    """
    (held_x, held_y, held), rng = place.splits["validation"], np.random.default_rng([seed, 0x7265])
    x, y = (np.concatenate([first, then]) for first, then in ((place.x, held_x), (place.y, held_y)))
    ours, theirs = np.arange(len(place.x)), len(place.x) + np.arange(len(held_x))
    for i in range(place.population):
        train, validation = slice(*place.offsets[i : i + 2]), slice(*held[i : i + 2])
        mixed = rng.permutation(np.concatenate([ours[train], theirs[validation]]))
        ours[train], theirs[validation] = np.split(mixed, [train.stop - train.start])
    laid = lambda rows: (on_devices(x[rows], mesh_of()), on_devices(y[rows], mesh_of()))
    splits = {**place.splits, "validation": (*laid(theirs), held)}
    return place._replace(ids=place.ids[: place.population], **dict(zip("xy", laid(ours), strict=True)), splits=splits)
