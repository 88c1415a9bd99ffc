"""What a run leaves behind: complete, finite, and every number recomputed from others by hand."""

import math

import experiment_runs
import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from experiment_runs import DATA, SMALL, models_of, numbers_of, record_of, run

from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.experiment import Spec, compare, fit, make_spec, read_values, resume, run_spec
from apiece.files import make_folder, read_arrays
from apiece.report import write_report

METHODS = ["local", "fed_avg", "ftfa", "ditto"]
MODEL = (64 * 10 + 10) * 4  # bytes of a softmax regression of 64 pixels and 10 digits
ROUNDS, COHORT = SMALL["train"]["rounds"], SMALL["train"]["cohort"]


@pytest.fixture(scope="module")
def record(small_run):
    return record_of(small_run)


@pytest.fixture(scope="module")
def federation():
    return experiment_runs.federation()


def table(out, name):
    """Columns of a Parquet file as arrays."""
    read = pq.read_table(out / f"{name}.parquet")
    return {column: read[column].to_numpy(zero_copy_only=False) for column in read.column_names}


def rows(columns, **where):
    chosen = np.all([columns[key] == value for key, value in where.items()], axis=0)
    return {name: column[chosen] for name, column in columns.items()}


def leaves(value):
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [leaf for inner in value for leaf in leaves(inner)] if isinstance(value, list) else [value]


def test_the_run_folder_is_complete(small_run):
    files = {p.name for p in small_run.iterdir()}
    assert files == {
        "spec.toml",
        "record.json",
        "rounds.parquet",
        "clients.parquet",
        "profile.parquet",
        "verdicts.parquet",
        "models",
        "checkpoints",
        "report.html",
    }
    assert {p.name for p in (small_run / "models").iterdir()} == {
        *(f"{m}-{s}.safetensors" for m in METHODS for s in (0, 1)),
        "product.json",
    }
    assert not list(small_run.rglob(".*")), "no temporary file is left"


def test_the_record_has_metrics_and_costs_by_name_for_every_method_and_seed(record):
    assert list(record["methods"]) == METHODS
    for method in record["methods"].values():
        assert [trial["seed"] for trial in method["seeds"]] == [0, 1]
        for trial in method["seeds"]:
            assert set(trial["metrics"]) == {"validation", "test", "new_clients"}
            for part in trial["metrics"].values():
                assert set(part) == {"loss", "accuracy"}
                assert {"mean_weighted", "mean", "median", "spread", "worst10", "top10_by_samples"} <= set(
                    part["accuracy"]
                )
            assert {"rounds", "bytes_up", "bytes_down", "gradients", "seconds", "peak_memory_mb"} <= set(trial["costs"])
    assert {"environment", "revision", "spec", "federation", "model", "notes"} <= set(record)
    assert record["environment"]["packages"]["jax"]


def test_every_number_is_finite_or_null(record, small_run):
    numbers = [leaf for leaf in leaves(record) if isinstance(leaf, float)]
    assert len(numbers) > 100 and all(math.isfinite(number) for number in numbers)
    for name in ("rounds", "clients"):
        for column, values in table(small_run, name).items():
            if values.dtype.kind == "f":
                assert np.isfinite(values).all(), f"{name}.parquet, {column}"


def test_chosen_options_are_whole_and_keep_what_the_user_set(record):
    ditto = record["methods"]["ditto"]
    assert ditto["options"]["lam"] == 0.5 and ditto["options"]["steps"] == 20
    assert len(ditto["tuning"]) == SMALL["tune"]
    best = min(ditto["tuning"], key=lambda trial: trial["validation_loss"])
    assert ditto["options"]["lr"] == best["options"]["lr"]
    assert all(set(trial["options"]) == {"lr"} for trial in ditto["tuning"])


def test_every_method_is_tuned_with_the_same_number_of_trials(record):
    assert {len(method["tuning"]) for method in record["methods"].values()} == {SMALL["tune"]}


