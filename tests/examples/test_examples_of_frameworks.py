"""The examples of one's own model, each run as a user runs it."""

import re

import pytest
from run_example import printed


@pytest.mark.parametrize("framework", ["flax", "equinox", "torch"])
def test_a_network_of_ones_own_trains_and_comes_back(framework):
    pytest.importorskip(framework)
    said = printed(f"own_{framework}")
    accuracy = dict(re.findall(r"(\w+) +validation accuracy ([\d.]+)", said))
    assert "fed_avg" in accuracy and len(accuracy) == 2 and min(map(float, accuracy.values())) > 0.8
    guessed, true = re.search(r"model says (\[.*\]) of (\[.*\])", said).groups()
    right = sum(a == b for a, b in zip(guessed.split(), true.split(), strict=True))
    assert right >= 3
