"""More rounds for a finished run: which runs can go on, and how the folder is opened again."""

from pathlib import Path
from typing import Any

from apiece import files
from apiece.client.schedule import ENDLESS
from apiece.errors import UserError
from apiece.experiment.best import may_stop, plan_of
from apiece.experiment.converge import has_rested
from apiece.experiment.folder import RunFolder
from apiece.experiment.judge import Outcome
from apiece.experiment.spec import Spec
from apiece.experiment.spec_tables import TrainSpec

TESTED = "tested"  # in the fingerprint: after how many rounds the test was looked at before


def refuse_to_extend(out: Path, spec: Spec, rounds: int) -> None:
    """A `UserError` that says why the run in a folder cannot go on to so many rounds; nothing if it can."""
    run, had = RunFolder(out), spec.train.rounds
    again = f"start a new run: apiece run --spec {run.spec} --rounds {rounds} --out {out}-longer"
    if rounds <= had:
        raise UserError(f"'{out}' has {had} rounds, and --rounds {rounds} is their number in all; give more than {had}")
    if spec.train.private is not None and spec.train.private.epsilon is not None:
        raise UserError(f"'{out}' has spent its epsilon = {spec.train.private.epsilon:g} in {had} rounds, whose noise "
                        f"was made for that number; {again}")  # fmt: skip
    if not run.is_finished:
        raise UserError(f"'{out}' is not finished; first: apiece resume {out}")
    if spec.train.schedule not in ENDLESS:
        raise UserError(f"the step sizes of '{out}' were planned for {had} rounds (train.schedule = "
                        f"'{spec.train.schedule}'), and have come to their end; {again}")  # fmt: skip
    if spec.train.stop is not None:
        raise UserError(f"'{out}' stops by itself ([train.stop]) and kept its best round, not its last; {again}")
    for name, row in spec.rows.items():
        if plan_of(row.method, spec.train).stop is not None:
            continue  # it is judged at its best round, and trained anew
        lost = [seed for seed in spec.seeds if not run.end(name, seed).exists()]
        if lost:
            raise UserError(f"'{out}' kept no state of {name}, seed {lost[0]}, from which to go on: it was larger than "
                            f"train.models_gb = {spec.train.models_gb:g}, failed, or is of an older version; "
                            f"{again}")  # fmt: skip


def reopen_run(out: Path, values: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The plain values of the spec with more rounds, written into the folder, which is then a run on its way.

    Its results go first: a kill in between leaves a run that `resume` finishes with the old number of rounds.
    """
    run, had = RunFolder(out), values["train"]["rounds"]
    for path in (run.record, run.rounds, run.clients, run.profile, run.verdicts, run.page):
        path.unlink(missing_ok=True)
    known = files.read_json(run.fingerprint)
    files.write_json(run.fingerprint, {**known, TESTED: [*known.get(TESTED, []), had]})
    longer = {**values, "train": {**values["train"], "rounds": rounds}}
    files.write_toml(run.spec, longer)
    return longer


def seen_before(out: Path, rounds: int) -> list[int]:
    """After how many rounds the test was looked at, before this run had so many."""
    return [had for had in files.read_json(RunFolder(out).fingerprint).get(TESTED, []) if had < rounds]


def is_whole(outcome: Outcome, plan: TrainSpec) -> bool:
    """Whether a finished trial has all the rounds of a plan; what stops by itself has.

    >>> import numpy as np
    >>> trial = Outcome(np.arange(0), {}, [{"round": 5}], {})
    >>> is_whole(trial, TrainSpec(rounds=5)), is_whole(trial, TrainSpec(rounds=9))
    (True, False)
    """
    if may_stop(plan) or not outcome.curve:
        return True
    return outcome.curve[-1]["round"] >= plan.rounds or (plan.until_rest and has_rested(outcome.curve))
