"""Every command, its help, its mistakes and its exit code, in this process."""

import inspect
import json
from typing import get_args

import numpy as np
import pytest
import typer
from cli_process import call
from typer.testing import CliRunner

from apiece.cli import app
from apiece.cli.flags import values_of
from apiece.data import SOURCES, Federation
from apiece.data.load.read import SUFFIXES
from apiece.errors import UserError
from apiece.experiment import make_spec
from apiece.experiment.spec_tables import TrainSpec
from apiece.methods import CATALOG, USUAL


def commands_below(command, *names):
    """{words that call it: command} of a command and all that is below it."""
    found = {names: command}
    for name, one in getattr(command, "commands", {}).items():
        found |= commands_below(one, *names, name)
    return found


COMMANDS = commands_below(typer.main.get_command(app))
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fails(*arguments):
    """The one-paragraph error of a command that writes nothing."""
    result = call(*arguments, code=2)
    assert result.stdout == "" and result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").strip()


def spec_of(monkeypatch, *arguments):
    """The spec that a command line makes, without running it."""
    seen = []
    monkeypatch.setattr("apiece.experiment.run_spec", lambda spec, out, watch, log: seen.append(spec))
    monkeypatch.setattr("apiece.cli.runs._finish", lambda found, as_json: None)
    call(*arguments)
    return seen[0]


# Help.


def test_the_commands_are_found():
    assert {(), ("compare",), ("models",), ("reproduce",), ("data", "check"), ("theory", "risk")} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(c) or "apiece")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself(command, flag):
    text = call(*command, flag).stdout
    assert text.startswith("Usage: ") and max(map(len, text.splitlines())) <= 80
    below = list(getattr(COMMANDS[command], "commands", {}))
    listed = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line[:3].strip()]
    assert listed == below, "every command below it has its line"
    assert "..." not in text.partition("Commands:")[2], "and nothing is cut"
    assert below or "--json" in text or command == ("spec",), "a spec is TOML, a document already"


def test_the_check_of_data_names_every_format():
    text = call("data", "check", "--help").stdout.lower()
    assert [suffix for suffix in SUFFIXES if suffix[1:] not in text] == []


@pytest.mark.parametrize("command", ["compare", "run"])
def test_the_help_names_every_engine(command):
    text = call(command, "--help").stdout
    assert [name for name in get_args(TrainSpec.model_fields["engine"].annotation) if name not in text] == []


def test_every_command_tells_mistakes_in_one_paragraph():
    doing = {names: one for names, one in COMMANDS.items() if not hasattr(one, "commands")}
    assert [names for names, one in doing.items() if "with plain_errors()" not in inspect.getsource(one.callback)] == []


