"""Figures: what a page and a PNG show of the same numbers."""

import json
import re

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.report import figure_page
from apiece.report.figure import Figure, Line, Panel, checked, scales, shown
from apiece.report.figure_page import Grid, render, write_figure
from apiece.report.panel import panel_svg
from apiece.report.svg import COLOURS

X = np.array([1.0, 10.0, 100.0])
FIGURE = Figure(
    "Risk & reward",
    "A caption.",
    [
        Panel("Left", "n", "risk", [Line("a < b", X, X**2), Line("seen", X, X, low=X / 2, high=2 * X, kind="dots")],
              log_x=True, log_y=True),
        Panel("", "t (s)", "error", [Line("alone", [0, 1], [1, np.nan])]),
    ],
)  # fmt: skip


def numbers_of(page):
    return json.loads(re.search(r'id="numbers">(.*?)</script>', page, re.DOTALL).group(1))


def test_the_page_holds_every_number_and_escapes_every_name():
    page = render(FIGURE, [Grid("Verdict", ("claim", "ours"), [["x > y", "1"]])])
    left, right = numbers_of(page)
    assert left["lines"][0] == {"name": "a < b", "x": X.tolist(), "y": (X**2).tolist(), "low": None, "high": None}
    assert left["lines"][1]["high"] == (2 * X).tolist()
    assert right["lines"][0]["y"] == [1.0, None]
    assert "<script>alert" not in render(FIGURE._replace(title="<script>alert(1)</script>"))
    evil = FIGURE._replace(panels=[Panel("", "x", "y", [Line("</script><script>alert(1)", [0], [1])])])
    assert "</script><script>alert" not in render(evil)
    assert "a &lt; b" in page and "x &gt; y" in page and "Risk &amp; reward" in page


def test_the_page_needs_no_network():
    page = render(FIGURE)
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", page)
    assert "default-src 'none'" in page


def test_dots_have_whiskers_and_lines_have_bands():
    figure = checked(FIGURE)
    svg = panel_svg("p", figure.panels[0])
    assert svg.count("<circle") == 3 + 1  # three measurements and their mark in the legend
    assert svg.count("<polyline") == 1
    band = checked(Figure("", "", [Panel("", "x", "y", [Line("a", X, X, low=X, high=2 * X)])])).panels[0]
    assert panel_svg("p", band).count("<polygon") == 1


def test_what_a_logarithm_cannot_show_is_left_out():
    panel = checked(Figure("", "", [Panel("", "x", "y", [Line("a", [1, 2, 3], [0.0, 1.0, -1.0])], log_y=True)])).panels[
        0
    ]
    assert shown(panel.lines[0], panel).tolist() == [False, True, False]
    assert "nan" not in panel_svg("p", panel)


def test_both_drawers_share_their_scales():
    panel = checked(FIGURE).panels[0]
    one, other = scales(panel, (0.0, 1.0), (0.0, 1.0)), scales(panel, (5.0, 9.0), (3.0, 2.0))
    assert [(axis.low, axis.high, axis.log) for axis in one] == [(axis.low, axis.high, axis.log) for axis in other]
    assert one[1].low < 0.5 and one[1].high > 1e4  # whiskers count


def test_a_png_is_drawn_where_matplotlib_is(tmp_path):
    pytest.importorskip("matplotlib")
    page, image = write_figure(FIGURE, tmp_path, "risk")
    assert page.name == "risk.html" and image.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_the_page_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(figure_page, "can_draw_png", lambda: False)
    assert [file.name for file in write_figure(FIGURE, tmp_path)] == ["figure.html"]


@pytest.mark.parametrize(
    ("line", "said"),
    [(Line("a", [1, 2], [1]), "2 places and 1 values"), (Line("a", [1], [1], kind="bars"), "kind 'bars'")],
)
def test_a_mistake_in_a_figure_names_the_line(line, said):
    with pytest.raises(UserError, match=said):
        render(Figure("", "", [Panel("p", "x", "y", [line])]))


def test_dots_are_hollow_once_all_colours_are_used():
    """Two series of one colour must not look alike, in the picture and in its legend."""
    many = [Line(f"series {k}", [float(k)], [1.0 + k], kind="dots", style=k) for k in range(len(COLOURS) + 1)]
    drawn = str(panel_svg("many", checked(Figure("", "", [Panel("", "x", "y", many)])).panels[0]))
    first = f'fill="{COLOURS[0]}"'
    assert drawn.count(first) == 2 and drawn.count('fill="none"') >= 2
    assert f'fill="none" stroke="{COLOURS[0]}"' in drawn
