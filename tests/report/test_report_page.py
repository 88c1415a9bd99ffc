"""The page: true to the record, whole, self-contained, and safe whatever the clients are called."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from fake_runs import fake_run
from rich.console import Console

from apiece.errors import UserError
from apiece.experiment import read_record
from apiece.report import write_report
from apiece.report.numbers import fixed
from apiece.report.page import render
from apiece.report.story import read_story
from apiece.report.tables import results
from apiece.report.terminal import comparison

EVIL = "<script>alert(1)</script>"
NINE = ("local", "fed_avg", "fed_prox", "ftfa", "rtfa", "ditto", "pfedme", "scaffold", "fed_clup")
CASES = {
    "classification": {"new": 3},
    "regression": {"task": "regression", "new": 2},
    "binary": {"binary": True, "new": 2},
    "new_and_diverged": {"diverged": ("ditto",), "new": 2},
    "new_and_one_seed": {"seeds": 1, "new": 2},
    "one_seed": {"seeds": 1},
    "sampled": {"sampling_error": 0.01},
    "diverged": {"diverged": ("ditto",)},
    "local_diverged": {"diverged": ("local",)},
    "all_diverged": {"diverged": ("local", "fed_avg", "ditto")},
    "without_local": {"methods": ("fed_avg", "ditto")},
    "only_local": {"methods": ("local",)},
    "one_client": {"clients": 1},
    "one_of_everything": {"clients": 1, "seeds": 1, "methods": ("ditto",)},
    "nine_methods": {"methods": NINE},
    "evil": {"clients": 2, "ids": [EVIL, '"><img src=x onerror=alert(1)>\x00'], "name": EVIL},
}


def page(folder: Path, **about) -> str:
    fake_run(folder, **about)
    path = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
JSON = re.compile(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', re.DOTALL)


def text_of(html: str) -> str:
    """What a reader sees, on one line, with plain spaces."""
    html = JSON.sub("", SCRIPT.sub("", html))
    plain = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    return " ".join(plain.replace("&#39;", "'").split())


class Structure(HTMLParser):
    """Which elements are open, and everything that was ever opened."""

    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes something else at {self.getpos()}"


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_run_makes_a_whole_self_contained_page_that_can_be_read_aloud(case, tmp_path):
    html = page(tmp_path, **CASES[case])
    found = Structure(html)
    assert found.open == []
    tags = [tag for tag, _ in found.seen]
    assert not {"img", "link", "iframe", "object"} & set(tags)
    assert "default-src 'none'" in html and "unsafe-eval" not in html  # the browser itself forbids any network
    assert not re.search(r"https?:|@import|url\(", SCRIPT.sub("", html))
    assert not any({"src", "href", "onerror", "onclick"} & set(attributes) for _, attributes in found.seen)
    for name, text in JSON.findall(html):
        assert not re.search(r"\b(NaN|Infinity)\b", text), name
        json.loads(text)
    assert not re.search(r"\b(nan|inf|None|null|undefined)\b", text_of(html))
    check_that_it_can_be_read_aloud(html)


def check_that_it_can_be_read_aloud(html):
    found = Structure(html).seen
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in found if tag == "th")
    drawn = json.loads(dict(JSON.findall(html))["plots"])["roots"]
    assert set(drawn) <= set(ids), "every plot has its place"
    for tag, attributes in found:
        assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)
        if tag == "div" and "plot" in attributes.get("class", ""):
            assert attributes["id"] in drawn, "every place has its plot"
            assert attributes["aria-label"]


def test_the_page_shows_the_numbers_of_the_record(tmp_path):
    record = fake_run(tmp_path, new=3)
    text = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    for method in record["methods"].values():
        for part, statistic in (("test", "mean_weighted"), ("test", "worst10"), ("new_clients", "mean_weighted")):
            found = method["summary"][part]["accuracy"][statistic]
            assert f"{100 * found['mean']:.1f} ± {100 * found['half_width']:.1f}" in text
    hurt = record["methods"]["ditto"]["hurt"]
    assert f"{round(hurt['hurt_proved'] * 12)} of 12" in text
    assert f"({100 * hurt['naive_if_tied']:.0f} %)" in text
    assert "1.5 MB" in text
    assert "lr = 0.125" in text
    assert "0.4321 (chosen)" in text
    assert f"apiece resume {tmp_path.name}" in text


def test_methods_are_ordered_by_test_result(tmp_path):
    record = fake_run(tmp_path)
    text = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    scores = {
        name: [100 * one["metrics"]["test"]["accuracy"]["mean_weighted"] for one in method["seeds"]]
        for name, method in record["methods"].items()
    }
    order = sorted(scores, key=lambda name: -np.mean(scores[name]))
    assert f"{order[0]} has the highest test accuracy" in text
    text = text[text.index(f"{order[0]} has the highest") :]
    assert [text.index(f"{name} {fixed(np.mean(scores[name]))} ± ") for name in order[1:]] == sorted(
        text.index(f"{name} {fixed(np.mean(scores[name]))} ± ") for name in order[1:]
    )


@pytest.mark.parametrize("case", CASES)
def test_terminal_and_page_have_the_order_of_the_record(case, tmp_path):
    fake_run(tmp_path, **CASES[case])
    record = read_record(tmp_path)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(comparison(record))
    names = [line.split()[0] for line in console.export_text().splitlines() if line.strip()]
    assert [name for name in names if name in record.methods][: len(record.methods)] == record.ranking.order
    assert [row[0] for row in results(read_story(tmp_path)).rows] == record.ranking.order


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    text = text_of(page(tmp_path, seeds=1))
    assert "One seed: no interval" in text
    assert "±" not in text


def test_regression_shows_errors_and_the_share_explained(tmp_path):
    record = fake_run(tmp_path, task="regression")
    text = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "has the lowest test mean squared error" in text
    assert "accuracy" not in text
    assert f"{record['methods']['ditto']['summary']['test']['r2']['mean']:.3f} ±" in text
    assert "RMSE of a client" in text and "AUC" not in text


def test_two_classes_show_auc_and_false_accepts(tmp_path):
    record = fake_run(tmp_path, binary=True, new=2)
    text = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    test = record["methods"]["ditto"]["summary"]["test"]
    assert f"{test['auc_pooled']['mean']:.3f} ±" in text
    assert f"{test['auc']['mean']['mean']:.3f} ±" in text
    assert f"{100 * test['false_accepts_pooled']['mean']:.1f} ±" in text
    assert "AUC, new clients" in text and "RMSE" not in text


def test_new_clients_are_shown_by_how_much_they_bring(tmp_path):
    record = fake_run(tmp_path, new=3)
    html = write_report(tmp_path).read_text(encoding="utf-8")
    text = text_of(html)
    plots = json.dumps(json.loads(dict(JSON.findall(html))["plots"]))
    assert all(f'"newcomers-{at}"' in plots for at in range(3)), "a line for each method"
    for method in record["methods"].values():
        for found in method["newcomers"]["accuracy"]:
            assert f"{100 * found['mean']:.1f} ± {100 * found['half_width']:.1f}" in text
    local = 100 * record["methods"]["local"]["newcomers"]["accuracy"][0]["mean"]
    assert re.search(rf"they may use: with 1, .*local {local:.1f} ± [\d.]+ %; with 3, ", text)
    assert "3 clients that never trained, the same at every point" in text


def test_without_new_clients_nothing_is_said_of_them(tmp_path):
    html = page(tmp_path)
    assert "New clients" not in text_of(html) and 'id="newcomers"' not in html


def test_a_diverged_method_is_named_and_stands_last(tmp_path):
    text = text_of(page(tmp_path, diverged=("fed_avg",)))
    assert "fed_avg diverged: a model gave no finite number" in text
    assert "fed_avg diverged –" in text
    assert "A line ends where a seed diverged (fed_avg)" in text


def test_without_local_nobody_is_called_hurt(tmp_path):
    text = text_of(page(tmp_path, methods=("fed_avg", "ditto")))
    assert "proved hurt" not in text
    assert "Nothing to compare" in text


def test_who_looks_worse_is_counted_only_beside_what_chance_makes_of_a_tie(tmp_path):
    text = text_of(page(tmp_path))
    assert re.search(r"Of 12 clients, \d+ scores? better with \w+ than trained alone.* worse \(with no true", text)
    assert "look worse (if tied)" in text


def test_names_are_text_never_markup(tmp_path):
    html = page(tmp_path, **CASES["evil"])
    assert EVIL not in html
    assert "<img" not in SCRIPT.sub("", html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3  # the title, the federation, the client
    assert json.loads(dict(JSON.findall(html))["clients"])["ids"][0] == EVIL
    assert "\x00" not in html


def test_long_names_are_cut(tmp_path):
    html = SCRIPT.sub("", page(tmp_path, clients=1, ids=["x" * 10_000]))
    assert "x" * 100 not in html


@pytest.mark.thorough
def test_30000_clients_fit_into_eight_megabytes_and_the_rest_is_named(tmp_path):
    html = page(tmp_path, clients=30_000, methods=NINE, seeds=1, profile=True)
    assert len(html) < 8_000_000
    data = json.loads(dict(JSON.findall(html))["clients"])
    assert len(data["ids"]) <= 20_000 and data["all"] == 30_000
    assert "The first 200 of 30,000 clients" in text_of(html)


def test_the_page_is_made_again_the_same(tmp_path):
    first = page(tmp_path)
    assert write_report(tmp_path).read_text(encoding="utf-8") == first


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path):
    first = page(tmp_path)
    (tmp_path / "rounds.parquet").write_bytes(b"not a table")
    with pytest.raises(UserError, match="cannot be read"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == first
    assert len(list(tmp_path.iterdir())) == 4


def test_the_page_shows_gains_as_the_table_of_clients_has_them(tmp_path):
    fake_run(tmp_path, task="regression")
    story = read_story(tmp_path)
    data = json.loads(dict(JSON.findall(render(story)))["clients"])
    scores = {name: np.array(column) for name, column in data["scores"]["error"].items()}
    found = data["metrics"][0]["points"] * (scores["local"] - scores["ditto"])
    np.testing.assert_allclose(found, story.clients["ditto"].gain, atol=0.02)


def test_an_older_run_without_profile_has_no_pictures_of_who_clients_are(tmp_path):
    assert "Who the clients are" not in text_of(page(tmp_path / "old"))
    text = text_of(page(tmp_path / "new", profile=True))
    assert "3 groups of like clients" in text and "Degree of personalization" in text
    assert "The median client has examples of" in text


def test_advice_in_the_folder_is_shown(tmp_path):
    fake_run(tmp_path)
    (tmp_path / "advice.json").write_text('{"answer": "personalize <b>half</b>", "lam": 0.3}', encoding="utf-8")
    html = write_report(tmp_path).read_text(encoding="utf-8")
    assert "What was advised before" in text_of(html) and "personalize &lt;b&gt;half" in html


@pytest.mark.parametrize("name", ["record.json", "rounds.parquet", "clients.parquet"])
def test_an_unfinished_run_is_named(name, tmp_path):
    fake_run(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        write_report(tmp_path)