def test_the_spec_in_the_folder_is_the_spec_that_ran(small_run, record):
    spec = make_spec(read_values(small_run / "spec.toml"))
    assert spec == make_spec(SMALL) == Spec.model_validate(record["spec"])


def test_the_spec_in_the_folder_runs_again_to_the_same_numbers(small_run, tmp_path):
    values = read_values(small_run / "spec.toml")
    # Two of the four methods: each is run alone, so who stands beside it cannot matter.
    values = {**values, "methods": {"fed_avg": {}, "ditto": values["methods"]["ditto"]}, "baselines": False}
    run(values, tmp_path / "again")
    first, again = record_of(small_run)["methods"], record_of(tmp_path / "again")["methods"]
    for name in ("fed_avg", "ditto"):
        assert first[name]["tuning"] == again[name]["tuning"]
        for a, b in zip(first[name]["seeds"], again[name]["seeds"], strict=True):
            assert a["metrics"] == b["metrics"]
    before = models_of(small_run)
    assert all(before[key] == value for key, value in models_of(tmp_path / "again").items())


def test_gains_are_differences_of_accuracies_in_points(small_run):
    columns = table(small_run, "clients")
    for seed in (0, 1):
        for method in METHODS:
            mine = rows(columns, method=method, seed=seed)
            for other in ("local", "fed_avg", "ftfa"):
                theirs = rows(columns, method=other, seed=seed)
                assert (mine["client"] == theirs["client"]).all()
                expected = 100 * (mine["test_accuracy"] - theirs["test_accuracy"])
                np.testing.assert_allclose(mine[f"gain_over_{other}"], expected, atol=1e-9)
    assert np.abs(columns["gain_over_local"]).max() > 0


def test_accuracies_are_those_of_the_kept_models_on_the_test_examples(small_run, federation):
    sides = [federation, federation.new]
    for method in METHODS:
        arrays, about = read_arrays(small_run / "models" / f"{method}-1.safetensors")
        mine = rows(table(small_run, "clients"), method=method, seed=1)
        assert about["clients"] == mine["client"].tolist() and about["round"] == ROUNDS
        number = 0
        for side in sides:
            for i in range(side.clients):
                x, y = side.test.client(i)
                scores = x / 255 @ arrays["personal/w"][number].T.astype(float) + arrays["personal/b"][number]
                assert (scores.argmax(1) == y).mean() == pytest.approx(mine["test_accuracy"][number])
                picked = scores[np.arange(len(y)), y]
                loss = np.mean(np.log(np.exp(scores).sum(1)) - picked)
                assert loss == pytest.approx(mine["test_loss"][number], rel=1e-4)
                assert (mine["test_examples"][number], mine["new"][number]) == (len(y), side is federation.new)
                assert mine["train_examples"][number] == side.train.sizes[i]
                number += 1
        assert number == len(mine["client"]) == 12


def test_statistics_over_clients_are_recomputed_by_hand(small_run, record):
    for method in METHODS:
        for seed in (0, 1):
            mine = rows(table(small_run, "clients"), method=method, seed=seed, new=False)
            accuracy, sizes = mine["test_accuracy"], mine["test_examples"]
            found = record["methods"][method]["seeds"][seed]["metrics"]["test"]["accuracy"]
            largest = mine["train_examples"].argsort(kind="stable")[-2:]  # a tenth of eleven clients, rounded up
            assert mine["train_examples"][largest].min() > np.delete(mine["train_examples"], largest).max(), "no tie"
            expected = {
                "mean_weighted": np.average(accuracy, weights=sizes),
                "mean": accuracy.mean(),
                "median": np.median(accuracy),
                "spread": accuracy.std(),
                "worst10": np.sort(accuracy)[:2].mean(),
                "top10_by_samples": np.average(accuracy[largest], weights=sizes[largest]),
                "min": accuracy.min(),
                "max": accuracy.max(),
                "clients": 11,
            }
            for name, value in expected.items():
                assert found[name] == pytest.approx(value), name
            loss = record["methods"][method]["seeds"][seed]["metrics"]["test"]["loss"]
            assert loss["worst10"] == pytest.approx(np.sort(mine["test_loss"])[-2:].mean())
            assert found["worst10"] <= found["median"] <= found["max"]