def test_without_arguments_the_commands_are_listed():
    result = CliRunner().invoke(app, [])
    assert result.exit_code in (0, 2) and "compare" in result.output


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["compare", "--rounds", "many"], ["compare", "--nonsense"], ["resume"]]
)
def test_wrong_usage_is_exit_code_two(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and result.stdout == "" and "Usage: " in result.stderr


# From flags and files to a spec.


@pytest.mark.parametrize(("text", "rounds"), [("7", 7), ("auto", "auto"), ("auto:50", "auto:50")])
def test_rounds_are_a_number_or_until_rest(text, rounds):
    assert values_of({"rounds": text}) == {"train": {"rounds": rounds}}


def test_flags_override_the_file_which_overrides_the_defaults(monkeypatch, tmp_path):
    (tmp_path / "s.toml").write_text(
        "tune = 3\nseeds = [7]\n[data]\nnew_clients = 0.2\n"
        '[data.options]\nclients = 9\nk = 2\npartition = "by_classes"\n'
        "[train]\nrounds = 11\ncohort = 4\n[methods.ditto]\nlam = 2.0\n[methods.scaffold]\n"
    )
    spec = spec_of(monkeypatch, "compare", "--spec", "s.toml")
    assert (spec.tune, spec.seeds, spec.train.rounds, spec.train.cohort, spec.data.new_clients) == (3, [7], 11, 4, 0.2)
    assert spec.train.evaluate_every == make_spec({}).train.evaluate_every
    assert list(spec.methods) == ["local", "fed_avg", "ftfa", "ditto", "scaffold"]
    spec = spec_of(
        monkeypatch, "compare", "--spec", "s.toml", "--rounds", 5, "--seeds", 2, "--tune", 1, "-D", "clients=6",
        "--methods", "ditto,rtfa", "-s", "ditto.lr=0.25", "-s", "rtfa.tune_epochs=3",
        "--model", "mlp", "-M", "hidden=[8, 4]", "--stateless", "--schedule", "linear",
        "--engine", "remote",
        "--new-clients", 0.3, "--evaluate-every", 2,
    )  # fmt: skip
    assert (spec.tune, spec.seeds, spec.train.rounds, spec.train.cohort) == (1, [0, 1], 5, 4)
    assert spec.data.options == {"clients": 6, "k": 2, "partition": "by_classes"} and spec.data.new_clients == 0.3
    assert spec.methods == {
        "local": {},
        "fed_avg": {},
        "ftfa": {},
        "ditto": {"lam": 2.0, "lr": 0.25},
        "rtfa": {"tune_epochs": 3},
    }
    assert (spec.model.name, spec.model.options, spec.train.stateless) == ("mlp", {"hidden": [8, 4]}, True)
    assert (spec.train.schedule, spec.train.evaluate_every, spec.train.engine) == ("linear", 2, "remote")


def test_compare_takes_the_usual_methods_unless_told(monkeypatch):
    assert set(spec_of(monkeypatch, "compare").methods) == set(USUAL)


def test_baselines_stand_beside_unless_the_flag_or_the_file_says_otherwise(monkeypatch, tmp_path):
    file = tmp_path / "spec.toml"
    file.write_text("baselines = false\n[methods.ditto]\n", encoding="utf-8")
    asked = lambda *flags: spec_of(monkeypatch, "compare", *flags).baselines
    assert [asked(), asked("--no-baselines")] == [True, False]
    assert [asked("--spec", file), asked("--spec", file, "--baselines")] == [False, True]


def test_run_takes_one_method_one_seed_and_does_not_tune(monkeypatch):
    spec = spec_of(monkeypatch, "run", "ditto", "-s", "ditto.lam=3", "--probability", 0.5)
    assert (list(spec.methods), spec.seeds, spec.tune, spec.baselines) == (["ditto"], [0], 1, False)
    assert spec.methods["ditto"] == {"lam": 3} and spec.train.probability == 0.5


def test_data_options_are_read_as_toml_and_else_as_words(monkeypatch):
    arguments = [
        "-D",
        "a=1",
        "-D",
        "b=0.5",
        "-D",
        "c=[1, 2]",
        "-D",
        "d=iid",
        "-D",
        'e="7"',
        "-D",
        "f=true",
        "-D",
        "g=x=y",
    ]
    spec = spec_of(monkeypatch, "compare", *arguments, "--client", "7", "--features", "u, v")
    assert spec.data.options == {
        "a": 1, "b": 0.5, "c": [1, 2], "d": "iid", "e": "7", "f": True, "g": "x=y",
        "client": "7", "features": ["u", "v"],
    }  # fmt: skip


# Mistakes: one paragraph, exit code 2, nothing written.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--methods", "dito"], "unknown method 'dito': did you mean 'ditto'?"),
        (["compare", "--methods", "ditto", "-s", "ditto.lamb=1"], "has no option 'lamb': did you mean 'lam'?"),
        (["compare", "--methods", "ditto", "-s", "ditto.lam=x"], "is a finite number, not 'x'"),
        (["compare", "-s", "lam=1"], "--set lam=1: say which method"),
        (["compare", "-s", "ditto.lam"], "--set ditto.lam: the form is METHOD.OPTION=VALUE"),
        (["compare", "--data", "digit"], "there is no data 'digit': neither a file or folder, nor a source"),
        (["compare", "-D", "client=9"], "data 'digits' has no option 'client': did you mean 'clients'?"),
        (["compare", "-D", "clients=nine"], "option 'clients' of data 'digits' = 'nine' is wrong"),
        (["compare", "-D", "clients"], "--data-option clients: the form is NAME=VALUE"),
        (["compare", "--rounds", "0"], "'train.rounds' = 0 is wrong"),
        (["compare", "--seeds", "0"], "--seeds 0: at least one seed"),
        (["compare", "--tune", "0"], "'tune' = 0 is wrong"),
        (["compare", "--cohort", "2", "--probability", "0.5"], "exclude each other"),
        (["compare", "--cohort", "1000"], "a cohort of 1000 clients is more than the 27 there are"),
        (["compare", "--hidden", "8"], "model 'softmax' has no hidden layers"),
        (["compare", "-M", "width"], "--model-option width: the form is NAME=VALUE"),
        (["compare", "-M", "width=3"], "model 'softmax' has no option 'width': it has none"),
        (["compare", "--hidden", "a"], "--hidden a: whole numbers, separated by commas"),
        (["compare", "--model", "mlp", "--hidden", "0"], "'model.hidden.0' = 0 is wrong"),
        (["compare", "--model", "forest"], "'model.name' = 'forest' is wrong"),
        (["compare", "--model", "linear"], "model 'linear' does not fit a classification federation"),
        (["compare", "--schedule", "cosinus"], "'train.schedule' = 'cosinus' is wrong"),
        (["compare", "--engine", "remot"], "'train.engine' = 'remot' is wrong: input should be 'vectorized'"),
        (["compare", "--spec", "none.toml"], "there is no spec file 'none.toml'"),
        (["run"], "which method?"),
        (["run", "fedavg"], "did you mean 'fed_avg'?"),
        (["resume", "nowhere"], "'nowhere' is not a run folder"),
        (["report", "nowhere"], "holds no finished run"),
        (["methods", "fedavg"], "unknown method 'fedavg': did you mean 'fed_avg'?"),
        (["methods", "--model", "linear"], "does not fit a classification federation"),
        (["data", "summary", "nowhere"], "there is no data 'nowhere'"),
        (["data", "save", "digits", "-D", "k=0", "--out", "d"], ""),
        (["data", "check", "x.csv", "-D", "colour=red"], "own data has no option 'colour'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_mistake_is_one_paragraph_and_nothing_is_written(tmp_path, arguments, said, as_json):
    assert said in fails(*arguments, *(["--json"] if as_json else []))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("round = 3", "unknown key 'round'"),
        ("methods = ['ditto']", "'methods' must be a table, [methods]"),
        ("[methods]\nditto = 5", "'methods.ditto' must be a table, [methods.ditto]"),
        ("data = 5", "'data' must be a table, [data]"),
        ("[data]\noptions = 5", "'data.options' must be a table, [data.options]"),
        ("[train]\nrounds = '5'", "'train.rounds' = '5' is wrong"),
        ("= 3", "cannot be read"),
    ],
)
def test_a_mistake_in_a_spec_file_is_named(tmp_path, text, said):
    (tmp_path / "s.toml").write_text(text)
    assert said in fails("compare", "--spec", "s.toml", "--methods", "ditto", "-D", "clients=8")
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"]


