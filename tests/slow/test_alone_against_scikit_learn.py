"""Training alone is as good as scikit-learn's cross-validated linear models of each client, or not told apart."""

import os

import numpy as np
import pytest

from apiece.evaluate import half_over_clients
from benchmarks.alone import FEDERATIONS, alone

pytestmark = [
    pytest.mark.slow,
    pytest.mark.optimized,
    pytest.mark.skipif("APIECE_DATA" not in os.environ, reason="APIECE_DATA names no folder with the real data sets"),
]


@pytest.mark.parametrize("name", FEDERATIONS)
def test_alone_is_no_weaker_than_scikit_learn(name):
    rows, sizes, numbers = alone(name)
    whole = {who: np.average(np.nan_to_num(errors), weights=sizes) for who, errors in rows.items()}
    allowed = 0.02 * whole["scikit-learn"] if numbers else 0.005
    for who in ("local", "local_ridge"):
        behind = whole[who] - whole["scikit-learn"]
        assert behind <= max(allowed, half_over_clients(rows["scikit-learn"], rows[who], sizes)), (who, whole)
