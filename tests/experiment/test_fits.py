"""What does not fit the memory is refused before anything is made or written, and what would fit is named."""

import pytest

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import build, compare, fit, fits, train
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.methods import all_for_all, ditto, fed_avg

FEDERATION = digits(clients=8)
PLACE = build.arena(FEDERATION, build.model_of(ModelSpec(), FEDERATION))
MODEL = 4 * (64 + 1) * 10  # bytes of softmax


@pytest.fixture
def machine(monkeypatch):
    """A machine of so many bytes."""
    return lambda size: monkeypatch.setattr(fits, "memory", lambda: size)


@pytest.mark.parametrize(
    ("factory", "how", "found"),
    [
        (fed_avg, {}, (MODEL, MODEL, 0, MODEL, 8)),
        (ditto, {}, (MODEL, MODEL, MODEL, MODEL, 8)),
        (ditto, {"stateless": True}, (MODEL, MODEL, 0, MODEL, 8)),
        (ditto, {"cohort": 3}, (MODEL, MODEL, MODEL, MODEL, 3)),
    ],
)
def test_what_a_round_holds_is_counted_from_shapes(factory, how, found, machine):
    machine(1)
    assert fits.needs_of(factory(PLACE.objective.loss), PLACE, TrainSpec(**how)) == found


def test_a_server_that_keeps_everybodys_model_is_counted(machine):
    machine(1)
    assert fits.needs_of(all_for_all(PLACE.objective.loss, population=8), PLACE, TrainSpec()).server >= 8 * MODEL


@pytest.mark.parametrize(
    ("size", "method", "said"),
    [
        (10 * MODEL, "ditto", r"'ditto' with softmax 64-10 needs 46.8 kB of memory or more .*this machine has 26.0 kB"),
        (10 * MODEL, "ditto", r"train\.cohort = 4; if they keep no states \(train\.stateless\), 8"),
        (2 * MODEL, "fed_avg", "Not even one client at a time would fit: take a smaller model"),
        (8 * MODEL, "all_for_all", "The server keeps too much: take fewer clients"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(size, method, said, machine, tmp_path):
    machine(size)
    with pytest.raises(UserError, match=said):
        fit(method, federation=FEDERATION, rounds=1)
    with pytest.raises(UserError, match=said):
        compare(FEDERATION, [method], rounds=1, seeds=1, tune=1, baselines=False, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_it_names_fits(machine):
    machine(10 * MODEL)
    for plan in (TrainSpec(cohort=4), TrainSpec(stateless=True)):
        fits.check_memory("ditto", ditto(PLACE.objective.loss), PLACE, plan)
    with pytest.raises(UserError):
        fits.check_memory("ditto", ditto(PLACE.objective.loss), PLACE, TrainSpec(cohort=5))


def test_where_everything_surely_fits_no_visit_is_traced(monkeypatch):
    def never(*_):
        raise AssertionError("traced")

    method = fed_avg(PLACE.objective.loss)._replace(local=never)
    assert fits.needs_of(method, PLACE, TrainSpec()).reply == 0


def test_memory_that_ends_on_the_way_is_no_traceback(tmp_path, monkeypatch):
    def exhausted(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12345 bytes.")

    monkeypatch.setattr(train, "_look", exhausted)
    with pytest.raises(UserError, match=r"'fed_avg' found no memory left \(RESOURCE_EXHAUSTED.*train\.cohort"):
        compare(FEDERATION, ["fed_avg"], rounds=1, seeds=1, tune=1, baselines=False, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("how", "visited"), [({"rounds": 2, "cohort": 3}, 6), ({"rounds": 9, "cohort": 3}, 8), ({"stateless": True}, None)]
)
def test_a_disk_without_room_for_all_who_will_be_visited_is_refused(how, visited, monkeypatch, tmp_path):
    plan = TrainSpec(states="disk", **how)
    room = lambda free: monkeypatch.setattr(fits.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": free}))
    room((visited or 0) * MODEL)
    fits.check_disk("ditto", ditto(PLACE.objective.loss), PLACE, plan)
    room((visited or 1) * MODEL - 1)
    if visited is None:
        return fits.check_disk("ditto", ditto(PLACE.objective.loss), PLACE, plan)
    with pytest.raises(UserError, match=rf"keeps 2.6 kB of each client on disk, .* visit {visited} clients: .*TMPDIR"):
        compare(FEDERATION, ["ditto"], seeds=1, tune=1, baselines=False, out=tmp_path / "run", states="disk", **how)
    assert not (tmp_path / "run").exists()
