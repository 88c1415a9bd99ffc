"""Clients without labels, run as a user runs it."""

import re

import pytest
from run_example import printed


@pytest.mark.thorough
def test_clients_without_labels_borrow_their_partners_models():
    said = printed("weak_supervision")
    assert "group 1, 4" in said and "group 2, 4" in said
    borrowed, pooled = map(float, re.search(r"([\d.]+) right with their partners' model, ([\d.]+) with", said).groups())
    assert borrowed > 0.85
    assert pooled < 0.65