def test_new_clients_have_metrics_of_their_own(small_run, record):
    for method in METHODS:
        mine = rows(table(small_run, "clients"), method=method, seed=0, new=True)
        found = record["methods"][method]["seeds"][0]["metrics"]["new_clients"]["accuracy"]
        assert found["clients"] == len(mine["client"]) == 1
        assert found["mean"] == pytest.approx(mine["test_accuracy"][0])


def test_intervals_are_means_over_the_seeds(record):
    for method in record["methods"].values():
        per_seed = [trial["metrics"]["test"]["accuracy"]["mean_weighted"] for trial in method["seeds"]]
        found = method["summary"]["test"]["accuracy"]["mean_weighted"]
        assert found["mean"] == pytest.approx(np.mean(per_seed))
        # Student's t with one degree of freedom
        assert found["half_width"] == pytest.approx(12.7062 * np.std(per_seed, ddof=1) / 2**0.5, rel=1e-4, abs=1e-12)


def test_the_gain_over_local_is_the_mean_of_the_clients_gains(small_run, record):
    for method in METHODS[1:]:
        mine = rows(table(small_run, "clients"), method=method, new=False)
        gain = record["methods"][method]["hurt"]["gain"]["mean"]
        assert gain == pytest.approx(mine["gain_over_local"].mean())
    assert record["methods"]["local"]["hurt"] is None


def test_differences_against_the_baselines_are_paired_by_seed(small_run, record):
    columns = table(small_run, "clients")

    def error(method, seed):
        mine = rows(columns, method=method, seed=seed, new=False)
        return 100 * np.average(1 - mine["test_accuracy"], weights=mine["test_examples"])

    for method in METHODS:
        for other in ("local", "fed_avg", "ftfa"):
            found = record["methods"][method]["against"][other]
            if method == other:
                assert found is None
                continue
            differences = [error(method, seed) - error(other, seed) for seed in (0, 1)]
            assert found["mean"] == pytest.approx(np.mean(differences), abs=1e-9)
            half = 12.7062 * np.std(differences, ddof=1) / 2**0.5
            assert found["half_width"] == pytest.approx(half, rel=1e-4, abs=1e-9)


def test_bytes_are_visits_times_the_size_of_a_message(record):
    visits = ROUNDS * COHORT
    models_sent = {"local": 0, "fed_avg": 1, "ftfa": 1, "ditto": 1}
    models_kept = {"local": 1, "fed_avg": 0, "ftfa": 0, "ditto": 1}
    for method in METHODS:
        for trial in record["methods"][method]["seeds"]:
            costs = trial["costs"]
            assert (costs["rounds"], costs["visits"]) == (ROUNDS, visits)
            assert costs["bytes_up"] == costs["bytes_down"] == visits * models_sent[method] * MODEL
            assert costs["bytes_final"] == 11 * models_sent[method] * MODEL
            assert costs["bytes_kept_per_client"] == models_kept[method] * MODEL
            assert costs["seconds"] > 0 and costs["peak_memory_mb"] > 50


def test_gradients_are_counted_by_steps(record, federation):
    steps = {"local": 20, "fed_avg": 20, "ftfa": 20, "ditto": 40}
    tuned = 10 * np.ceil(federation.train.sizes / 32).sum()  # ten passes of every client at the end
    for method in METHODS:
        for trial in record["methods"][method]["seeds"]:
            assert trial["costs"]["gradients"] == ROUNDS * COHORT * steps[method]
            assert trial["costs"]["gradients_personal"] == (tuned if method == "ftfa" else 0)


