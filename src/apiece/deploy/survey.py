"""What a site may tell of its rows before the first round; anything else is refused, with the site's name.

The server trusts no site: what comes is bytes. A survey that is none ends in an error that names the site and the key,
before anything is computed of it.
"""

import json
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from apiece.data.splits import SPLITS
from apiece.errors import UserError

Count = Annotated[int, pydantic.Field(ge=0, lt=2**31, strict=True)]
Number = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Word = Annotated[str, pydantic.Field(max_length=1000)]
DTYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
)


class _Table(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class ColumnTold(_Table):
    """A column: words and which, or numbers and of what shape; whether cells are missing."""

    kind: Literal["words", "numbers"]
    levels: list[Word] = pydantic.Field([], max_length=1000)
    shape: list[Annotated[int, pydantic.Field(ge=1, lt=2**24)]] = pydantic.Field([], max_length=8)
    dtype: str = "float32"
    gaps: bool = False
    gaps_in_training: bool = False

    @pydantic.field_validator("dtype")
    @classmethod
    def _known(cls, dtype: str) -> str:
        if dtype not in DTYPES:
            raise ValueError(f"'{dtype}' is no type of numbers")
        return dtype


class LabelTold(_Table):
    """The target: words, whole numbers or others; by part how many of each, or (sum, squares)."""

    kind: Literal["words", "whole", "numbers"]
    counts: dict[str, dict[Word, Count]] = {}
    sums: dict[str, tuple[Number, Number]] = {}


class Survey(_Table):
    """All that a site tells before the first round."""

    name: Word
    label_column: Word = ""
    columns: dict[Word, ColumnTold] = pydantic.Field(min_length=1, max_length=100_000)
    order: list[Word] = []
    sizes: dict[str, Count]
    label: LabelTold

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "Survey":
        label = self.label
        tables: dict[str, Any] = {"sizes": self.sizes}
        tables |= {} if label.kind == "numbers" else {"label.counts": label.counts}
        tables |= {} if label.kind == "words" else {"label.sums": label.sums}
        for name, found in tables.items():
            if set(found) != set(SPLITS):
                raise ValueError(f"'{name}' is of {sorted(found)}, not of {', '.join(SPLITS)}")
        if not self.sizes["train"]:
            raise ValueError("there are no training rows")
        for part, size in self.sizes.items():
            if label.kind != "numbers" and sum(label.counts[part].values()) != size:
                raise ValueError(f"the classes of '{part}' do not add up to its {size} rows")
            if label.kind != "words":
                total, square = label.sums[part]
                if square < total * total / max(size, 1) * (1 - 1e-6) - 1e-9:
                    raise ValueError(f"no {size} numbers have the sum and squares that 'label' tells of '{part}'")
        return self


def read_survey(body: bytes, name: str) -> dict[str, Any]:
    """The survey of the site called so, as plain values; a `UserError` if it is none.

    >>> try: read_survey(b"[]", "north")
    ... except UserError as error: print(error)
    the survey of 'north' cannot be read: it is no table
    """
    try:
        told = json.loads(body)
        if not isinstance(told, dict):
            raise ValueError("it is no table")
        survey = Survey.model_validate(told)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise UserError(f"the survey of '{name}' cannot be read, at '{where:.80}': {first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"the survey of '{name}' cannot be read: {error}") from None
    if survey.name != name:
        raise UserError(f"the key of '{name}' is used by a site that calls itself '{survey.name}': mend roster.toml or "
                        "site.toml")  # fmt: skip
    return survey.model_dump(mode="json")


def read_measure(body: bytes, name: str) -> list[np.ndarray]:
    """The numbers that the site called so answers; a `UserError` if they are none.

    >>> read_measure(b"[[3], [1.5]]", "north")
    [array([3]), array([1.5])]
    """
    try:
        found = [np.asarray(one) for one in json.loads(body)]
        if not found or any(one.dtype.kind not in "iuf" for one in found):
            raise ValueError("it holds no numbers")
        if not all(np.isfinite(one).all() for one in found):
            raise ValueError("its numbers are not finite")
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise UserError(f"what '{name}' answers cannot be read: {error}") from None
    return found


def add_measures(answers: dict[str, list[np.ndarray]]) -> tuple[np.ndarray, ...]:
    """The sum of all sites' answers, by name of the site, if they are of one shape.

    >>> add_measures({"north": [np.array([1, 2])], "south": [np.array([3, 4])]})
    (array([4, 6]),)
    """
    (first, like), *others = answers.items()
    shapes = [one.shape for one in like]
    for name, found in others:
        if [one.shape for one in found] != shapes:
            raise UserError(f"'{name}' answers numbers of shape {[one.shape for one in found]}, and '{first}' of shape "
                            f"{shapes}: one of the two is not what it should be")  # fmt: skip
    return tuple(np.asarray(sum(parts[1:], start=parts[0])) for parts in zip(*answers.values(), strict=True))
