"""How numbers are written: a missing one is a dash, a sign is a real minus, digits end where the interval begins."""

import math
from typing import Any

from apiece.evaluate import Interval

DASH = "–"
READ = 5  # significant digits of a number that a person reads, however narrow its interval is


def known(value: Any) -> bool:
    """Whether there is a number: JSON has null where a method diverged, Parquet has NaN.

    >>> known(0.5), known(None), known(float("nan"))
    (True, False, False)
    """
    return value is not None and math.isfinite(value)


def number(value: Any, digits: int = 3, sign: bool = False) -> str:
    """A number to so many significant digits, with thousands apart.

    >>> number(1234567), number(0.012345), number(-2.5, sign=True), number(None), number(3e-9)
    ('1,234,567', '0.0123', '−2.5', '–', '3e−9')
    """
    if not known(value):
        return DASH
    if value and not 1e-4 <= abs(value) < 1e12:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return _typeset(f"{mantissa}e{int(exponent)}", sign and value > 0)
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{places}f}"
    return _typeset(text.rstrip("0").rstrip(".") if "." in text else text, sign and value > 0)


def fixed(value: Any, places: int = 1, sign: bool = False) -> str:
    """A number to so many places after the point, so that a column lines up.

    >>> fixed(12.34), fixed(-0.04), fixed(3, sign=True), fixed(None)
    ('12.3', '0.0', '+3.0', '–')
    """
    if not known(value):
        return DASH
    if abs(value) >= 1e6:  # lining up no longer matters
        return number(value, sign=sign)
    value = round(value, places) + 0.0  # no "minus zero"
    return _typeset(f"{value:,.{places}f}", sign and value > 0)


def places_for(half_width: Any, value: Any) -> int:
    """Places after the point that show two digits of the half width, or four of the value if there is none.

    No more than five digits of the value, which is what a person reads.

    >>> places_for(0.0123, 5.0), places_for(None, 0.5), places_for(120.0, 5000.0), places_for(0.000018, 340.440886)
    (3, 4, 0, 2)
    """
    wide = known(half_width) and half_width > 0
    size, digits = (half_width, 2) if wide else (value, 4)
    if not known(size) or size == 0:
        return 3
    places = digits - 1 - math.floor(math.log10(abs(size)))
    most = READ - 1 - math.floor(math.log10(abs(value))) if known(value) and value else 8
    return max(0, min(places, most, 8))


def plus_minus(
    interval: Interval | None, factor: float = 1.0, places: int | None = None, sign: bool = False, brief: bool = False
) -> str:
    """A mean over seeds with the half width of its interval, if it has one; `brief` where there is little room.

    >>> plus_minus(Interval(0.964, 0.9551, 0.9729, 0.0089), 100, 1), plus_minus(Interval(0.5, *[math.nan] * 3), 100, 1)
    ('96.4 ± 0.9', '50.0')
    >>> wide = Interval(72.2, 37.0, 107.4, 35.2)
    >>> plus_minus(wide, places=1), plus_minus(wide, places=1, brief=True)
    ('72.2 ± 35.2', '72.2 ±35')
    """
    if interval is None or not known(interval.mean):
        return DASH
    mean, half = factor * interval.mean, factor * interval.half_width
    if places is None and 0 < abs(mean) < 1e-4:  # too many zeros to count
        text, around = number(mean, sign=sign), number(half, 2)
    else:
        places = places_for(half, mean) if places is None else places
        text, around = fixed(mean, places, sign), fixed(half, 0 if brief and half >= 10 else places)
    text += (f" ±{around}" if brief else f" ± {around}") * known(half)
    return text.replace("−", "-") if brief else text  # not every terminal has a real minus


def percent(share: Any, places: int = 0) -> str:
    """A share as a percentage; one that is small but not zero says so.

    >>> percent(0.027), percent(0.0024), percent(0), percent(None)
    ('3 %', '0.2 %', '0 %', '–')
    """
    if not known(share):
        return DASH
    if 0 < abs(share) < 0.0005:
        return "below 0.1 %"
    return f"{fixed(100 * share, 1 if 0 < share < 0.01 else places)} %"


def span(low: Any, high: Any) -> str:
    """An interval of shares, in percent.

    >>> span(1.7e-10, 0.134), span(0, 0), span(None, None)
    ('0–13 %', '0–0 %', '')
    """
    if not (known(low) and known(high)):
        return ""
    ends = [fixed(100 * share, 1 if 0.0005 <= share < 0.01 else 0) for share in (low, high)]
    return f"{ends[0]}–{ends[1]} %"


def size(count: Any) -> str:
    """Bytes in the unit that fits (a megabyte is 10^6 bytes).

    >>> size(0), size(2600), size(1.3e6), size(None)
    ('0', '2.6 kB', '1.3 MB', '–')
    """
    if not known(count):
        return DASH
    for unit, bytes_in in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_in:
            return f"{number(count / bytes_in)} {unit}"
    return f"{number(count)} B" if count else "0"


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "client"), counted(20000, "client")
    ('1 client', '20,000 clients')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    """Words in a row, as in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _typeset(text: str, plus: Any) -> str:
    return ("+" if plus else "") + text.replace("-", "−")
