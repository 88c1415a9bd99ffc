"""What all sites agree on before the first round: columns, classes, fills and scales, from pooled answers alone.

The server asks for a survey: names, kinds, words, counts and sums (`SiteRows.survey`). Gaps are filled with medians, by
counts of "at most"; scales come from sums. What comes out is published with the spec, and its hash is in every letter.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from apiece.data import statistics
from apiece.data.encoding import Encoding, Levels, Numbers
from apiece.data.scaling import Scaling
from apiece.data.unit_scale import is_far
from apiece.errors import UserError
from apiece.protocol import Question, Tree

Surveys = Mapping[int, dict[str, Any]]
Measure = Callable[[str, str, Any, Mapping[str, Any] | None], Tree]  # (question, of what, message, rules) -> pooled

MEASURES: dict[str, Question] = {
    "count_and_sum": statistics.COUNT_AND_SUM,
    "squared_distances": statistics.SQUARED_DISTANCES,
    "count_no_bits": statistics.COUNT_NO_BITS,
    "count_at_most": statistics.COUNT_AT_MOST,
}


class Agreed(NamedTuple):
    """The rules for everybody's rows."""

    task: str
    classes: tuple[str, ...]
    encoding: Encoding
    scaling: Scaling | None
    notes: tuple[str, ...]


def agree_on(surveys: Surveys, names: Sequence[str], label: str, measure: Measure, scale: bool | None) -> Agreed:
    """The rules that fit all sites, or a `UserError` that says which site has what.

    Args:
        surveys: by client number. names: of the sites. label: the column of the target. measure: asks all sites.
        scale: whether features are brought to unit scale; None: if they are far from it.
    """
    task, classes = _target(surveys, names)
    columns = _columns(surveys, names)
    rules = tuple(_rule(name, surveys) for name in columns)
    dtypes = {one["columns"][name].get("dtype", "float32") for one in surveys.values() for name in columns}
    dtype = "uint8" if dtypes == {"uint8"} else "float32"
    encoding = Encoding(columns=rules, dtype=dtype, label=label, others=(label,))
    encoding = encoding.model_copy(update={"columns": tuple(_filled(rule, surveys, measure) for rule in rules)})
    scaling, notes = _scaling(surveys, encoding, task, measure, scale)
    return Agreed(task, classes, encoding, scaling, notes)


