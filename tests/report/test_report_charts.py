"""The pictures: every client in its place, axes that hold for any numbers, a file that any viewer opens."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import fake_run
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.report import write_picture, write_report
from apiece.report.curves import Curve, curves_svg
from apiece.report.figure import Figure, Line, Panel, checked, scales
from apiece.report.gains import Strip, gains_svg
from apiece.report.panel import panel_svg
from apiece.report.pictures import curve_pictures, sizes_picture
from apiece.report.sizes import Series, sizes_svg
from apiece.report.story import read_story
from apiece.report.svg import axis_over, dot, key, look, tag

SVG = "{http://www.w3.org/2000/svg}"


def circles(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'<circle cx="([-\d.]+)"', svg)]


def test_the_picture_is_a_file_of_its_own_on_a_white_ground(tmp_path):
    fake_run(tmp_path, ids=["\x00\x1b", *(f"<{k}>" for k in range(11))])
    path = write_picture(tmp_path, tmp_path / "gains.svg")
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{SVG}svg"
    assert root.get("width") and root.get("height")
    ground = root.find(f"{SVG}rect")
    assert ground is not None and ground.get("fill") == "#ffffff"
    assert len(root.findall(f".//{SVG}circle")) == 2 * 12


def test_without_gains_there_is_no_picture(tmp_path):
    fake_run(tmp_path, methods=("local",))
    with pytest.raises(UserError, match="no gains to draw"):
        write_picture(tmp_path, tmp_path / "gains.svg")


def test_a_larger_gain_stands_farther_right():
    values = np.array([-3.0, 0.0, 2.0, 9.0])
    at = circles(gains_svg([Strip("a", values, str)]))
    assert len(at) == 4
    assert at == sorted(at)


def test_a_client_far_out_becomes_an_arrow_and_does_not_squeeze_the_others():
    values = np.append(np.linspace(-5, 5, 40), -1e6)
    svg = gains_svg([Strip("a", values, str)])
    assert "1 client farther out, to −1,000,000" in svg
    assert np.ptp(circles(svg)) > 300


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [np.nan], [5.0], [-5.0, np.nan], [1e-12], [1e300, -1e300]])
def test_odd_gains_can_be_drawn(values):
    svg = gains_svg([Strip("a", np.array(values, np.float64), str)], standalone=True)
    ElementTree.fromstring(svg)
    assert "nan" not in svg and "inf" not in svg


def test_many_clients_are_thinned():
    values = np.random.default_rng(0).normal(size=20_000)
    assert gains_svg([Strip("a", values, str)]).count("<circle") == 400
    series = Series("a", np.arange(1.0, 20_001.0), values, str)
    assert sizes_svg(series, series, "x", "y").count("<circle") <= 802
    assert len(curves_svg("a", [Curve("a", *[np.arange(1.0, 9001.0)] * 5, 0)], "x", "y")) < 40_000


@pytest.mark.parametrize("loss", [[np.nan, np.nan], [1.0, np.nan], [0.0, 0.0], [1e-9, 1e9], [-1.0, 1.0]])
def test_odd_curves_can_be_drawn(loss):
    x, y = np.array([1.0, 2.0]), np.array(loss)
    for at in (x, 0 * x):
        svg = curves_svg("a", [Curve("a", at, y, y, y, 0.1 + 0 * y, 3)], "x", "y")
        ElementTree.fromstring(svg)
        assert "nan" not in svg.replace("ends at", "")


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_ticks_lie_on_the_axis_and_are_few(low, width):
    axis = axis_over([low, low + width], 0, 100)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(-1e-6 <= at <= 100 + 1e-6 for at in axis(ticks))


@given(st.floats(1e-9, 1e9), st.floats(1, 1e9))
def test_logarithmic_ticks_lie_on_the_axis_and_are_few(low, times):
    axis = axis_over([low, low * times], 0, 100, log=True)
    assert 1 <= len(axis.ticks()) <= 8
    assert all(-1e-6 <= at <= 100 + 1e-6 for at in axis(axis.ticks()))


@given(st.text())
def test_any_text_makes_well_formed_markup(text):
    ElementTree.fromstring(tag("text", text, data_name=text))


def heights(svg: str) -> list[float]:
    """Of every polyline the pixels from its highest to its lowest point."""
    lines = [
        [float(pair.split(",")[1]) for pair in one.split()] for one in re.findall(r'<polyline points="([^"]*)', svg)
    ]
    return [max(line) - min(line) for line in lines]


def curve_of(name: str, loss: np.ndarray, style: int) -> Curve:
    return Curve(name, np.arange(1.0, len(loss) + 1), loss, 0.9 * loss, 1.1 * loss, 0 * loss, style)


@pytest.mark.parametrize("last", [1e13, np.nan], ids=["huge", "not a number"])
def test_a_diverged_curve_leaves_at_the_edge_and_does_not_squeeze_the_others(last):
    good = [curve_of(f"good{k}", 2.0 * 0.8 ** np.arange(10) + 0.1 * k, k) for k in range(2)]
    bad = curve_of("bad", np.append(2.0 * 20.0 ** np.arange(9), last), 2)
    svg = curves_svg("a", [*good, bad], "rounds", "loss")
    ElementTree.fromstring(svg)
    assert min(heights(svg)[:2]) > 80
    assert "outside: bad, to " in svg and "bad goes on" in svg
    assert "outside" not in curves_svg("a", good, "rounds", "loss")


def test_the_caption_names_the_curve_that_leaves_the_axis(tmp_path):
    fake_run(tmp_path)
    story = read_story(tmp_path)
    rounds = story.progress["ditto"]
    worse = rounds._replace(mean=rounds.mean * 1e9, least=rounds.least * 1e9, largest=rounds.largest * 1e9)
    first, _ = curve_pictures(story._replace(progress=story.progress | {"ditto": worse}))
    assert "Too far out for the axis, an arrow at its edge: ditto, to " in first.caption


def test_a_diverged_row_does_not_squeeze_the_gains_of_the_others():
    rows = [Strip(name, np.linspace(-5, 5, 20), str) for name in "ab"] + [Strip("c", np.linspace(-1e9, -1e7, 20), str)]
    svg = gains_svg(rows)
    assert np.ptp(circles(svg)) > 300 and len(circles(svg)) == 40
    assert "20 clients farther out" in svg


def test_a_client_far_out_does_not_squeeze_the_picture_of_sizes():
    sizes = np.arange(10.0, 50.0)
    score = np.where(sizes == 20, 1e8, sizes / 50)
    svg = sizes_svg(Series("a", sizes, score, str), None, "examples", "error")
    inside = [float(y) for y in re.findall(r'<circle cx="[-\d.]+" cy="([-\d.]+)" r="3.5"', svg)]
    assert np.ptp([y for y in inside if y > 0]) > 150 and "outside: a, to 100,000,000" in svg


def test_a_diverged_line_does_not_squeeze_a_panel():
    x = np.array([1.0, 2.0, 3.0])
    lines = [Line("a", x, x), Line("b", x, 2 * x), Line("c", x, 1e9 * x)]
    (panel,) = checked(Figure("", "", [Panel("", "x", "y", lines)])).panels
    svg = panel_svg("p", panel)
    assert heights(svg)[1] > 100 and "outside: c, to " in svg
    assert scales(panel, (0.0, 1.0), (0.0, 1.0))[1].high < 10


def test_twenty_methods_are_told_apart_and_keep_their_looks(tmp_path):
    assert len({look(style) for style in range(20)}) == len({dot(style, 0.0, 0.0) for style in range(20)}) == 20
    names = ("local", *(f"m{k}" for k in range(8)))
    fake_run(tmp_path, methods=names, seeds=1, clients=6)
    html = write_report(tmp_path).read_text(encoding="utf-8")
    for style, name in enumerate(names):
        assert f'<th scope="row">{key(style)}{name}</th>' in html and look(style)[0] in key(style)
    best = sizes_picture(read_story(tmp_path)).svg
    first = re.search(r'<circle cx="24"[^>]*fill="(#\w+)"[^>]*></circle><text[^>]*>(\w+)<', best)
    assert first[1] == look(names.index(first[2]))[0]
