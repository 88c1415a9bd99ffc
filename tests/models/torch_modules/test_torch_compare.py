"""A torch module of one's own in a whole comparison, as an object and by the function that makes it."""

import pytest

torch = pytest.importorskip("torch")

import apiece  # noqa: E402

HOW = dict(rounds=2, seeds=1, tune=1, baselines=False, data_options={"clients": 4}, evaluate_every=1)
NET = """
import torch

class Bytes(torch.nn.Module):
    def forward(self, x):
        return x.float() / 255

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(Bytes(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
"""


class Scaled(torch.nn.Module):
    """Bytes in, scores out."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.out(x.float() / 255)


def test_a_module_goes_through_a_comparison_and_is_given_again(tmp_path):
    module = Scaled()
    how = HOW | {"optimizer": {"name": "adamw"}, "metrics": {"f1": "apiece.evaluate:macro_f1"}}
    found = apiece.compare("digits", {"ditto": {"steps": 2}}, **how, model=module, out=tmp_path / "run")
    assert found.record.spec["model"]["name"] == "given:model"
    assert 0 <= found.record.methods["ditto"].summary["test"]["f1"]["mean"].mean <= 1
    (tmp_path / "run/record.json").unlink()
    again = apiece.resume(tmp_path / "run", given={"model": module})
    assert str(again.record.methods["ditto"].summary) == str(found.record.methods["ditto"].summary)


def test_a_function_that_makes_a_module_is_named_by_its_path(tmp_path):
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    found = apiece.compare("digits", ["fed_avg"], **HOW, model=f"{tmp_path / 'nets.py'}:net", out=tmp_path / "run")
    assert found.record.spec["model"]["name"].endswith("nets.py:net") and "fed_avg" in found.record.methods
