"""Tables on a terminal: whatever the names and the width, no number is cut; digits end where the interval begins."""

import io
import re

import pytest
from fake_runs import fake_run
from rich.console import Console

from apiece.evaluate import Interval
from apiece.experiment import read_record
from apiece.report.numbers import plus_minus
from apiece.report.terminal import comparison, grid

LONG = ("local", "fed_avg", "my_package.mine:mixture_of_experts", "dynamic_lambda_with_a_long_name")
MANY = ("fed_avg", *(f"method_number_{k}" for k in range(20)))


def shown(what, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("methods", [LONG, MANY], ids=["long names", "many methods"])
def test_no_number_of_a_comparison_is_cut(task, methods, tmp_path):
    fake_run(tmp_path, task=task, methods=methods, seeds=2, new=3, binary=task == "classification")
    record = read_record(tmp_path)
    for width in (80, 60):
        text = shown(comparison(record), width)
        assert "…" not in text and max(map(len, text.splitlines())) <= width
        halves = re.findall(r"[\d.]+ ±([\d.]*)", text)
        assert len(halves) >= 4 * len(methods) and all(re.fullmatch(r"\d+(\.\d+)?", half) for half in halves)
        assert all(title in text for title in ("test", "worst", "sent", *["gain over", "hurt %"] * (methods is LONG)))


@pytest.mark.parametrize("width", [80, 40, 24])
def test_columns_that_do_not_fit_go_on_below_with_the_names_again(width):
    heads, rows = ["name", *(f"head {k}" for k in range(9))], [["a_name", *(f"{k}.12345678" for k in range(9))]]
    text = shown(grid(heads, rows), width)
    words = text.split()
    assert all(f"{k}.12345678" in words for k in range(9)) and max(map(len, text.splitlines())) <= width
    assert words.count("a_name") == words.count("name") > 1


def test_a_table_that_fits_is_one_table_with_room_between_its_columns():
    assert shown(grid(["name", "head"], [["a", "1"]])).splitlines()[2].rstrip() == " a         1"


def test_a_usual_comparison_is_one_table_at_80_columns(tmp_path):
    usual = ("local", "fed_avg", "fed_prox", "ftfa", "rtfa", "ditto", "pfedme", "scaffold", "dynamic_lambda")
    fake_run(tmp_path, task="regression", methods=usual, seeds=3, new=3)
    text = shown(comparison(read_record(tmp_path))).partition("tuning trials")[0]
    assert text.count("method") == 1 and "sent" in text and "dynamic_lamb" in text


def test_digits_end_where_the_interval_or_the_reader_does():
    around = lambda mean, half: Interval(mean, mean - half, mean + half, half)
    assert plus_minus(around(340.440886, 0.000018)) == "340.44 ± 0.00"
    assert plus_minus(around(340.440886, 0.018)) == "340.44 ± 0.02"
    assert plus_minus(around(0.27345, 0.33)) == "0.27 ± 0.33"
    assert plus_minus(around(3.21e-7, 1.1e-8)) == "3.21e−7 ± 1.1e−8"


def test_terminal_and_page_write_an_error_alike(tmp_path):
    fake_run(tmp_path, task="regression", seeds=2)
    record = read_record(tmp_path)
    text = shown(comparison(record), 120)
    for method in record.methods.values():
        found = method.statistic("test", "error", "mean_weighted")
        mean, half = plus_minus(found).split(" ± ")
        assert f"{mean} ±{half}" in text
