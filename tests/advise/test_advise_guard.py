"""The guard: a client that held-out examples show to be better off alone gets its local model in the spec, too."""

import numpy as np
import pytest
from typer.testing import CliRunner

from apiece.advise import advise
from apiece.advise.choose import Choice, better_alone, weigh_candidates
from apiece.advise.foresee import foresee
from apiece.advise.pilot import Pilot
from apiece.advise.recipe import make_recipe
from apiece.advise.sentences import answer
from apiece.advise.weigh import KAPPAS, WIDTH, Told
from apiece.cli import app
from apiece.data import from_rows
from apiece.experiment import opened

CLIENTS, HELD, ODD = 20, 12, 7
KINDS = ["shared", "path", "local"]


def told(seed=0):
    """The path errs on a tenth of the examples, local on three tenths; of one client it is the other way round."""
    rng = np.random.default_rng(seed)
    rate = np.tile([0.3, 0.1, 0.3], (CLIENTS, 1))
    rate[ODD] = [0.9, 0.9, 0.0]
    wrong = np.zeros((CLIENTS, HELD, WIDTH + len(KAPPAS)))
    wrong[:, :, :3] = rng.random((CLIENTS, HELD, 3)) < rate[:, None]
    total, less = wrong.sum(axis=1), wrong - wrong[:, :, :1]
    cross = np.einsum("iea,ieb->iab", less, less)
    both = np.stack([total, total], axis=1)
    return Told(np.full((CLIENTS, 2), HELD), both[:, :, :3], both, both, cross, cross)


def choice(alone):
    return Choice(KINDS, [0, 1, 2], np.array([0.5, 0.2, 0.5]), 0, None, 0, None, "path", "path", np.array([0, 1.0, 0]),
                  np.inf, 0.0, 1.0, np.asarray(alone, int))  # fmt: skip


PILOT = Pilot(*[None] * len(Pilot._fields))._replace(
    sizes=np.full(CLIENTS, 48), usual=48.0, pulls=np.array([0.5]), ridges=np.array([0.1]),
    names=["shared", "path 0", "local 0"])  # fmt: skip


def test_the_guard_names_the_client_that_is_better_off_alone_and_nobody_else():
    assert better_alone(told(), KINDS, "path").tolist() == [ODD]


def test_a_guarded_client_is_local_in_the_spec_and_in_what_is_foreseen():
    free, guarded = (foresee(choice(alone), told(), 1.0, True) for alone in ([], [ODD]))
    assert make_recipe(choice([]), PILOT, 1.0).method == "rtfa"
    recipe = make_recipe(choice([ODD]), PILOT, 1.0)
    assert recipe.method == "stack" and recipe.options["on_path"] == 1 and recipe.options["on_local"] == 0
    assert np.flatnonzero(recipe.options["alone"]).tolist() == [ODD] and len(recipe.options["alone"]) == CLIENTS
    own, path = (told().error[ODD, 0, at] / HELD for at in (2, 1))
    assert guarded.errors["advised"].mean == pytest.approx(free.errors["advised"].mean - 100 * (path - own) / CLIENTS)
    assert guarded.errors["path"] == free.errors["path"] and guarded.gains["local"].mean > free.gains["local"].mean
    assert free.hurt.risk[ODD] > 0.9 > 0.6 > guarded.hurt.risk[ODD], "who is alone loses nothing against alone"
    said = answer(choice([ODD]), PILOT, guarded, 0.5, 0.5, False, np.array([f"c{i}" for i in range(CLIENTS)]))
    assert said[0].endswith("; c7 is better off alone, and keeps to a model of its own.") and len(said) == 3


@pytest.mark.thorough
def test_the_spec_that_is_written_runs_the_guard(tmp_path, monkeypatch):
    """That the path was named, and the guard has found the sixth client, is said here; what follows from it is real."""

    def weigh(*given):
        choice, told = weigh_candidates(*given)
        return choice._replace(named="path", single="path", alone=np.array([5])), told

    monkeypatch.setattr("apiece.advise.answer.weigh_candidates", weigh)
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(9), 16)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    y = (x @ [1.0, -1, 0] + 0.5 * rng.normal(size=len(x))).astype(np.float32)
    federation = from_rows(x, y, owner, split=np.tile([0, 0, 0, 0, 0, 0, 1, 2], len(x) // 8))
    found = advise(federation, folds=1, out=tmp_path / "advice")
    assert [one.client for one in found.degree.clients] == ["5"] and "5 is better off alone" in found.answer[0]
    words = ["run", "--spec", str(tmp_path / "advice" / "spec.toml"), "--out", str(tmp_path / "run"), "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    run = opened.open(tmp_path / "run")
    assert np.asarray(run.personal("5").pi).tolist() == [0, 0, 0, 1]
    assert np.asarray(run.personal("4").pi)[3] == 0
