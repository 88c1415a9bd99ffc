"""Examples far from unit scale, and what brings them there: one step size for all features then crawls or blows up.

Whatever is decided here comes from sums over clients (`data.statistics`): no row has to move.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from apiece.data import statistics
from apiece.data.federation import Federation
from apiece.data.scaling import Scaling

FAR = 20.0  # a mean or a spread above this, or a spread below 1 / this, needs scaling
NAMED = 3  # features that a sentence names


class UnitScale(NamedTuple):
    """How examples are brought to unit scale, and what a reader of results should know of it."""

    scaling: Scaling
    notes: tuple[str, ...]


def find_unit_scale(federation: Federation, wanted: bool | None = None, targets: bool = True) -> UnitScale | None:
    """What brings a federation to unit scale; None: nothing, it stays as it is.

    By default features that are numbers of a table become scaled if one of them is far from unit scale, all to mean 0
    and spread 1 but for columns of 0 and 1; signals and pictures of fractions by one number for all places; targets of
    a regression if they are far from it themselves. Not: pictures of bytes, tokens, custom tasks, federations whose
    truth is known in the units they come in, and features that were scaled before.

    Args:
        wanted: True: scale all that can be and was not, far or not. False: scale nothing.
        targets: whether targets may be scaled; who judges by an objective of their own has its units there.

    >>> from apiece.data import from_rows
    >>> rows = np.array([[60.0, 1.0], [70.0, 0.0], [80.0, 1.0]])
    >>> f = from_rows(rows, np.zeros(3), np.zeros(3, int), features=("age", "smokes"), shares=(1, 0, 0))
    >>> found = find_unit_scale(f)
    >>> found.scaling.mean.tolist(), found.scaling.spread.round(2).tolist()
    ([70.0, 0.0], [8.16, 1.0])
    >>> print(found.notes[0].partition(";")[0])
    features far from unit scale (means up to 70, spreads 8.16 to 8.16): 'age'
    """
    if wanted is False or federation.task == "custom" or (wanted is None and federation.truth):
        return None
    shape, notes = federation.train.x.shape[1:], []
    scaling = Scaling(np.zeros(shape), np.ones(shape))
    if (features := _features(federation, wanted)) is not None:
        scaling, note = features
        notes.append(note)
    if targets and federation.task == "regression" and (target := _targets(federation, wanted)) is not None:
        mean, spread = target
        scaling = Scaling(scaling.mean, scaling.spread, mean, spread)
        notes.append(f"targets have mean {mean:.3g} and spread {spread:.3g}: models are trained on them at mean 0 and "
                     f"spread 1, and all results are in their own units")  # fmt: skip
    return UnitScale(scaling, tuple(notes)) if notes else None


def scale_warnings(federation: Federation, then: str = "training may crawl or diverge") -> list[str]:
    """What is far from unit scale, and what comes of it.

    >>> from apiece.data import from_rows
    >>> f = from_rows(np.array([[60.0], [70.0], [80.0]]), np.zeros(3), np.zeros(3, int), features=("age",))
    >>> print(scale_warnings(f)[0].split(";")[0])
    features far from unit scale (means up to 60, spreads 0 to 0): 'age'
    """
    if federation.task == "custom" or _scaled_before(federation) or federation.train.x.dtype.kind != "f":
        return []
    mean, spread, bits = _measured(federation)
    far = is_far(mean, spread) & ~bits
    return [f"{_told(federation, mean, spread, far)}; {then}"] if far.any() else []


def _features(federation: Federation, wanted: bool | None) -> tuple[Scaling, str] | None:
    if federation.train.x.dtype.kind != "f" or _scaled_before(federation):
        return None
    mean, spread, bits = _measured(federation)
    far = is_far(mean, spread) & ~bits
    if not (far.any() or wanted) or bits.all():
        return None
    moved = "given mean 0 and spread 1 over all training examples"
    note = f"{_told(federation, mean, spread, far)}; features were {moved}" if far.any() else f"features were {moved}"
    note += f", but for {bits.sum()} of 0 and 1" if bits.any() else ""
    mean, spread = np.where(bits, 0.0, mean), np.where(bits | (spread == 0), 1.0, spread)
    return Scaling(mean, spread), note + " (standardize = false leaves them as they are)"


def _measured(federation: Federation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, spread, whether its values are 0 and 1 alone) of each feature; one spread for all places of a signal."""
    x, offsets = federation.train.x, federation.train.offsets
    mean, spread = federation.scales()
    bits = np.asarray(statistics.ask_rows(x, offsets)(statistics.COUNT_NO_BITS)) == 0
    if x.ndim > 2:
        # What hardly ever speaks, such as the edge of a picture, stays soft.
        spread, bits = np.full_like(spread, np.sqrt(np.square(spread).mean())), np.full_like(bits, bits.all())
    return mean, spread, bits


def _targets(federation: Federation, wanted: bool | None) -> tuple[float, float] | None:
    if federation.scaling is not None and federation.scaling.of_targets:
        return None
    y = federation.train.y.reshape(federation.train.rows, -1)
    means, spreads = statistics.mean_and_spread(statistics.ask_rows(y, federation.train.offsets))
    mean = means.mean()  # one number for all, where a target has several
    spread = np.sqrt((np.square(spreads) + np.square(means - mean)).mean())
    if not wanted and not is_far(mean, spread):
        return None
    return float(mean), float(spread) if spread > 0 else 1.0


def is_far(mean: Any, spread: Any) -> Any:
    """Whether numbers of this mean and spread are far from unit scale.

    >>> bool(is_far(70.0, 8.0)), bool(is_far(0.1, 1.2))
    (True, False)
    """
    return (np.maximum(np.abs(mean), spread) > FAR) | ((spread > 0) & (spread < 1 / FAR))


def _scaled_before(federation: Federation) -> bool:
    done = federation.scaling
    return done is not None and bool(np.any(done.mean != 0) or np.any(done.spread != 1))


def _told(federation: Federation, mean: np.ndarray, spread: np.ndarray, far: np.ndarray) -> str:
    large, least, most = np.abs(mean[far]).max(), spread[far].min(), spread[far].max()
    sizes = f"features far from unit scale (means up to {large:.3g}, spreads {least:.3g} to {most:.3g})"
    return f"{sizes}: {_names(federation.features, far)}" if far.ndim == 1 else sizes


def _names(features: Sequence[str], far: np.ndarray) -> str:
    names = [f"'{features[k]}'" if features else f"number {k}" for k in np.flatnonzero(far).tolist()]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
