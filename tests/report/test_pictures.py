"""A run's pictures: the numbers that are drawn, on the page and as files for papers."""

import json
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_runs import fake_run
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.experiment.record import Candidate
from apiece.report import write_picture, write_pictures, write_runs
from apiece.report.answer import answer, written_options
from apiece.report.client_data import client_data
from apiece.report.client_findings import convergence, gains, labels, likeness, sizes, trouble
from apiece.report.client_plots import client_plots
from apiece.report.figure import Figure, Line, Panel, checked, scales
from apiece.report.look import COLOURS, key, look, mark
from apiece.report.outside import limits
from apiece.report.pictures import curve_panel, figures_of, gains_panel, tuning_panels
from apiece.report.plots import outside_words, panel_plot
from apiece.report.story import read_story
from apiece.wrap.inside import Rejections


def test_gains_are_those_of_the_table_of_clients_from_the_least_to_the_largest(tmp_path):
    fake_run(tmp_path, new=3)
    story = read_story(tmp_path)
    panel = gains_panel(story)
    assert {line.name for line in panel.lines} == {"fed_avg", "ditto"}
    line = next(line for line in panel.lines if line.name == "ditto")
    np.testing.assert_array_equal(line.y, np.sort(story.clients["ditto"].gain[~story.clients["ditto"].new]))


def test_a_picture_is_a_file_of_the_kind_that_its_name_says(tmp_path):
    pytest.importorskip("matplotlib")
    fake_run(tmp_path, ids=["\x00\x1b", *(f"<{k}>" for k in range(11))])
    root = ElementTree.parse(write_picture(tmp_path, tmp_path / "gains.svg")).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    first = (tmp_path / "gains.svg").read_bytes()
    assert write_picture(tmp_path, tmp_path / "gains.svg").read_bytes() == first
    written = write_pictures(tmp_path, "png")
    assert {file.stem for file in written} == set(figures_of(read_story(tmp_path)))
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in written)


@pytest.mark.parametrize(("name", "said"), [("gains.svg", "no gains to draw"), ("gains.pdf", "ends in .png or .svg")])
def test_what_cannot_be_drawn_is_said(name, said, tmp_path):
    fake_run(tmp_path, methods=("local",))
    with pytest.raises(UserError, match=said):
        write_picture(tmp_path, tmp_path / name)


def test_what_the_guard_rejected_is_told_by_the_names_it_is_counted_by(tmp_path):
    fake_run(tmp_path)
    story = read_story(tmp_path)
    assert trouble(story) == ("", None)
    for number, reason in enumerate(Rejections._fields):
        story.methods["ditto"].costs[reason] = 3.0 + number
    heads, rows = trouble(story)[1][:2]
    assert [head for head, _ in heads][1:] == ["rejected as no numbers", "rejected as too large"]
    assert dict((name, cells) for name, *cells in rows)["ditto"] == ["3", "4"]


def test_a_diverged_line_does_not_squeeze_a_panel_and_is_named():
    x = np.array([1.0, 2.0, 3.0])
    lines = [Line("a", x, x), Line("b", x, 2 * x), Line("c", x, 1e9 * x)]
    (panel,) = checked(Figure("", "", [Panel("", "x", "y", lines)])).panels
    assert scales(panel)[1][1] < 10
    assert outside_words(panel).startswith("outside: c, to ")
    assert panel_plot("p", panel).y_range.end < 10


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_an_axis_shows_all_values(low, width):
    left, right = limits([low, low + width])
    assert left < low and low + width < right


def test_twenty_methods_are_told_apart_by_line_and_by_mark():
    assert len({look(style) for style in range(20)}) == 20
    assert len({(look(style)[0], *mark(style)) for style in range(20)}) == 20
    assert all(look(style)[0] in key(style) for style in range(20))
    assert "#000000" not in COLOURS, "black is not seen in the dark"