def _target(surveys: Surveys, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    kinds = {i: one["label"]["kind"] for i, one in surveys.items()}
    if "words" in kinds.values() and "numbers" in kinds.values():
        one, other = (next(i for i, kind in kinds.items() if kind == wanted) for wanted in ("words", "numbers"))
        raise UserError(f"the label is a word at '{names[one]}' and a number with decimals at '{names[other]}': name "
                        "the same column under 'label' at both")  # fmt: skip
    if "numbers" in kinds.values():
        return "regression", ()
    orders = {tuple(one["order"]) for one in surveys.values()}
    if len(orders) == 1 and (order := orders.pop()):
        return "classification", order
    found = {name for one in surveys.values() for part in one["label"]["counts"].values() for name in part}
    if len(found) < 2:
        raise UserError(f"all labels of all sites are {sorted(found)}; there is nothing to tell apart")
    number = all(name.lstrip("-").isdigit() for name in found)
    return "classification", tuple(sorted(found, key=int) if number else sorted(found))


def _columns(surveys: Surveys, names: Sequence[str]) -> list[str]:
    """The columns of the first site, if all others have the same ones of the same kinds."""
    (first, told), *others = surveys.items()
    for i, one in others:
        for name in [*told["columns"], *one["columns"]]:
            mine, theirs = one["columns"].get(name), told["columns"].get(name)
            if mine is None or theirs is None:
                has, lacks = (first, i) if mine is None else (i, first)
                raise UserError(f"'{names[has]}' has a column '{name}', and '{names[lacks]}' has none: exclude it at "
                                f"'{names[has]}', or add it at '{names[lacks]}'")  # fmt: skip
            if mine["kind"] != theirs["kind"]:
                raise UserError(f"column '{name}' holds {theirs['kind']} at '{names[first]}' and {mine['kind']} at "
                                f"'{names[i]}': mend it, or name it under 'categorical' at both")  # fmt: skip
            if mine.get("shape") != theirs.get("shape"):
                raise UserError(f"an example of '{name}' has shape {theirs['shape']} at '{names[first]}' and "
                                f"{mine['shape']} at '{names[i]}'")  # fmt: skip
    return list(told["columns"])


def _rule(name: str, surveys: Surveys) -> Numbers | Levels:
    told = [one["columns"][name] for one in surveys.values()]
    if told[0]["kind"] == "words":
        return Levels(name=name, levels=tuple(sorted({level for one in told for level in one["levels"]})))
    return Numbers(name=name, shape=tuple(told[0]["shape"]))


def _filled(rule: Numbers | Levels, surveys: Surveys, measure: Measure) -> Numbers | Levels:
    """The rule with what stands in for gaps: the median of the column over all sites."""
    told = [one["columns"][rule.name] for one in surveys.values()]
    if isinstance(rule, Levels) or not any(one["gaps"] for one in told):
        return rule
    ask = lambda question, message=(): measure(_name_of(question), rule.name, message, None)
    middle = pooled_medians(ask)
    if np.isnan(middle).any():
        raise UserError(f"column '{rule.name}' is missing in all training rows of all sites; exclude it")
    marked = any(one["gaps_in_training"] for one in told)
    width = len(middle)
    return rule.model_copy(update={"fill": tuple(middle.tolist()), "marked": (marked,) * width})


def pooled_medians(ask: statistics.Ask) -> np.ndarray:
    """The medians of several features at once: one count of each per bit of a float32.

    >>> pooled_medians(statistics.ask_rows(np.array([[5.0, 1.0], [np.nan, 2.0], [1.0, 4.0]], np.float32))).tolist()
    [3.0, 2.0]
    """
    count = np.asarray(ask(statistics.COUNT_AND_SUM)[0], np.int64)

    def smallest(k: np.ndarray) -> np.ndarray:
        largest = int(np.float32(np.inf).view(np.int32))
        low, high = np.full(len(k), -largest, np.int64), np.full(len(k), largest, np.int64)
        while (low < high).any():
            middle = (low + high) // 2
            enough = np.asarray(ask(statistics.COUNT_AT_MOST, statistics.float_at(middle))) >= k
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        return statistics.float_at(low).astype(np.float64)

    lower = smallest((count + 1) // 2)
    upper = lower if (count % 2 == 1).all() else smallest(count // 2 + 1)
    return np.where(count > 0, (lower + upper) / 2, np.nan)


def _scaling(
    surveys: Surveys, encoding: Encoding, task: str, measure: Measure, wanted: bool | None
) -> tuple[Scaling | None, tuple[str, ...]]:
    """Mean 0 and spread 1 where features, or targets, are far from it."""
    if wanted is False:
        return None, ()
    notes: list[str] = []
    scaling = None
    if encoding.dtype == "float32":
        rules = encoding.as_dict()
        ask = lambda question, message=(): measure(_name_of(question), "features", message, rules)
        mean, spread = statistics.mean_and_spread(ask)
        bits = np.asarray(ask(statistics.COUNT_NO_BITS)) == 0
        far = is_far(mean, spread) & ~bits
        if (far.any() or wanted) and not bits.all():
            mean, spread = np.where(bits, 0.0, mean), np.where(bits | (spread == 0), 1.0, spread)
            scaling = Scaling(mean, spread)
            notes.append("features were given mean 0 and spread 1 over all sites' training examples")
    if task == "regression":
        count = sum(one["sizes"]["train"] for one in surveys.values())
        total, square = np.sum([one["label"]["sums"]["train"] for one in surveys.values()], axis=0)
        middle, width = float(total / count), float(np.sqrt(max(square / count - (total / count) ** 2, 0.0)))
        if wanted or is_far(middle, width):
            plain = scaling or Scaling(np.zeros(1), np.ones(1))
            scaling = Scaling(plain.mean, plain.spread, middle, width or 1.0)
            notes.append(f"targets have mean {middle:.3g} and spread {width:.3g}; results are in their own units")
    return scaling, tuple(notes)


def _name_of(question: Question) -> str:
    return next(name for name, known in MEASURES.items() if known is question)
