"""A run folder is a product: elsewhere, and without the data, it predicts as the run did and takes newcomers in."""

import shutil

import jax
import numpy as np
import pytest

import apiece
from apiece.data import Federation, Split, digits
from apiece.errors import UserError
from apiece.experiment.opened import open as open_run
from apiece.files import read_json, write_json
from apiece.models import softmax

SIDES = ("north", "south", "")


def row(clinic, k):
    """The cells of a patient: a gap now and then, words, and two features of very different scale."""
    age, part = "" if k % 7 == 3 else 40 + 3 * (k % 11), ("train", "train", "validation", "test")[k % 4]
    ill = "yes" if (k + clinic) % 3 == 0 else "no"
    return {"clinic": f"c{clinic}", "age": age, "side": SIDES[k % 3], "dose": 1000 * (k % 5), "split": part, "ill": ill}


ROWS = [row(clinic, k) for clinic in range(4) for k in range(24)]


def write_csv(file, rows):
    file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, one.values())) for one in rows)]) + "\n", "utf-8")
    return file


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """(what the run found, its folder elsewhere, its data gone)."""
    place = tmp_path_factory.mktemp("moved")
    file = write_csv(place / "clinics.csv", ROWS)
    columns = dict(client="clinic", label="ill", standardize=True)
    methods = {"knn_per": {"neighbours": 3, "steps": 2}, "ditto": {"steps": 2}}
    found = apiece.compare(file, methods, rounds=2, seeds=2, tune=1, out=place / "run", data_options=columns,
                           baselines=False)  # fmt: skip
    file.unlink()
    shutil.move(place / "run", place / "elsewhere")
    return found, place / "elsewhere"


@pytest.fixture(scope="module")
def opened(moved):
    return open_run(moved[1])


@pytest.mark.parametrize("method", ["ditto", "knn_per"])
def test_a_moved_run_predicts_as_the_run_did(moved, opened, tmp_path, method):
    """The log loss of every test example, as the run judged it, is that of what the folder predicts."""
    found, _ = moved
    outcome = found.trials[method][1]
    losses, offsets = outcome.scores("test", "loss")
    for number, client in enumerate(found.place.ids):
        tested = [one for one in ROWS if one["clinic"] == client and one["split"] == "test"]
        said = opened.predict(str(client), write_csv(tmp_path / "new.csv", tested), method=method, seed=1)
        truth = [said.classes.index(one["ill"]) for one in tested]
        expected = losses[offsets[number] : offsets[number + 1]]
        np.testing.assert_allclose(np.sort(losses_of(said, truth)), np.sort(expected), atol=1e-6)


def test_a_table_is_as_good_as_a_file_and_as_the_examples_themselves(moved, opened):
    found, _ = moved
    some = [one for one in ROWS if one["clinic"] == "c1" and one["split"] == "train"]
    numbers = lambda name: [np.nan if one[name] == "" else float(one[name]) for one in some]
    table = {"side": [one["side"] for one in some], "dose": numbers("dose"), "age": numbers("age")}
    federation = found.place.federation
    examples = federation.train.client(1)[0]
    by_table, by_array = (opened.predict("c1", rows).outputs for rows in (table, np.asarray(examples)))
    np.testing.assert_array_equal(np.sort(by_table, axis=0), np.sort(by_array, axis=0))


def test_the_folder_tells_what_was_found_without_its_data(moved, opened):
    found, folder = moved
    assert opened.record.plain() == found.record.plain()
    assert [line["method"] for line in opened.table] == found.record.ranking.order
    recommended = [line["method"] for line in opened.table if line["recommended"]]
    assert recommended == [found.record.ranking.by_validation] == [opened.product.recommended]
    assert apiece.report.write_report(folder).is_file()
    with pytest.raises(UserError, match=r"there is no data .*apiece.open\('.*elsewhere'\) reads it without"):
        apiece.resume(folder)


def test_personal_models_are_those_of_the_run(moved, opened):
    found, folder = moved
    here = apiece.experiment.Comparison(found.record, folder, found.trials, found.place, found.rows, {})
    for method in ("ditto", "knn_per"):
        kept, mine = here.personal(method, "c2"), opened.personal("c2", method=method)
        assert jax.tree.structure(kept) == jax.tree.structure(mine)
        jax.tree.map(np.testing.assert_array_equal, kept, mine)