# Looking at things.


def test_the_catalog_is_printed_for_a_model():
    found = json.loads(call("methods", "--json", "--data", "linear").stdout)
    assert found["model"] == "linear 10-1"
    rows = {row["name"]: row for row in found["methods"]}
    assert set(rows) == set(CATALOG)
    assert rows["fed_avg"]["bytes_up"] == 44 and rows["local"]["bytes_up"] == 0 and rows["scaffold"]["bytes_down"] == 88
    assert rows["ditto"]["bytes_kept"] == 44 and rows["ditto"]["options"]["lam"] == 0.1
    assert {name for name, row in rows.items() if row["unfit"]} == {"fed_proto", "fed_rod"}
    assert "one class each" in rows["fed_rod"]["unfit"] and rows["fed_rod"]["bytes_up"] is None


def test_the_catalog_is_printed_where_some_methods_do_not_fit():
    text = call("methods", "--data", "quadratics").stdout
    assert all(name in text for name in CATALOG) and "-: does not fit this model or these labels" in text


def test_the_catalog_as_a_table_fits_eighty_columns():
    text = call("methods").stdout
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert all(name in text for name in CATALOG) and "softmax 64-10" in text


def test_one_method_is_shown_with_its_text():
    text = call("methods", "ditto").stdout
    assert (
        "pulled towards the shared one" in text and "v <- v - lr [G_i(v) + lam (v - x)]" in text and ">>>" not in text
    )
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(call("methods", "ditto", "--json").stdout)["options"]["lam"] == 0.1