def test_gradients_and_bytes_are_counted_by_epochs_client_by_client(tmp_path, federation):
    values = {**SMALL, "baselines": False, "tune": 1, "seeds": [3], "methods": {"scaffold": {"epochs": 2, "batch": 10}}}
    run(values, tmp_path / "run")
    costs = record_of(tmp_path / "run")["methods"]["scaffold"]["seeds"][0]["costs"]
    passes = np.ceil(federation.train.sizes / 10)
    present = [Participation(size=COHORT).draw(3, r, federation.clients) for r in range(ROUNDS)]
    assert costs["gradients"] == 2 * sum(passes[who].sum() for who in present)
    assert len(set(federation.train.sizes)) > 5, "clients differ, or the sum would be no test"
    assert costs["bytes_up"] == costs["bytes_down"] == ROUNDS * COHORT * 2 * MODEL


def test_rounds_grow_to_the_costs_of_the_whole_run(small_run, record):
    columns = table(small_run, "rounds")
    for method in METHODS:
        for trial in record["methods"][method]["seeds"]:
            mine = rows(columns, method=method, seed=trial["seed"])
            assert mine["round"].tolist() == [1, 2, 3]
            for cost in ("bytes_up", "bytes_down", "gradients"):
                np.testing.assert_allclose(mine[cost], trial["costs"][cost] * np.array([1, 2, 3]) / 3)
            assert (np.diff(mine["seconds"]) > 0).all()
            assert mine["validation_loss"][-1] == pytest.approx(trial["metrics"]["validation"]["loss"]["mean"])
            assert mine["sampling_error"].tolist() == [0, 0, 0], "everybody was looked at"


def test_a_sample_of_a_population_is_shown_with_its_sampling_error(tmp_path):
    values = {**SMALL, "baselines": False, "tune": 1, "seeds": [0], "methods": {"fed_avg": {}}}
    run({**values, "train": {**SMALL["train"], "evaluate_clients": 4}}, tmp_path / "run")
    columns = table(tmp_path / "run", "rounds")
    assert (columns["sampling_error"] > 0).all()


def test_personal_models_are_read_back_by_client(small_run, federation):
    found = resume(small_run)
    name = str(federation.ids[2])
    model = found.personal("ditto", name, seed=1)
    arrays, about = read_arrays(small_run / "models" / "ditto-1.safetensors")
    row = about["clients"].index(name)
    assert (model["w"] == arrays["personal/w"][row]).all() and model["b"].shape == (10,)
    with pytest.raises(UserError, match="no personal model of client 'nobody'"):
        found.personal("ditto", "nobody")
    with pytest.raises(UserError, match="no models of 'ditto' with seed 9 were kept"):
        found.personal("ditto", name, seed=9)


def test_personal_models_of_a_run_and_of_fit_are_the_same_tree(tmp_path):
    """A model with a tree of its own: dictionaries inside of dictionaries."""
    plan = {"rounds": 2, "evaluate_every": 1}
    values = {"data": DATA, "model": {"name": "mlp", "hidden": [5]}, "train": plan, "baselines": False, "tune": 1,
              "seeds": [3], "methods": {"ditto": {"steps": 2}}}  # fmt: skip
    found = run(values, tmp_path / "run")
    federation = experiment_runs.federation()
    fitted = fit("ditto", found.place.model, federation, seed=3, options={"steps": 2}, **plan)
    for name in (str(federation.ids[2]), str(federation.new.ids[0])):
        kept, here = found.personal("ditto", name), fitted.personal(name)
        assert jax.tree.structure(kept) == jax.tree.structure(here)
        jax.tree.map(np.testing.assert_array_equal, kept, here)