# Machado, Oliveira and Fernandes 2009: linear light as it is seen without red, green and blue cones.
SEEN = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def light(colour):
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(seen):
    x, y, z = np.cbrt(TO_XYZ @ np.clip(seen, 0.003, 1) / np.array([0.9505, 1, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
def test_no_two_colours_are_alike_to_anybody(eyes):
    """Where they are near, lines differ in their dashes and dots in their form, too."""
    for one in range(len(COLOURS)):
        for other in range(one):
            apart = np.linalg.norm(np.subtract(*(lab(np.array(SEEN[eyes]) @ light(COLOURS[k])) for k in (one, other))))
            assert apart > (25 if eyes == "all" else 8), (COLOURS[one], COLOURS[other])
            same = look(one)[1] == look(other)[1] and mark(one) == mark(other)
            assert apart > 20 or not same


@pytest.mark.parametrize("ground", ["#ffffff", "#15181c"])
def test_every_colour_is_seen_on_light_and_on_dark_ground(ground):
    bright = lambda colour: TO_XYZ[1] @ light(colour) + 0.05
    for colour in COLOURS:
        low, high = sorted((bright(colour), bright(ground)))
        assert high / low > 2.2, colour


def test_accuracy_can_be_drawn_against_what_was_spent(tmp_path):
    fake_run(tmp_path)
    story = read_story(tmp_path)
    panel = curve_panel(story, "score", "gradients")
    np.testing.assert_allclose(panel.lines[0].y, 100 * (1 - story.errors["local"].mean))
    np.testing.assert_allclose(panel.lines[0].x, [2000, 4000, 6000])


def test_tuning_shows_every_trial_that_has_a_loss(tmp_path):
    fake_run(tmp_path)
    story = read_story(tmp_path)
    tried = [
        Candidate(options={"lr": lr}, validation_loss=loss) for lr, loss in ((0.1, 2.0), (0.2, 1.0), (0.4, np.nan))
    ]
    ditto = story.methods["ditto"].model_copy(update={"tuning": tried, "chosen": 1})
    record = story.record.model_copy(update={"methods": story.methods | {"ditto": ditto}})
    (panel,) = tuning_panels(story._replace(record=record))
    assert panel.title == "lr" and panel.lines[0].x.tolist() == [0.1, 0.2]


def test_every_picture_of_clients_has_a_sentence_and_a_table(tmp_path):
    fake_run(tmp_path, clients=30, profile=True)
    story = read_story(tmp_path)
    for describe in (gains, sizes, labels, likeness, convergence):
        said, table = describe(story)
        assert said.endswith(".") and table is not None and table.rows
        assert all(len(row) == len(table.heads) for row in table.rows)


def test_the_answer_is_chosen_by_validation_and_says_what_to_do(tmp_path):
    fake_run(tmp_path, seeds=1)
    story = read_story(tmp_path)
    found = answer(story)
    chosen = story.record.ranking.by_validation
    assert found.headline == f"Run {chosen} with {written_options(story.methods[chosen])}."
    assert dict(found.facts)["Proved hurt"].startswith("nobody") or story.methods[chosen].harm.hurt_proved
    commands = [step.command for step in found.steps]
    assert any(command.startswith("apiece compare --spec") and "--seeds 3" in command for command in commands)
    assert any(command.startswith(f"apiece predict {tmp_path.name}") for command in commands)


def test_where_nothing_is_proved_the_clients_most_at_risk_are_named(tmp_path):
    fake_run(tmp_path, profile=True)
    story = read_story(tmp_path)
    chosen = story.record.ranking.by_validation
    rows = story.verdicts.to_pydict()
    risk = [
        0.9 if client == rows["client"][3] else 0.6 if client == rows["client"][1] else 0.2 for client in rows["client"]
    ]
    at = story.verdicts.schema.get_field_index("risk")
    harm = story.methods[chosen].harm.model_copy(update={"named": [], "hurt_proved": 0.0})
    methods = story.record.methods | {chosen: story.methods[chosen].model_copy(update={"hurt": harm})}
    record = story.record.model_copy(update={"methods": methods})
    told = story._replace(record=record, verdicts=story.verdicts.set_column(at, "risk", [risk]))
    wanted = f"Most at risk: {rows['client'][3]} (90 %) and {rows['client'][1]} (60 %)."
    assert dict(answer(told).facts)["Proved hurt"].endswith(wanted)
    nobody = told._replace(verdicts=told.verdicts.set_column(at, "risk", [[0.3] * len(risk)]))
    assert "at risk" not in dict(answer(nobody).facts)["Proved hurt"]


def test_where_everything_diverged_there_is_nothing_to_run(tmp_path):
    fake_run(tmp_path, diverged=("local", "fed_avg", "ditto"))
    assert answer(read_story(tmp_path)).headline == "Nothing to run yet: every method diverged."


def test_runs_stand_side_by_side_and_the_same_one_is_refused(tmp_path):
    fake_run(tmp_path / "one", clients=12)
    fake_run(tmp_path / "two", clients=12, methods=("local", "ditto"))
    html = write_runs([tmp_path / "one", tmp_path / "two"], tmp_path / "both.html").read_text(encoding="utf-8")
    assert "2 runs side by side" in html and "Client by client: one and two" in html
    assert len(re.findall(r'class="answer"', html)) == 2
    with pytest.raises(UserError, match="named twice"):
        write_runs([tmp_path / "one", tmp_path / "one"], tmp_path / "both.html")


def test_a_value_at_the_edge_of_what_was_tried_is_something_to_do_next(tmp_path):
    fake_run(tmp_path, clients=40)
    path = tmp_path / "record.json"
    values = json.loads(path.read_text())
    for name, method in values["methods"].items():
        edges = [{"option": "lr", "value": 0.125, "end": "highest"}] if name in ("ditto", "fed_avg") else []
        still = {"mean": 0.0, "low": 0.0, "high": 0.0, "half_width": 0.0}
        method["convergence"] = {"state": "resting", "by_seed": {}, "rounds": 30, "looks": 5, "loss": 2.0, "gain": 0.0,
                                 "edges": edges, "change": still}  # fmt: skip
    path.write_text(json.dumps(values))
    found = answer(read_story(tmp_path))
    step = next(step for step in found.steps if "edge" in step.why)
    chosen = found.headline.split()[1]
    words = shlex.split(step.command)
    settings = [words[at + 1] for at, word in enumerate(words) if word == "-s"]
    assert sorted(settings) == ["ditto.lr={range = [0.125, 1.25]}", "fed_avg.lr={range = [0.125, 1.25]}"]
    assert chosen not in ("ditto", "fed_avg") or settings[0].startswith(chosen)


@pytest.mark.parametrize(
    ("looks", "rounds", "command"),
    [(2, 30, "--evaluate-every 1 --out"), (2, 10, "--rounds 20"), (6, 30, "--rounds 60")],
)
def test_where_nobody_knows_whether_it_rests_there_is_a_way_to_find_out(looks, rounds, command, tmp_path):
    fake_run(tmp_path, clients=40)
    path = tmp_path / "record.json"
    values = json.loads(path.read_text())
    values["spec"]["train"]["rounds"] = rounds
    still = {"mean": 0.0, "low": 0.0, "high": 0.0, "half_width": 0.0}
    for method in values["methods"].values():
        method["convergence"] = {"state": "unknown", "by_seed": {}, "rounds": rounds, "looks": looks, "loss": 2.0,
                                 "gain": 0.0, "edges": [], "change": still}  # fmt: skip
    path.write_text(json.dumps(values))
    found = answer(read_story(tmp_path))
    assert any(command in step.command for step in found.steps)
    assert ("2 looks" in dict(found.facts)["Converged"]) == (looks == 2)


def test_whom_a_client_learns_from_is_on_its_card(tmp_path):
    fake_run(tmp_path, clients=4)
    path = tmp_path / "record.json"
    values = json.loads(path.read_text())
    ids = ["c0", "c1", "c2", "c3"]
    weights = [[0.5, 0.3, 0.2, 0.0], [0.0, 1.0, 0.0, 0.0], [0.25] * 4, [0.0, 0.0, 2.0, 2.0]]
    values["methods"]["ditto"]["partners"] = {
        "clients": ids, "groups": [0] * 4, "weights": weights, "bias": [[0.0] * 4] * 4,
    }  # fmt: skip
    path.write_text(json.dumps(values))
    data = client_data(read_story(tmp_path))
    learned, at = data["learns_from"]["ditto"], data["ids"].index
    others = {one: [data["ids"][k] for k in learned["from"][at(one)]] for one in ids}
    assert others["c0"] == ["c1", "c2"] and others["c1"] == [] and others["c3"] == ["c2"]
    assert learned["weight"][at("c0")] == [0.3, 0.2] and learned["weight"][at("c3")] == [0.5]


def test_clients_of_one_size_are_sorted_and_not_spread_over_an_axis_of_sizes(tmp_path):
    fake_run(tmp_path, clients=20)
    table = pq.read_table(tmp_path / "clients.parquet")
    same = table.set_column(table.column_names.index("train_examples"), "train_examples", pa.array([30] * len(table)))
    pq.write_table(same, tmp_path / "clients.parquet")
    data = client_data(read_story(tmp_path))
    plots = client_plots(data)
    assert data["same_size"] and "sizes" not in plots
    assert "from the least score" in plots["scores"].xaxis[0].axis_label


def test_a_gain_that_may_be_none_is_no_reason_to_run_anything(tmp_path):
    fake_run(tmp_path)
    story = read_story(tmp_path)
    chosen = story.record.ranking.by_validation
    harm = story.methods[chosen].harm
    assert harm.gain.low > 0 and answer(story).headline.startswith(f"Run {chosen}")
    doubtful = harm.model_copy(update={"gain": harm.gain._replace(low=-0.1)})
    story.methods[chosen] = story.methods[chosen].model_copy(update={"hurt": doubtful})
    said = answer(story).headline
    assert said.startswith("Nothing is shown to beat being trained alone here (") and f"run {chosen} with" in said