@pytest.mark.parametrize("method", ["ditto", "knn_per"])
def test_a_newcomer_is_kept_by_name_and_predicted_for(moved, tmp_path, method):
    shutil.copytree(moved[1], tmp_path / "run")
    run = open_run(tmp_path / "run")
    own = write_csv(tmp_path / "lima.csv", [row(9, k) for k in range(8)])
    made = run.onboard(own, name="Lima / 9", method=method)
    assert run.newcomers == ["Lima / 9"] and run.clients[-1] == "Lima / 9"
    again = open_run(tmp_path / "run")
    said = [run.predict(made, own, method=method), again.predict("Lima / 9", own, method=method)]
    np.testing.assert_array_equal(said[0].outputs, said[1].outputs)
    with pytest.raises(UserError, match=r"has a model by '.*' already"):
        run.onboard(own, name="Lima / 9", method=method)
    with pytest.raises(UserError, match="'c1' is a client of the run"):
        run.onboard(own, name="c1", method=method)
    other = "knn_per" if method == "ditto" else "ditto"
    with pytest.raises(UserError, match=f"came after the run, and has no model by '{other}'"):
        again.predict("Lima / 9", own, method=other)


def losses_of(said, truth):
    return -np.log(said.probabilities[np.arange(len(truth)), truth])


def test_a_network_on_pictures_predicts_from_the_folder_as_the_run_did(tmp_path):
    flat = digits(clients=3).take([0, 1])
    shaped = lambda split: Split(split.x.reshape(-1, 8, 8), split.y, split.offsets)
    parts = [shaped(getattr(flat, part)) for part in ("train", "validation", "test")]
    federation = Federation("pictures", flat.ids, *parts, task="classification", classes=flat.classes)
    how = dict(rounds=1, seeds=1, tune=1, baselines=False, model="cnn2", model_options={"width": 2, "hidden": [4]})
    methods = {"fed_avg": {"steps": 1, "batch": 4}}
    found = apiece.compare(federation, methods, out=tmp_path / "run", **how)
    shutil.rmtree(tmp_path / "run" / "federation")
    run = open_run((tmp_path / "run").rename(tmp_path / "elsewhere"))
    losses, offsets = found.trials["fed_avg"][0].scores("test", "loss")
    x, y = federation.test.client(1)
    np.testing.assert_allclose(losses_of(run.predict("1", x), y), losses[offsets[1] : offsets[2]], atol=1e-6)


@pytest.mark.parametrize("how", [{}, {"engine": "remote"}])
def test_a_newcomer_is_given_the_same_model_by_the_folder_as_by_the_run(tmp_path, how):
    federation = digits(clients=4)
    fitted = apiece.fit("ditto", federation=federation, rounds=2, options={"steps": 2}, **how)
    run = open_run(fitted.save(tmp_path / "run"))
    x, y = np.asarray(federation.test.x[:5]), np.asarray(federation.test.y[:5])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), run.onboard(x, y), fitted.onboard(x, y))
    np.testing.assert_array_equal(run.predict("1", x).outputs, fitted.predict("1", x))
    with pytest.raises(UserError, match=r"no record\.json"):
        _ = run.record


def test_values_are_given_in_their_own_units(tmp_path):
    rows = [{"client": "ab"[k % 2], "height": 150 + k, "label": 0.5 * k + 10 + 1e-3} for k in range(40)]
    federation = apiece.data.load(write_csv(tmp_path / "weights.csv", rows), standardize=True)
    fitted = apiece.fit("local", federation=federation, rounds=2, options={"steps": 3})
    run = open_run(fitted.save(tmp_path / "run"))
    scaling = federation.scaling
    x = scaling.inputs(np.array([[170.0]])).astype(np.float32)
    expected = scaling.in_own_units(fitted.predict("a", x))
    said = run.predict("a", {"height": [170.0]})
    np.testing.assert_allclose(said.values, expected, rtol=1e-6)
    assert list(said.columns()) == ["prediction"]


