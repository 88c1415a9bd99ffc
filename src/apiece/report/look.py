"""What all pictures share: colours that everybody can tell apart, dashes, marks, and names that fit."""

import re

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

INK, SOFT, GRID = "#1a1a1a", "#595959", "#dddddd"
# Okabe and Ito's colours, told apart by every kind of colour vision; the yellow is left out, too pale on white, and
# there is grey and not black, so that it can be seen on a dark ground, too. Comparisons have more methods than these:
# four more, which stay apart from all others for every kind of colour vision (a test has the distances).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A",
           "#8B3DF5", "#7A4A20", "#88BB44", "#C2185B")  # fmt: skip
DASHES = ("", "7 3", "2 3", "9 3 2 3")
MARKS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """The text without the characters that no HTML file may hold: control codes, halves of pairs.

    >>> clean("a\\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def shortened(text: str, most: int = 40) -> str:
    """The text, or its beginning: names are the user's, and a picture has only so much room.

    >>> shortened("a" * 50, 5)
    'aaaa…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def thinned(values: NDArray, most: int) -> NDArray:
    """Which of many values to show: all, or every so-many-th in their order, from the least to the largest.

    >>> thinned(np.array([3.0, 1.0, 2.0]), 10).tolist()
    [0, 1, 2]
    >>> len(thinned(np.random.default_rng(0).normal(size=20_000), 400))
    400
    """
    if values.size <= most:
        return np.arange(values.size)
    return np.argsort(values, kind="stable")[np.linspace(0, values.size - 1, most).astype(int)]


def look(style: int) -> tuple[str, str]:
    """Colour and dash: both change from one method to the next, so that neither is needed; 44 pairs differ.

    >>> len({look(style) for style in range(44)})
    44
    """
    return COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)]


def mark(style: int) -> tuple[str, bool]:
    """The form of a measurement, and whether it is hollow: every other time that all colours are used.

    >>> len({(look(style)[0], *mark(style)) for style in range(44)})
    44
    """
    turn = style // len(COLOURS)
    return MARKS[(style + turn // 2) % len(MARKS)], turn % 2 == 1


def key(style: int) -> Markup:
    """A piece of a method's line, to stand before its name.

    >>> key(1)
    Markup('<span class="key" style="background:repeating-linear-gradient(90deg,#D55E00 0 7px,#fff0 7px 10px)"></span>')
    """
    colour, dash = look(style)
    stops, at = [], 0
    for k, length in enumerate(map(int, dash.split())):
        stops.append(f"{'#fff0' if k % 2 else colour} {at or 0}{'px' * bool(at)} {at + length}px")
        at += length
    paint = f"repeating-linear-gradient(90deg,{','.join(stops)})" if stops else colour
    return Markup(f'<span class="key" style="background:{paint}"></span>')
