"""The server's picture of the federation: everybody's counts, and no example of anybody.

A `Federation` whose examples are zeros of the right shape and whose labels are stand-ins: as many of each class in each
part as the site told or, of numbers, with the same sum and the same squares. So all that makes a record of a run
(sizes, label skew, constants, scales of errors) works as for data at hand.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from apiece.data import Federation, Split
from apiece.data.splits import SPLITS
from apiece.deploy.agree import Agreed, Surveys
from apiece.deploy.rows import class_counts
from apiece.engines.remote.sums import numbers_with_sums
from apiece.experiment import build as setup
from apiece.experiment.spec import Spec


def stand_in_federation(name: str, ids: Sequence[str], surveys: Surveys, agreed: Agreed) -> Federation:
    """The federation that a server knows; `surveys` by client number, all of them."""
    shape, dtype = _example_shape(agreed), agreed.encoding.dtype
    parts: dict[str, Any] = {}
    for part in SPLITS:
        labels = [_labels(surveys[i], part, agreed) for i in range(len(ids))]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in labels])])
        x = np.broadcast_to(np.zeros((1, *shape), dtype), (int(offsets[-1]), *shape))
        parts[part] = Split(x, np.concatenate(labels), offsets)
    about: dict[str, Any] = dict(task=agreed.task, classes=agreed.classes, features=agreed.encoding.features)
    known: dict[str, Any] = dict(scaling=agreed.scaling, encoding=agreed.encoding, notes=agreed.notes)
    return Federation(name, np.array(ids), **parts, **about, **known)


def stand_in_arena(federation: Federation, spec: Spec) -> setup.Arena:
    """The arena of such a federation: nothing of it is ever computed on."""
    model, own = setup.model_and_objective(spec.model, federation)
    judge = own or setup.objective(model, federation.task)
    row = lambda values: values if len(values) else np.zeros((1, *values.shape[1:]), values.dtype)
    laid = lambda split: (row(split.x), row(split.y), split.offsets)
    x, y, offsets = laid(federation.train)
    splits = {part: laid(getattr(federation, part)) for part in ("validation", "test")}
    here: Any = dict(x=x, y=y, offsets=offsets, splits=splits, ids=federation.ids, population=federation.clients)
    return setup.Arena(federation=federation, model=model, objective=judge, own_outcomes=own is not None, **here)


def _example_shape(agreed: Agreed) -> tuple[int, ...]:
    encoding = agreed.encoding
    if encoding.whole:
        return tuple(encoding.columns[0].shape)  # type: ignore[union-attr]
    return (sum(len(column.features) for column in encoding.columns),)


def _labels(survey: dict[str, Any], part: str, agreed: Agreed) -> np.ndarray:
    if agreed.classes:
        counts = class_counts(survey, part, agreed.classes)
        return np.repeat(np.arange(len(agreed.classes), dtype=np.int32), counts)
    total, square = survey["label"]["sums"][part]
    values = numbers_with_sums(survey["sizes"][part], total, square)
    values = values if agreed.scaling is None else agreed.scaling.targets(values)
    return values.astype(np.float32)