def own_method(loss, *, lr=0.1, shrink=0.5):
    """A method with a way to predict of its own."""
    base = apiece.CATALOG["fed_avg"](loss, lr=lr, steps=1)
    return base._replace(predict=lambda apply, params, x: shrink * apply(params, x))


def test_ones_own_things_are_found_again_or_asked_for(tmp_path):
    federation, x = digits(clients=3), np.ones((2, 64), np.uint8)
    model = softmax((64,), 10)
    fitted = apiece.fit(own_method, model, federation, rounds=1, options={"shrink": 0.25})
    folder = fitted.save(tmp_path / "run")
    table = read_json(folder / "models" / "product.json")["methods"]["own_method"]["table"]
    assert table["method"].endswith(":own_method") and table["shrink"] == 0.25
    with pytest.raises(UserError, match=r"'model' of the run .* as an object.*apiece.open\(folder, model=\.\.\.\)"):
        open_run(folder).predict("1", x)
    with pytest.raises(UserError, match="not the one of the run, softmax 64-10: 'b' has the shape"):
        open_run(folder, model=softmax((64,), 9)).predict("1", x)
    np.testing.assert_allclose(open_run(folder, model=model).predict("1", x).outputs, fitted.predict("1", x), atol=1e-6)


@pytest.mark.thorough
def test_a_method_in_stages_is_opened(tmp_path):
    stages = [{"method": "fed_avg", "steps": 1, "rounds": 1}, {"method": "ditto", "steps": 1}]
    found = apiece.compare(digits(clients=3), {"warm": {"stages": stages}}, rounds=2, seeds=1, tune=1,
                           out=tmp_path / "run", baselines=False)  # fmt: skip
    run = open_run(tmp_path / "run")
    model = found.personal("warm", "1")
    x = np.ones((2, 64), np.uint8)
    expected = np.asarray(found.place.model.apply(model, jax.numpy.asarray(x)))
    np.testing.assert_allclose(run.predict("1", x).outputs, expected, atol=1e-6)


@pytest.mark.parametrize("how", [{}, {"cohort": 2, "schedule": "exponential"}, {"engine": "remote"}])
def test_five_rounds_and_five_more_are_ten_to_the_last_digit(how):
    federation, options = digits(clients=4), {"steps": 2}
    ten = apiece.fit("ditto", federation=federation, rounds=4, options=options, **how)
    more = apiece.fit("ditto", federation=federation, rounds=2, options=options, **how).advance(2)
    jax.tree.map(np.testing.assert_array_equal, more.run.server, ten.run.server)
    np.testing.assert_array_equal(more.personal("2")["w"], ten.personal("2")["w"])
    assert {**more.costs, "seconds": 0} == {**ten.costs, "seconds": 0}
    assert [look["round"] for look in more.curve] == [2, 4] and more.curve[1]["seconds"] > more.curve[0]["seconds"]


def test_a_run_that_was_planned_to_its_end_does_not_go_on():
    federation = digits(clients=3)
    with pytest.raises(UserError, match="planned for 1 rounds by the schedule 'cosine'"):
        apiece.fit("fed_avg", federation=federation, rounds=1, schedule="cosine").advance(1)
    with pytest.raises(UserError, match="at least one"):
        apiece.fit("fed_avg", federation=federation, rounds=1).advance(0)


def test_what_does_not_fit_is_said(opened, moved, tmp_path):
    x = np.zeros((1, len(opened.product.features)), np.float32)
    for wrong, said in [
        (lambda: opened.predict("c9", x), "no client 'c9'.*c1"),
        (lambda: opened.predict("c1", x, method="dito"), "no method 'dito'.*did you mean 'ditto'"),
        (lambda: opened.predict("c1", x, seed=7), "no seed 7 in .*there are: 0, 1"),
        (lambda: opened.predict("c1", x[:, 1:]), "a batch of examples of shape"),
        (lambda: opened.predict("c1", {"age": [1.0]}), "no columns 'side', 'dose'"),
        (lambda: opened.predict("c1", 5), "rows are given as the path of a file"),
        (lambda: opened.onboard(x), r"need their targets beside them: onboard\(x, y\)"),
        (lambda: opened.onboard(x, [1, 0]), "as many targets as examples"),
        (lambda: open_run(tmp_path / "nothing"), "there is no run folder"),
        (lambda: open_run(tmp_path), "which says how the models predict"),
    ]:
        with pytest.raises(UserError, match=said):
            wrong()
    broken = tmp_path / "models" / "product.json"
    for change, said in [({"format": 99}, "has format 99"), ({"clients": 5}, "is damaged: 'clients'")]:
        write_json(broken, {**opened.product.plain(), **change})
        with pytest.raises(UserError, match=said):
            open_run(tmp_path)