def test_methods_that_diverged_are_null_and_not_hidden(tmp_path):
    """Eight steps of size 500 make models that are finite still, but whose squared errors are infinite."""
    values = {"data": {"source": "linear", "options": {"clients": 6}}, "tune": 2, "seeds": [0, 1], "baselines": False}
    blown_up = {"lr": 500.0, "steps": 8}
    methods = {"local": blown_up, "fed_avg": blown_up}
    run({**values, "train": {"rounds": 1, "evaluate_every": 1}, "methods": methods}, tmp_path / "run")
    weights = read_arrays(tmp_path / "run" / "models" / "local-0.safetensors")[0]["personal/w"]
    assert np.isfinite(weights).all() and np.abs(weights).max() > 1e19
    text = (tmp_path / "run" / "record.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    found = record_of(tmp_path / "run")["methods"]["fed_avg"]
    assert found["seeds"][0]["metrics"]["test"]["loss"]["mean"] is None
    assert found["summary"]["test"]["error"]["worst10"]["mean"] is None
    assert found["hurt"] == {"diverged": True} and found["against"]["local"]["mean"] is None
    write_report(tmp_path / "run")


def test_models_too_large_to_keep_are_left_out_with_a_note_that_resuming_keeps(tmp_path):
    values = {**SMALL, "baselines": False, "tune": 1, "seeds": [0], "methods": {"fed_avg": {}}}
    values["train"] = {**values["train"], "models_gb": 1e-6}
    run(values, tmp_path / "run")
    notes = record_of(tmp_path / "run")["notes"]
    assert len(notes) == 1 and notes[0].startswith("fed_avg, seed 0: personal models not written")
    arrays, about = read_arrays(tmp_path / "run" / "models" / "fed_avg-0.safetensors")
    assert sorted(arrays) == ["initial/b", "initial/w", "server/b", "server/w"] and about["clients"] == []
    before = numbers_of(tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    resume(tmp_path / "run")
    assert record_of(tmp_path / "run")["notes"] == notes and numbers_of(tmp_path / "run") == before


def test_a_folder_that_holds_anything_is_never_used(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="already exists; nothing was written"):
        run(SMALL, tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.txt"]
    with pytest.raises(UserError, match="already exists"):
        make_folder(tmp_path / "full" / "thesis.txt")
    with pytest.raises(UserError, match="cannot be made"):
        make_folder(tmp_path / "full" / "thesis.txt" / "run")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"cohort": 99}}, "a cohort of 99 clients is more than the 11 there are"),
        (
            {"train": {"schedule": "linear", "schedule_options": {"warm": 1.0}}},
            "schedule 'linear' has no option 'warm': did you mean 'warmup'?",
        ),
        ({"model": {"name": "linear"}}, "model 'linear' does not fit a classification federation"),
        ({"data": {"source": "digit"}}, "did you mean 'digits'?"),
        ({"data": {"options": {"client": 3}}}, "data 'digits' has no option 'client': did you mean 'clients'?"),
        ({"data": {"options": {"clients": "3"}}}, "option 'clients' of data 'digits' = '3' is wrong"),
        ({"data": {"options": {"shares": [0.8, 0.2, 0.0]}}}, "no test examples"),
        ({"data": {"options": {"shares": [0.8, 0.0, 0.2]}}}, "no validation examples to tune on"),
        ({"data": {"options": {"seed": -1}}}, "a seed is not negative"),
    ],
)
def test_what_does_not_fit_together_is_found_before_anything_is_written(tmp_path, change, said):
    values = {**SMALL, "data": {**DATA, **change.get("data", {})}}
    values |= {key: change[key] for key in change if key != "data"}
    with pytest.raises(UserError) as caught:
        run_spec(make_spec(values), tmp_path / "run")
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_federation_at_hand_is_checked_before_anything_is_written(tmp_path, federation):
    with pytest.raises(UserError, match="a cohort of 99 clients is more than the 11"):
        compare(federation, ["ditto"], cohort=99, out=tmp_path / "run")
    with pytest.raises(UserError, match="unknown method 'dito'"):
        compare(federation, ["dito"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_with_the_name_of_a_source_does_not_stand_in_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("not a data file")
    values = {**SMALL, "baselines": False, "tune": 1, "seeds": [0], "methods": {"fed_avg": {}}}
    run(values, tmp_path / "run")
    assert read_values(tmp_path / "run" / "spec.toml")["data"]["source"] == "digits"
