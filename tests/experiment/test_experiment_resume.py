"""Resume: from whichever file was written last, a continued run ends with the numbers of an undisturbed one."""

import contextlib
import json
import shutil

import pytest
from experiment_runs import SMALL, content_of, federation, make_once, models_of, numbers_of, record_of, run

from apiece import files
from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import compare, environment, resume, tables

SPEC = {**SMALL, "seeds": [0], "baselines": False, "methods": {"ditto": {"lam": 0.5}, "scaffold": {}}}
# What is written, in this order; a checkpoint after every round but the last.
FILES = [
    "federation.json", "spec.toml", "steps.json",
    "ditto-tuning.json", "ditto-tuning.json", "ditto-0.safetensors", "ditto-0.safetensors",
    "ditto-0.safetensors", "ditto-0-end.safetensors", "ditto-0-done.safetensors",  # models, the end, the outcome
    "scaffold-tuning.json", "scaffold-tuning.json", "scaffold-0.safetensors", "scaffold-0.safetensors",
    "scaffold-0.safetensors", "scaffold-0-end.safetensors", "scaffold-0-done.safetensors",
    "profile.parquet", "verdicts.parquet", "rounds.parquet", "clients.parquet", "product.json", "record.json",
]  # fmt: skip


@pytest.fixture(scope="module")
def snapshots(shared_place):
    """What was on disk after each file was written: what a kill at that moment leaves."""
    return make_once(shared_place, "snapshots", photographed)


def photographed(place):
    written = []
    original = files.replace_file

    @contextlib.contextmanager
    def replace_file(path, *size):
        with original(path, *size) as temporary:
            yield temporary
        if path.name == "live.json":  # written when a second has passed, for who watches: no part of what is resumed
            return
        written.append(path.name)
        shutil.copytree(place / "run", place / str(len(written)))
        (place / str(len(written)) / "checkpoints" / ".half-written.x7").write_bytes(b"cut sho")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "replace_file", replace_file)
        patch.setattr(tables, "replace_file", replace_file)
        run(SPEC, place / "run")
    assert written == FILES


@pytest.mark.parametrize(
    ("after", "moment"),
    [
        (4, "in the middle of tuning"),
        (6, "after the first checkpoint"),
        (8, "with models but no outcome"),
        (9, "with models and the end but no outcome"),
        (14, "in the last method"),
        (19, "before the record"),
    ],
)
def test_a_run_killed_at_any_moment_resumes_to_the_same_numbers(snapshots, tmp_path, after, moment):
    shutil.copytree(snapshots / str(after), tmp_path / "run")
    assert not (tmp_path / "run" / "record.json").exists()
    resume(tmp_path / "run")
    assert numbers_of(tmp_path / "run") == numbers_of(snapshots / "run")
    assert models_of(tmp_path / "run") == models_of(snapshots / "run")
    tables = [out / "clients.parquet" for out in (tmp_path / "run", snapshots / "run")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    assert not (tmp_path / "run" / "checkpoints" / "ditto-0.safetensors").exists(), "a used checkpoint is removed"


def test_a_checkpoint_is_really_continued_and_not_begun_again(snapshots, tmp_path):
    shutil.copytree(snapshots / "7", tmp_path / "run")
    rounds = []
    resume(tmp_path / "run", lambda what, done, total: rounds.append((what, done, total)))
    of_ditto = [done for what, done, _ in rounds if what == "ditto: seed 0"]
    # Two tuning trials of three rounds each are skipped, two rounds are restored, one is left.
    assert of_ditto[:3] == [6, 8, 9]
    assert rounds[-1][1] == rounds[-1][2] == 2 * (2 + 1) * 3


def test_a_kill_before_the_spec_leaves_no_run(snapshots, tmp_path):
    shutil.copytree(snapshots / "1", tmp_path / "run")
    with pytest.raises(UserError, match=r"is not a run folder: it has no spec\.toml"):
        resume(tmp_path / "run")


def test_resuming_a_finished_run_changes_nothing(snapshots, tmp_path, monkeypatch):
    shutil.copytree(snapshots / "run", tmp_path / "run")
    before = content_of(tmp_path / "run")
    monkeypatch.setattr(environment, "revision", lambda: "another revision")
    found = resume(tmp_path / "run")
    assert content_of(tmp_path / "run") == before
    assert found.record.plain() == json.loads(before["record.json"])
    assert list(found.trials["ditto"]) == [0]


def test_tables_that_were_lost_are_written_again(snapshots, tmp_path):
    shutil.copytree(snapshots / "run", tmp_path / "run")
    before = content_of(tmp_path / "run")
    (tmp_path / "run" / "clients.parquet").unlink()
    resume(tmp_path / "run")
    assert content_of(tmp_path / "run")["clients.parquet"] == before["clients.parquet"]


def test_resume_accepts_a_path_as_text(snapshots):
    assert resume(str(snapshots / "run")).record.plain() == record_of(snapshots / "run")


@pytest.mark.parametrize(("at", "name"), [(6, "ditto-0.safetensors"), (10, "ditto-0-done.safetensors"),
                                          (4, "ditto-tuning.json"), (4, "federation.json"),
                                          (3, "steps.json")])  # fmt: skip
@pytest.mark.parametrize("damage", ["cut", "nonsense", "empty"])
def test_a_damaged_file_is_named(snapshots, tmp_path, at, name, damage):
    shutil.copytree(snapshots / str(at), tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / name
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "nonsense": b"\x93" * 100, "empty": b""}[damage])
    with pytest.raises(UserError) as caught:
        resume(tmp_path / "run")
    assert str(path) in str(caught.value) and "cannot be read" in str(caught.value)