def test_an_older_finished_run_gets_its_product_when_it_is_resumed(tmp_path):
    out = tmp_path / "run"
    apiece.compare(digits(clients=3), {"fed_avg": {"steps": 1}}, rounds=1, seeds=1, tune=1, out=out, baselines=False)
    product = (out / "models" / "product.json").read_bytes()
    (out / "models" / "product.json").unlink()
    apiece.resume(out)
    assert (out / "models" / "product.json").read_bytes() == product


def draw_cameras(folder):
    """Two cameras with three bright and three dark pictures each, the label a folder."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for camera in ("north", "south"):
        for label, level in (("dark", 30), ("bright", 200)):
            (folder / camera / label).mkdir(parents=True)
            for k in range(5):
                pixels = np.clip(rng.normal(level, 10, (4, 4)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / camera / label / f"{k}.png")
    return folder


def test_pictures_that_come_later_are_named_by_their_files_and_may_lack_labels(tmp_path):
    cameras = draw_cameras(tmp_path / "cameras")
    fitted = apiece.fit("fed_avg", federation=apiece.data.load(cameras), rounds=3, options={"steps": 3, "batch": 4})
    run = open_run(fitted.save(tmp_path / "run"))
    said = run.predict("north", cameras / "south")
    assert said.columns()["row"][0] == "bright/0.png" and len(said.labels) == 10
    flat = tmp_path / "flat"
    flat.mkdir()
    shutil.copy(cameras / "south" / "dark" / "3.png", flat / "one.png")
    alone = [run.predict("north", path) for path in (flat, flat / "one.png", cameras / "south" / "dark" / "3.png")]
    assert [one.columns()["row"] for one in alone] == [["one.png"], ["one.png"], ["3.png"]]
    for one in alone:
        np.testing.assert_allclose(one.outputs[0], said.outputs[said.called.index("dark/3.png")], atol=1e-6)
    made = run.onboard(cameras / "south", name="later")
    np.testing.assert_array_equal(run.predict(made, flat).outputs, run.predict("later", flat).outputs)
    with pytest.raises(UserError, match="no column 'label' with the target"):
        run.onboard(flat, name="unlabelled")
    (flat / "one.png").unlink()
    with pytest.raises(UserError, match="holds no picture"):
        run.predict("north", flat)


def test_a_text_that_comes_later_is_cut_as_in_training(tmp_path):
    folder = tmp_path / "authors"
    folder.mkdir()
    for author, words in (("ada", "to be or not "), ("bob", "a rose is a rose ")):
        (folder / f"{author}.txt").write_text(words * 8, encoding="utf-8")
    federation = apiece.data.load(folder, length=6)
    model = apiece.models.char_lstm(len(federation.classes), width=4, layers=1)
    fitted = apiece.fit("fed_avg", model, federation, rounds=1, options={"steps": 1, "batch": 4})
    run = open_run(fitted.save(tmp_path / "run"), model=model)
    new = tmp_path / "new.txt"
    new.write_text("to be, or not", encoding="utf-8")
    said = run.predict("ada", new)
    assert said.columns()["row"] == ["to be,", " or no"] and [len(text) for text in said.labels] == [6, 6]
    assert said.notes == (f"{new}: ',' never seen in training, and counted as <unknown>",)
    place = {character: k for k, character in enumerate(federation.classes)}
    x = np.array([[place.get(c, 0) for c in piece] for piece in said.called], np.int32)
    np.testing.assert_allclose(said.outputs, fitted.predict("ada", x), atol=1e-6)
    assert jax.tree.structure(run.onboard(new, name="eve")) == jax.tree.structure(run.personal("ada"))
    new.write_text("to", encoding="utf-8")
    with pytest.raises(UserError, match="has 2 characters"):
        run.predict("ada", new)
