"""A torch module of one's own predicts from a run folder as it did in the run: imported again, or given again."""

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_compare import HOW, NET  # noqa: E402

import apiece  # noqa: E402
from apiece.errors import UserError  # noqa: E402
from apiece.models.failures import raise_failures  # noqa: E402


def losses_of(said, truth):
    return -np.log(said.probabilities[np.arange(len(truth)), truth])


def test_a_torch_module_predicts_from_a_moved_folder_as_the_run_did(tmp_path):
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    path = f"{tmp_path / 'nets.py'}:net"
    found = apiece.compare("digits", {"ditto": {"steps": 2}}, **HOW, model=path, out=tmp_path / "run")
    folder = (tmp_path / "run").rename(tmp_path / "elsewhere")
    losses, offsets = found.trials["ditto"][0].scores("test", "loss")
    x, y = found.place.federation.test.client(2)
    module = apiece.own.import_thing(path)()
    (tmp_path / "nets.py").rename(tmp_path / "other.py")
    with pytest.raises(UserError, match=r"there is no file .*nets\.py"):
        apiece.open(folder).predict("2", x)
    for run in (apiece.open(folder, model=module), apiece.open(folder, model=f"{tmp_path / 'other.py'}:net")):
        np.testing.assert_allclose(losses_of(run.predict("2", x), y), losses[offsets[2] : offsets[3]], atol=1e-6)
    assert jax.tree.map(np.shape, run.onboard(x, y)) == jax.tree.map(np.shape, run.personal("2"))
    raise_failures()
