"""What a cell of a table holds: nothing, a number, or a word."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# What tables write into cells that hold nothing; as they are spelled, for "Na" is sodium and "none" an answer.
MISSING = frozenset(["", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "NaT", "NULL", "null"])
DECIMALS = (".", ",")
_BLANK = r"[\s\u00ad\u180e\u200b-\u200f\u2060\ufeff]"  # no-break and thin spaces are \s; the others only look so
_AROUND = re.compile(rf"^{_BLANK}+|{_BLANK}+$")
_DRESS = re.compile(r"[$€£¥%'\s]")


def of_each(function: Callable[[Any], Any], cells: Sequence[Any]) -> list[Any]:
    """A function of every cell, computed once for those that are equal: columns hold few different words.

    >>> of_each(str.upper, ["a", "b", "a"])
    ['A', 'B', 'A']
    """
    try:
        known = {cell: function(cell) for cell in set(cells)}
    except TypeError:  # lists have no hash
        return [function(cell) for cell in cells]
    return [known[cell] for cell in cells]


def strip_blanks(text: str) -> str:
    """A text without the blanks around it, also those that only look like nothing.

    >>> strip_blanks(" c1\\u00a0"), strip_blanks("\\ufeffnew york")
    ('c1', 'new york')
    """
    return _AROUND.sub("", text)


def without_blanks(text: str) -> str:
    """A text without any blanks.

    >>> without_blanks("new york ")
    'newyork'
    """
    return re.sub(_BLANK, "", text)


def is_blank(cell: object) -> bool:
    """Whether a cell is empty.

    >>> is_blank(" "), is_blank(None), is_blank("NA")
    (True, True, False)
    """
    return cell is None or (isinstance(cell, str) and not strip_blanks(cell))


def is_missing(cell: object) -> bool:
    """Whether a cell is empty, or holds a word that says so.

    >>> is_missing(" "), is_missing("NA"), is_missing(float("nan")), is_missing("0"), is_missing("none")
    (True, True, True, False, False)
    """
    if isinstance(cell, str):
        return strip_blanks(cell) in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def number_of(cell: object, decimal: str = ".") -> float | None:
    """The number in a cell (NaN if it is missing), or None if there is none.

    >>> number_of("-1e3"), number_of(""), number_of("1_000"), number_of("x"), number_of("3,5", ",")
    (-1000.0, nan, None, None, 3.5)
    """
    if is_missing(cell):
        return math.nan
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell)
    text = str(cell)
    if "_" in text or (decimal != "." and "." in text):  # Python reads 1_000; and 1.234 with decimal commas may be 1234
        return None
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None


def is_number(cell: object, decimal: str = ".") -> bool:
    """Whether a cell is a number or missing.

    >>> is_number("-1e3"), is_number("NA"), is_number("x")
    (True, True, False)
    """
    return number_of(cell, decimal) is not None


def is_nearly_number(cell: object) -> bool:
    """Whether a cell would be a number in other dress: a decimal comma, commas between thousands, "%", "$".

    >>> is_nearly_number("3,5"), is_nearly_number("1,234,567"), is_nearly_number("45 %"), is_nearly_number("3 rooms")
    (True, True, True, False)
    """
    bare = _DRESS.sub("", str(cell))
    forms = [bare.replace(",", "."), bare.replace(",", "")] + [bare.replace(".", "").replace(",", ".")] * ("," in bare)
    return any(character.isdigit() for character in bare) and any(map(is_number, forms))


def empty_cells(values: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """A column with nothing where one of the words stood: NaN among numbers, None among texts.

    >>> empty_cells(np.array([31, -999]), ["-999"]).tolist(), empty_cells(np.array(["31", "?"], object), ["?"]).tolist()
    ([31.0, nan], ['31', None])
    """
    numbers = [number for word in words if (number := number_of(word)) is not None and not math.isnan(number)]
    if values.dtype.kind in "iuf":
        gone = np.isin(values, numbers)
        return np.where(gone, np.nan, values.astype(np.float64)) if gone.any() else values
    if values.dtype.kind not in "SUO" or values.ndim != 1:
        return values
    known = {cell: _is_word(cell, words, numbers) for cell in set(values.tolist()) if isinstance(cell, str | bytes)}
    cells = [None if isinstance(cell, str | bytes) and known[cell] else cell for cell in values.tolist()]
    emptied = np.empty(len(cells), object)
    emptied[:] = cells
    return emptied


def _is_word(cell: str | bytes, words: Sequence[str], numbers: Sequence[float]) -> bool:
    text = strip_blanks(cell if isinstance(cell, str) else cell.decode("utf-8", "replace"))
    return text in words or number_of(text) in numbers