def test_the_sources_are_listed_with_their_options():
    text = call("data", "list").stdout
    assert all(name in text for name in SOURCES) and max(map(len, text.splitlines())) <= 80 and "…" not in text
    rows = json.loads(call("data", "list", "--json").stdout)["sources"]
    assert [row["name"] for row in rows] == list(SOURCES) and rows[0]["options"]["clients"] == 30


def test_a_federation_is_summarized_whole_unless_new_clients_are_asked_for():
    found = json.loads(call("data", "summary", "digits", "--json").stdout)
    assert (found["clients"], found["new_clients"], sum(found["examples"].values())) == (30, 0, 1797)
    found = json.loads(call("data", "summary", "digits", "--new-clients", 0.2, "-D", "clients=20", "--json").stdout)
    assert (found["clients"], found["new_clients"]) == (16, 4)
    assert "clients: 30" in call("data", "summary", "digits").stdout


# Own data, from the file to the result.


def own_csv(path, regression=False):
    """Hospitals with two features; the label follows the first."""
    lines = ["hospital,age,dose,outcome,note"]
    for i in range(150):
        age, dose = RNG.normal(size=2).round(3)
        outcome = f"{2 * age - dose:.3f}" if regression else ("sick" if age > 0 else "well")
        lines.append(f"{['oslo', 'rome', 'bern'][i % 3]},{age},{dose},{outcome},free text")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_csv_file_is_learned_end_to_end(tmp_path, kind):
    own_csv(tmp_path / "d.csv", regression=kind == "regression")
    columns = ["--client", "hospital", "--label", "outcome", "--features", "age,dose"]
    checked = json.loads(call("data", "check", "d.csv", *columns, "--json").stdout)
    assert checked["problems"] == [] and checked["found"]["clients"] == 3 and checked["found"]["task"] == kind
    run = ["run", "local", "--data", "d.csv", *columns, "--rounds", 10, "-s", "local.lr=0.3", "--out", "out"]
    found = json.loads(call(*run, "--json").stdout)
    metrics = found["methods"]["local"]["seeds"][0]["metrics"]["test"]
    if kind == "regression":
        assert found["model"] == "linear 2-1" and metrics["r2"] > 0.9
    else:
        assert found["model"] == "softmax 2-2" and metrics["accuracy"]["mean_weighted"] > 0.85
    text = call("resume", "out").stdout
    assert "local" in text and max(map(len, text.splitlines())) <= 80


