"""Pictures dealt by classes, models judged on all of them, engines that move, and the rules of the verdicts."""

from itertools import pairwise

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.experiment.bench import ENGINES, Bench
from apiece.experiment.contest import Rival, contest
from apiece.experiment.judge import Outcome
from apiece.experiment.spec_tables import TrainSpec
from apiece.reproduce.fedclup import ladder as ladder
from apiece.reproduce.fedclup.images_by_classes import (
    Task,
    arena_of,
    averaged_beside,
    averaged_on_all_classes,
    on_all_classes,
    whole_of,
)
from apiece.reproduce.fedclup.images_runs import CASES, GRID, Case, played, rivals_of
from apiece.reproduce.fedclup.published import DEGREES, published, rung
from apiece.reproduce.kept import keeping

PLAN = TrainSpec(rounds=2, evaluate_every=2)


TASK = Task("pictures.npz", "softmax", {}, half=True, clients=10, examples=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of pictures that tell their class."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    templates, parts = rng.integers(0, 200, (10, 4, 6)), {}
    for part in ("train", "test"):
        y = rng.permutation(np.arange(800) % 10)
        parts |= {f"x_{part}": (templates[y] + rng.integers(0, 55, (800, 4, 6))).astype(np.uint8), f"y_{part}": y}
    np.savez(folder / "pictures.npz", **parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APIECE_DATA", str(folder))
        yield folder


@pytest.fixture(scope="module")
def twice(folder):
    """Two cuts of the same pictures, played with one engine for each method, and the second one with a new engine."""
    here = arena_of(TASK, 6)
    there = arena_of(TASK, 6, seed=1, like=here)
    rivals = {
        "fed_avg": Rival("fed_avg", dict(steps=4, lr=0.1)),
        "mild": Rival("fed_clup", dict(steps=4, lam=0.1), dict(lr=(0.1, 1e-6))),
        "strong": Rival("fed_clup", dict(steps=4, lam=2.0), like="mild"),
    }
    play = lambda place, rivals: contest(place, rivals, PLAN, (3,), after=on_all_classes(place))
    ENGINES.clear()
    first, moved, count = play(here, rivals), play(there, rivals), len(ENGINES)
    ENGINES.clear()
    fresh = play(there, {"mild": rivals["mild"]})
    engine, _ = Bench(here, "fed_clup", dict(steps=4, lam=0.1), PLAN).engine({"lr": 0.1})
    assert len(ENGINES) == 1, "which served all rivals of that method"
    return here, first, moved, fresh, count, engine


@pytest.mark.thorough
def test_rivals_and_cuts_share_engines_and_an_engine_that_moved_finds_what_a_new_one_finds(twice):
    *_, moved, fresh, count, _ = twice
    assert count == 2, "one for each method, though two rivals and two cuts use fed_clup's"
    for name, result in fresh.items():
        assert result.options == moved[name].options
        np.testing.assert_array_equal(result.after[0], moved[name].after[0])
        for key, values in result.outcomes[3].arrays.items():
            np.testing.assert_array_equal(values, moved[name].outcomes[3].arrays[key])


def test_an_engine_does_not_move_to_data_of_other_shapes(twice):
    here, *_, engine = twice
    with pytest.raises(UserError, match="make a new engine"):
        engine.moved(here.x[:-1], here.y[:-1], here.offsets)


def test_a_rival_takes_over_what_another_has_chosen(twice):
    found = twice[1]
    assert found["strong"].tried == [] and found["mild"].options["lr"] == 0.1
    assert found["strong"].options == {**found["mild"].options, "lam": 2.0}


def test_on_all_classes_every_model_sees_everybodys_examples(twice):
    here, found, *_, engine = twice
    x, y, _ = here.splits["test"]
    run = engine.advance(engine.start(here.model.init, 3, dict(lam=2.0, lr=0.1)), 2)
    models = engine.personal(run, np.arange(TASK.clients))
    for i, right in enumerate(found["strong"].after[0]):
        guesses = here.model.apply({name: leaf[i] for name, leaf in models.items()}, x).argmax(1)
        assert right == pytest.approx(float((guesses == y).mean()), abs=6e-3)
    shared = found["fed_avg"]
    errors, _ = shared.outcomes[3].scores("test", "error")
    np.testing.assert_allclose(shared.after[0], 1 - errors.mean(), rtol=1e-6, err_msg="who shares a model is as right")


def test_step_sizes_can_be_chosen_on_everybodys_validation_examples(twice):
    here, *_ = twice
    asked = []

    def tune_on(engine, run):
        asked.append(averaged_on_all_classes(here, part="validation")(engine, run))
        return 0.0, run.hyper["lr"]  # the smallest step size is best

    rival = Rival("fed_clup", dict(steps=4, lam=0.1), dict(lr=(0.1, 1e-6)))
    found = contest(here, {"mild": rival}, PLAN, (3,), tune_on=tune_on)["mild"]
    assert found.options["lr"] == 1e-6
    assert asked[1][0] == pytest.approx(np.log(10), abs=1e-3), "a step size of a millionth leaves ten classes equal"
    assert abs(asked[0][0] - np.log(10)) > 1e-3
    assert len(ENGINES) == 1, "and nothing is compiled again"


def test_clients_hold_as_many_classes_as_asked_and_as_many_examples_as_the_others(folder):
    for held in (2, 6, 10):
        place = arena_of(TASK, held)
        federation = place.federation
        assert place.x.shape[1:] == (2, 3)
        for part, size in (("train", TASK.train), ("validation", 10), ("test", 20)):
            assert set(getattr(federation, part).sizes) == {size}
        labels = [federation.train.y[a:b] for a, b in pairwise(place.offsets)]
        assert all(len(set(of.tolist())) <= held for of in labels)
        other = arena_of(TASK, held, seed=1, like=place)
        assert other.objective is place.objective and not np.array_equal(other.y, place.y)


@pytest.mark.parametrize("name", CASES)
def test_all_methods_compute_as_many_gradients_and_only_the_medium_degree_is_tuned(name):
    case, rivals = CASES[name], rivals_of(CASES[name])
    gradients = rivals["local"].options["epochs"] * -(-case.task.train // case.batch)
    for degree, lam in zip(DEGREES, case.lams, strict=True):
        assert rivals[rung("fed_clup", degree)].options["epochs"] == rivals["fed_avg"].options["epochs"]
        if "pfedme" in case.ladders:
            inner = rivals[rung("pfedme", degree)].options
            assert inner["steps"] * inner["prox_steps"] == gradients and inner["lr"] * lam == 0.5
    tuned = {who for who, rival in rivals.items() if rival.grid}
    assert tuned == {"local", "fed_avg", *(f"{method} medium" for method in case.ladders)}
    sizes = {who: GRID if who == "pfedme medium" else case.grid for who in tuned}
    assert all(tuple(*rivals[who].grid.values()) == sizes[who] for who in tuned)
    assert set(case.path) == rivals.keys() <= published(case.printed, 2).keys()


def test_a_ladder_grows_if_its_last_rung_is_above_the_first():
    jitter = 0.001 * np.array([[-1, 0, 1], [0, 1, -1], [1, -1, 0]])
    of = lambda *means: {rung("pfedme", d): m + j for d, m, j in zip(DEGREES, means, jitter, strict=True)}
    assert ladder.grows("", of(0.3, 0.4, 0.5), "pfedme").verdict == "holds"
    assert ladder.grows("", of(0.5, 0.4, 0.3), "pfedme").verdict == "does not hold"
    assert ladder.grows("", of(0.3, 0.4, 0.301), "pfedme").verdict == "undecided"
    assert ladder.grows("", of(0.3, 0.4, 0.5), "pfedme", "still moving").verdict == "undecided"


def test_between_means_above_local_and_below_global():
    names = ("local", *(rung("fed_clup", d) for d in DEGREES), "fed_avg")
    of = lambda *rungs: {name: np.full(3, value) for name, value in zip(names, rungs, strict=True)}
    assert ladder.between("", of(0.3, 0.4, 0.5, 0.6, 0.7), "fed_clup").verdict == "holds"
    for out in (of(0.3, 0.4, 0.5, 0.72, 0.7), of(0.3, 0.28, 0.5, 0.6, 0.7), of(0.3, 0.3, 0.3, 0.3, 0.3)):
        assert ladder.between("", out, "fed_clup").verdict == "does not hold"


def test_a_run_whose_validation_loss_still_falls_is_not_at_rest():
    rounds = np.arange(1, 21)
    columns = lambda losses, other: {"validation_loss": list(losses), "averaged_loss": list(other)}
    of = lambda losses, other: [{"round": list(range(1, len(losses) + 1)), **columns(losses, other)}]
    fast, slow = 0.1 + 0.5**rounds, 0.99**rounds
    found = {"fast": of(fast, slow), "slow": of(slow, fast), "short": of([0.3, 0.2], [0.3, 0.2])}
    assert ladder.still_moving(found, ["fast"]) == ""
    assert ladder.still_moving(found, list(found)) == "not at rest: slow, short"
    assert ladder.still_moving(found, ["fast", "slow"], "averaged_loss") == "not at rest: fast", "another loss decides"


def test_the_averaged_model_is_the_mean_of_the_clients_models(twice):
    here, *_, engine = twice
    run = engine.advance(engine.start(here.model.init, 3, dict(lam=2.0, lr=0.1)), 2)
    models, (x, y, _) = engine.personal(run, np.arange(TASK.clients)), here.splits["test"]
    guesses = here.model.apply({name: leaf.mean(0) for name, leaf in models.items()}, x).argmax(1)
    assert 1 - averaged_on_all_classes(here)(engine, run)[1] == pytest.approx(float((guesses == y).mean()), abs=1e-3)
    seen = {"round": 2}
    averaged_beside(here)(engine, run, seen)
    assert (seen["averaged_loss"], seen["averaged_error"]) == averaged_on_all_classes(here, part="validation")(
        engine, run
    )


def test_clients_drawn_from_a_pool_are_judged_on_all_of_its_pictures(folder):
    task = TASK._replace(clients=3, pool=20)
    place = arena_of(task, 2)
    whole = whole_of(task, 2, 0, place)
    assert place.population == 3 and whole.population == 20
    assert len(set(np.asarray(place.y).tolist())) <= 6 and len(set(np.asarray(whole.splits["test"][1]).tolist())) == 10
    assert whole_of(TASK, 2, 0, place) is place


def test_the_published_order_agrees_with_itself_and_not_with_its_reverse():
    printed = {
        held: {who: np.full(2, value) for who, value in published("MNIST logit", held).items()} for held in (2, 10)
    }
    assert ladder.same_order("", "MNIST logit", printed).ours == pytest.approx(1)
    turned = {held: {who: -value for who, value in row.items()} for held, row in printed.items()}
    assert not ladder.same_order("", "MNIST logit", turned).holds


def outcome(errors, curve):
    ends = np.arange(0, len(errors) + 1, 40)
    arrays = {"test_error": np.array(errors, np.float32), "test_offsets": ends}
    return Outcome(np.arange(len(ends) - 1), arrays, [{"validation_error": e} for e in curve], {})


def test_gains_count_the_clients_of_all_seeds():
    alone, worse = [0] * 80, [1] * 30 + [0] * 50
    once = [outcome(worse, []), outcome(alone, []), outcome(alone, [])]
    table = ladder.gains({"local": [outcome(alone, [])] * 3, "other": once})
    assert table["other"]["hurt proved"] == pytest.approx(1 / 6), "one of six clients"
    assert table["other"]["gain over local"] == pytest.approx(-100 * 30 / 240)
    assert np.isnan(table["local"]["hurt proved"])


def test_fewer_rounds_compares_when_the_curves_settle():
    fast, slow = [0.5, 0.2, 0.2, 0.2], [0.5, 0.4, 0.3, 0.2]
    of = lambda errors: [{"round": [5, 10, 15, 20], "validation_error": errors}] * 3
    curves = {rung("fed_clup", d): of(c) for d, c in zip(DEGREES, (fast, fast, slow), strict=True)}
    claim = ladder.fewer_rounds("", [curves], "fed_clup")
    assert claim.ours == 10 and claim.holds


@pytest.mark.thorough
def test_a_part_that_was_kept_is_not_run_again_and_gives_the_same_numbers(folder, tmp_path):
    case = Case("MNIST logit", TASK, (0.5, 1.5, 2.5), 32, seeds=2, rounds=2, looks=1, tuned=1, ladders=("fed_clup",))
    ran = []
    with keeping(tmp_path):
        first = played("small", case, (2,), ran.append)
    assert ran and first[2].averaged.keys() == set(case.path)
    count = len(ran)
    with keeping(tmp_path) as parts:
        again = played("small", case, (2,), ran.append)
    assert len(ran) == count and parts.seconds > 0
    for kind in ("averaged", "every", "own"):
        for who, values in getattr(first[2], kind).items():
            np.testing.assert_array_equal(values, getattr(again[2], kind)[who])
    assert again[2].curves == first[2].curves and again[2].gains == first[2].gains
    with keeping(tmp_path):
        played("small", case._replace(rounds=3), (2,), ran.append)
    assert len(ran) == 2 * count, "other settings are another part"
