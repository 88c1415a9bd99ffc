"""The examples of one's own data, each run as a user runs it."""

import re

import pytest
from run_example import EXAMPLES, printed


@pytest.mark.thorough
def test_hospitals_are_imported_compared_and_reported(tmp_path):
    said = printed("hospitals", tmp_path)
    assert "clients: 14" in said and "'cholesterol': 559 of 1517 missing" in said and "'smoker': 3 levels" in said
    assert all(re.search(rf"^ {method} +\d", said, re.MULTILINE) for method in ("local", "fed_avg", "ftfa", "ditto"))
    gains = [float(gain) for gain in re.findall(r"^hospital\d\d gains ([+-][\d.]+) points", said, re.MULTILINE)]
    assert len(gains) == 6 and gains == sorted(gains, reverse=True) and gains[0] > 0 > gains[-1]
    assert re.search(r"hurt: \d+ % of the hospitals expected, \d+ % proved", said)
    assert "hospital07" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_folder_of_pictures_trains_networks(tmp_path):
    said = printed("pictures", tmp_path)
    assert "8 clients, classes ('circle', 'cross', 'square'), pictures (16, 16)" in said
    accuracy = {method: float(value) for method, value in re.findall(r"(\w+) +test accuracy ([\d.]+)", said)}
    assert set(accuracy) == {"fed_avg", "partial"} and min(accuracy.values()) > 0.7
    assert len(list((tmp_path / "cameras").glob("*/*/*.png"))) == 8 * 48


@pytest.mark.slow
def test_texts_of_authors_train_a_shared_network_with_an_output_layer_apiece(tmp_path):
    said = printed("texts", tmp_path)
    right = {method: float(value) for method, value in re.findall(r"(\w+) guesses ([\d.]+) of", said)}
    assert right["fed_per"] > right["fed_avg"] > 0.5
    assert re.search(r"sailor0 would write: 'in the \w+", said) and len(list((tmp_path / "authors").glob("*.txt"))) == 6


def test_every_example_is_listed_where_examples_are():
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in sorted(EXAMPLES.glob("*.py")) if f"({file.name})" not in listed] == []
