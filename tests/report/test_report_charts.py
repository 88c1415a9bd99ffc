"""The pictures: every client in its place, axes that hold for any numbers, a file that any viewer opens."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import fake_run
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.report import write_picture
from apiece.report.curves import Curve, curves_svg
from apiece.report.gains import Strip, gains_svg
from apiece.report.sizes import Series, sizes_svg
from apiece.report.svg import axis_over, tag

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