def test_every_problem_of_own_data_is_told_at_once_and_nothing_is_written(tmp_path):
    (tmp_path / "d.csv").write_text(
        "client,age,dose,label\n" + "a,31,1,0\na,old,2,1\na,,2,1\nb,40,inf,0\nb,41,1,1\n" + ",50,3,1\n"
    )
    result = call("data", "check", "d.csv", "--json", code=2)
    problems = json.loads(result.stdout)["problems"]
    told = " ".join(problems)
    assert len(problems) >= 3 and "row 3, column 'age': 'old' is not a number" in told
    assert "row 5, column 'dose': infinite" in told and "row 7, column 'client': the client is missing" in told
    text = call("data", "check", "d.csv", code=2).stdout
    assert text.count("problem: ") == len(problems) and f"{len(problems)} problem(s)" in text
    assert f"(and {len(problems) - 1} more problems: apiece data check shows all)" in fails(
        "compare", "--data", "d.csv"
    )
    missing = call("data", "check", "d.csv", "--client", "hospital", "--label", "labl", code=2).stdout
    assert "no column 'hospital' for client" in missing.replace("\n", " ") and "did you mean 'label'?" in missing
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]


def test_a_check_of_nothing_is_a_problem():
    assert "nowhere.csv does not exist" in call("data", "check", "nowhere.csv", code=2).stdout


def test_a_saved_federation_is_compared_like_its_source(tmp_path):
    save = [
        "data",
        "save",
        "digits",
        "--out",
        "saved",
        "-D",
        "clients=12",
        "-D",
        "partition=dirichlet_per_class",
        "-D",
        "alpha=1.0",
    ]
    assert json.loads(call(*save, "--json").stdout) == {"folder": "saved"}
    assert Federation.load(tmp_path / "saved").clients == 12
    before = (tmp_path / "saved" / "train.x.npy").read_bytes()
    assert "saved already exists" in fails(*save)
    assert (tmp_path / "saved" / "train.x.npy").read_bytes() == before
    plan = ["--rounds", 3, "--cohort", 5, "--evaluate-every", 1, "--json"]
    ours = json.loads(call("run", "fed_avg", "--data", "saved", *plan, "--out", "a").stdout)
    theirs = json.loads(call("run", "fed_avg", *save[5:], *plan, "--out", "b").stdout)
    assert ours["federation"] == theirs["federation"] and ours["federation"]["new_clients"] == 1
    assert ours["methods"]["fed_avg"]["seeds"][0]["metrics"] == theirs["methods"]["fed_avg"]["seeds"][0]["metrics"]


def test_a_report_is_written_again(tmp_path):
    call("run", "fed_avg", "--data", "linear", "--rounds", 2, "--evaluate-every", 1)
    page = tmp_path / "runs" / "run-1" / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert json.loads(call("report", "runs/run-1", "--json").stdout) == {
        "report": "runs/run-1/report.html",
        "pictures": [],
    }
    assert page.read_bytes() == before
    call("run", "fed_avg", "--data", "linear", "--rounds", 2, "--evaluate-every", 1)
    assert (tmp_path / "runs" / "run-2" / "record.json").exists(), "the next free folder"


def test_a_method_that_diverged_says_so(tmp_path):
    arguments = ["run", "fed_avg", "--data", "linear", "--rounds", 20, "-s", "fed_avg.lr=500.0"]
    assert "diverged" in call(*arguments, "--out", "a").stdout
    found = json.loads(call("resume", "a", "--json").stdout)
    assert found["methods"]["fed_avg"]["seeds"][0]["metrics"]["test"]["loss"]["mean"] is None


def test_clients_that_are_functions_can_be_run_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, ["run", "fed_clup", "--data", "quadratics", "--rounds", "3", "-s", "fed_clup.batch=0"]
    )
    assert done.exit_code == 0, done.stderr
    assert "fed_clup" in done.stdout and "loss over all clients' 3 test examples" in done.stdout


def test_a_metric_by_name_is_what_is_ranked_by_and_one_with_a_path_is_defined():
    found = values_of({"metric": ["surprise=mine.py:surprise", "surprise"]})
    assert found == {"metrics": {"surprise": "mine.py:surprise"}, "rank": "surprise"}
    with pytest.raises(UserError, match="--metric auc --metric f1: methods are ranked by one metric"):
        values_of({"metric": ["auc", "f1"]})