def test_a_run_without_its_fingerprint_is_not_continued(snapshots, tmp_path):
    shutil.copytree(snapshots / "3", tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "federation.json").unlink()
    with pytest.raises(UserError, match=r"lacks checkpoints/federation\.json"):
        resume(tmp_path / "run")


def test_a_folder_that_is_no_run_is_not_resumed(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"is not a run folder: it has no spec\.toml"):
            resume(path)
    (tmp_path / "spec.toml").write_text("rounds = = 1")
    with pytest.raises(UserError, match="cannot be read"):
        resume(tmp_path)


@pytest.mark.thorough
def test_a_federation_at_hand_is_saved_with_the_run_which_resumes_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = compare(federation(), seeds=1, tune=1, out="run", **SMALL["train"])
    out = tmp_path / "run"
    assert done.folder.resolve() == out and (out / "federation" / "federation.json").exists()
    before = numbers_of(out)
    for name in ("record.json", "checkpoints/fed_avg-0-done.safetensors"):
        (out / name).unlink()
    monkeypatch.chdir("/")
    resume(out)
    assert numbers_of(out) == before


def test_changed_data_are_not_resumed(tmp_path):
    values = {**SMALL, "baselines": False, "seeds": [0], "tune": 1, "methods": {"fed_avg": {}}}
    data = digits(clients=4)
    saved = data.save(tmp_path / "data")
    out = tmp_path / "run"
    run({**values, "data": {"source": str(saved)}, "train": {"rounds": 1, "evaluate_every": 1}}, out)
    (out / "record.json").unlink()
    shutil.rmtree(saved)
    for other in (digits(clients=4, seed=1), digits(clients=4, partition="iid")):
        other.save(saved)
        with pytest.raises(UserError, match="changed since the run began; start a new run"):
            resume(out)
        shutil.rmtree(saved)
    with pytest.raises(UserError, match="there is no data"):
        resume(out)
    data.save(saved)
    resume(out)
    assert (out / "record.json").exists()


def test_replies_on_their_way_survive_a_kill(tmp_path):
    """An asynchronous run, left after its first checkpoint, ends with the numbers of an undisturbed one."""
    late = {"arrivals": {"active": 5, "buffer": 2, "pace": {"law": "zipf", "jitter": "exponential"}}}
    spec = {**SPEC, "methods": {"ditto": {"lam": 0.5}}, "tune": 1, "train": {**SPEC["train"], "cohort": None, **late}}
    original = files.replace_file

    @contextlib.contextmanager
    def replace_file(path, *size):
        with original(path, *size) as temporary:
            yield temporary
        if path.name == "ditto-0.safetensors" and not (tmp_path / "left").exists():
            shutil.copytree(tmp_path / "run", tmp_path / "left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "replace_file", replace_file)
        run(spec, tmp_path / "run")
    resume(tmp_path / "left")
    assert numbers_of(tmp_path / "left") == numbers_of(tmp_path / "run")
    assert models_of(tmp_path / "left") == models_of(tmp_path / "run")
    costs = record_of(tmp_path / "run")["methods"]["ditto"]["seeds"][0]["costs"]
    assert costs["clock"] > 0 and costs["rounds"] == SPEC["train"]["rounds"]
