"""What is said of runs that have not come to rest: who, by how much, what to do, and which verdicts wait."""

import io
import json

import pytest
from fake_runs import fake_run
from rich.console import Console

from apiece.experiment import read_record
from apiece.experiment.record import Edge
from apiece.report.convergence import convergence, so_far
from apiece.report.findings import findings
from apiece.report.page import render
from apiece.report.story import read_story
from apiece.report.tables import hurt_table
from apiece.report.terminal import comparison

RESTING = {"state": "resting", "by_seed": {}, "rounds": 30, "looks": 5, "loss": 2.0, "gain": 0.001, "edges": [],
           "change": {"mean": 0.0, "low": -0.1, "high": 0.1, "half_width": 0.1}}  # fmt: skip


@pytest.fixture
def story_of(tmp_path):
    """The story of a made run in which methods are not at rest: name -> what of its convergence is different."""

    def make(train=None, **methods):
        fake_run(tmp_path / "run", clients=40)
        path = tmp_path / "run" / "record.json"
        values = json.loads(path.read_text())
        values["spec"]["train"] |= train or {}
        for name, method in values["methods"].items():
            method["convergence"] = RESTING | methods.get(name, {})
            moves = "improving" in (methods.get(one, {}).get("state") for one in (name, "local"))
            if method["hurt"]:
                method["hurt"]["so_far"] = moves
        path.write_text(json.dumps(values))
        return read_story(tmp_path / "run")

    return make


def words(story):
    return " ".join(findings(story)).replace("\N{NO-BREAK SPACE}", " ")


def printed(record):
    console = Console(width=2000, file=io.StringIO())
    console.print(comparison(record))
    return console.file.getvalue()


def test_a_run_at_rest_says_nothing_of_it(story_of):
    story = story_of()
    assert convergence(story.record) == so_far(story.record) == []
    assert "so far" not in words(story) and "still improve" not in render(story)
    assert "tell ditto apart" in words(story) or "told apart" in words(story)


def test_a_record_that_does_not_know_says_nothing(tmp_path):
    fake_run(tmp_path)
    assert convergence(read_record(tmp_path)) == []


def test_who_still_improves_is_named_with_what_is_gained_and_how_to_go_on(story_of):
    story = story_of(fed_avg={"state": "improving", "gain": 0.3}, local={"state": "improving", "gain": 0.04})
    (told,) = convergence(story.record, "runs/mine")
    assert told == ("Still improving: local and fed_avg. As many rounds again are expected to lower their validation "
                    "loss by 2 % and 15 %, in this order. Go on: apiece resume runs/mine --rounds 60")  # fmt: skip
    assert "apiece resume run --rounds 60" in words(story)
    assert "apiece resume RUN --rounds 60" in printed(story.record)


@pytest.mark.parametrize("train", [{"schedule": "cosine"}, {"stop": {"patience": 5}}, {"schedule": "mine.py:steps"}])
def test_where_the_end_was_planned_a_new_run_is_the_remedy(story_of, train):
    (told,) = convergence(story_of(train, local={"state": "improving", "gain": 0.3}).record)
    assert "start a new run with --rounds 60" in told and "resume" not in told


def test_nothing_is_told_apart_from_one_that_may_catch_up(story_of):
    story = story_of(local={"state": "improving", "gain": 0.3}, fed_avg={"state": "improving", "gain": 0.3})
    behind = story.record.ranking.behind
    assert story.order[0] == "ditto" and not any(gap.told_apart for gap in behind.values())
    assert behind["local"].so_far
    assert "ditto is ahead of" in words(story) and "still improve" in words(story)
    assert "apart from local" not in words(story)
    assert "ditto is ahead so far" in printed(story.record)


def test_who_is_hopelessly_behind_is_told_apart_though_it_improves(story_of):
    story = story_of(local={"state": "improving", "gain": 0.1, "loss": 3.0})
    assert story.record.ranking.behind["local"].told_apart
    assert "is ahead of" not in words(story)


def test_nobody_is_proved_hurt_while_local_or_the_method_improves(story_of):
    story = story_of(local={"state": "improving", "gain": 0.3})
    assert "none is proved hurt so far" in words(story)
    assert all(row[2].endswith("so far") for row in hurt_table(story).rows)
    assert "nothing is proved: local still improves" in printed(story.record)
    harm = story.methods["ditto"].hurt.model_copy(update={"hurt_proved": 0.1})
    story.methods["ditto"] = story.methods["ditto"].model_copy(update={"hurt": harm})
    assert "so far 4 look hurt, which proves nothing while local still improves" in words(story)


def test_what_else_is_not_at_rest_is_said_with_its_remedy(story_of):
    edge = {"option": "lr", "value": 3.0, "end": "highest"}
    few = {"state": "unknown", "looks": 1}
    story = story_of(local={"state": "rising"}, fed_avg=few, ditto={"edges": [edge]})
    rising, unknown, tried = convergence(story.record)
    assert rising.startswith("Getting worse: the validation loss of local grows") and "[train.stop]" in rising
    assert unknown.startswith("Too few looks to tell whether fed_avg has come to rest: 1 at validation")
    assert "ditto.lr = 3 (highest)" in tried and "methods.ditto.lr = {range = [3, 30]}" in tried
    noisy = story_of(fed_avg={"state": "unknown", "looks": 5}, local={"state": "unknown", "looks": 5})
    assert convergence(noisy.record)[0].startswith("Too much noise to tell whether local and fed_avg have come to rest")


def test_below_the_lowest_is_where_to_look_from_there(story_of):
    edge = Edge(option="lam", value=0.05, end="lowest").model_dump()
    (told,) = convergence(story_of(ditto={"edges": [edge]}).record)
    assert "methods.ditto.lam = {range = [0.005, 0.05]}" in told


def test_on_the_terminal_only_who_is_accused_is_cleared(story_of):
    story = story_of(ditto={"state": "improving", "gain": 0.3})
    assert story.methods["ditto"].harm.so_far and so_far(story.record) == [], "nobody looks hurt"
    harm = story.methods["ditto"].hurt.model_copy(update={"hurt_proved": 0.1})
    story.methods["ditto"] = story.methods["ditto"].model_copy(update={"hurt": harm})
    assert so_far(story.record) == ["Nobody is proved hurt yet: ditto still improves, and may catch up with local."]
