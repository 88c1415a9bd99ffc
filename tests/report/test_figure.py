"""Figures: what a page and a PNG show of the same numbers."""

import json
import re

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.report import figure_page
from apiece.report.figure import Figure, Line, Panel, checked, scales, shown
from apiece.report.figure_page import Grid, render, write_figure
from apiece.report.look import COLOURS
from apiece.report.plots import panel_plot

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


def plots_of(page):
    return json.loads(re.search(r'id="data-plots">(.*?)</script>', page, re.DOTALL).group(1))


def source_of(plots, name):
    """The columns of a source by its name, wherever it is in the description."""
    if isinstance(plots, dict):
        if plots.get("name") == "ColumnDataSource" and plots.get("attributes", {}).get("name") == name:
            return dict(plots["attributes"]["data"]["entries"])
        plots = list(plots.values())
    found = (source_of(one, name) for one in plots) if isinstance(plots, list) else ()
    return next((one for one in found if one is not None), None)


def test_the_page_holds_every_number_and_escapes_every_name():
    page = render(FIGURE, [Grid("Verdict", ("claim", "ours"), [["x > y", "1"]])])
    plots = plots_of(page)
    assert source_of(plots, "panel0-0")["y"] == (X**2).tolist()
    assert source_of(plots, "panel0-1")["high"] == (2 * X).tolist()
    assert source_of(plots, "panel1-0")["y"] == [1.0]  # the other is no number
    assert "<script>alert" not in render(FIGURE._replace(title="<script>alert(1)</script>"))
    evil = FIGURE._replace(panels=[Panel("", "x", "y", [Line("</script><script>alert(1)", [0], [1])])])
    assert "</script><script>alert" not in render(evil)
    assert "a &lt; b" in page and "x &gt; y" in page and "Risk &amp; reward" in page


def test_the_page_needs_no_network():
    page = render(FIGURE)
    assert "default-src 'none'" in page and "unsafe-eval" not in page
    assert not re.search(r'(src|href)="', re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))


def test_dots_have_whiskers_and_lines_have_bands():
    plot = panel_plot("p", checked(FIGURE).panels[0])
    assert [layer.__class__.__name__ for layer in plot.center].count("Whisker") == 1
    band = checked(Figure("", "", [Panel("", "x", "y", [Line("a", X, X, low=X, high=2 * X)])])).panels[0]
    assert [one.glyph.__class__.__name__ for one in panel_plot("p", band).renderers] == ["VArea", "Line", "Scatter"]


def test_what_a_logarithm_cannot_show_is_left_out():
    lines = [Line("a", [1, 2, 3], [0.0, 1.0, -1.0])]
    panel = checked(Figure("", "", [Panel("", "x", "y", lines, log_y=True)])).panels[0]
    assert shown(panel.lines[0], panel).tolist() == [False, True, False]


def test_whiskers_count_for_the_scale():
    _, (low, high) = scales(checked(FIGURE).panels[0])
    assert low < 0.5 and high > 1e4


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
    """Two series of one colour must not look alike."""
    many = [Line(f"series {k}", [float(k)], [1.0 + k], kind="dots", style=k) for k in range(len(COLOURS) + 1)]
    plot = panel_plot("many", checked(Figure("", "", [Panel("", "x", "y", many)])).panels[0])
    first, last = plot.renderers[0].glyph, plot.renderers[-1].glyph
    assert first.line_color == last.line_color and first.fill_color != last.fill_color
