"""Fifty rounds with eight sites that come and go: nothing grows. `python -m benchmarks soak` is the same, longer."""

import argparse

import pytest

pytest.importorskip("flwr")
from benchmarks import soak

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]


def test_memory_files_and_processes_do_not_grow_while_sites_come_and_go():
    found = soak.run(argparse.Namespace(rounds=50, sites=8, every=5, limit=900.0, seed=0), say=print)
    assert found["came_and_went"] >= 8
    assert not [row for row in found["rows"] if row["failed"]], found["rows"]
