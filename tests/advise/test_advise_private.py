"""Private advice: the law of the noise, the accountant's epsilon, what one client can move, and what is said of it."""

import dataclasses
import functools
import json

import dp_accounting
import jax
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import stats
from typer.testing import CliRunner

from apiece.advise import advise, read_advice
from apiece.advise import answer as advising
from apiece.advise import private_answers as a
from apiece.advise import private_choice as choosing
from apiece.advise.keep import Kept
from apiece.advise.pilot import Asked
from apiece.advise.private_pilot import SHARES, shrink
from apiece.advise.release import LENGTHS, WITHIN, Purse, Release, draw_normal
from apiece.cli import app
from apiece.data import digits, from_rows, source
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment.spec import make_spec
from apiece.files import read_json
from apiece.wrap.accountant import ORDERS

CLIENTS, ROWS = 12, 16


def federation(clients=CLIENTS, seed=0, own=2.0):
    """Classes by a rule that is each client's own."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), ROWS)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    truth = np.array([2.0, -2, 0]) + own * rng.normal(size=(clients, 3))
    y = ((x * truth[owner]).sum(axis=1) + 0.3 * rng.normal(size=len(x)) > 0).astype(np.int32)
    split = np.tile([0] * 14 + [1, 2], clients)
    return from_rows(x, y, owner, split=split, classes=["no", "yes"])


def purse_of(epsilon=8.0, clients=CLIENTS, **more):
    return Purse(epsilon, 1e-5, clients, Kept(None, ""), **more)


# The mechanism.


def test_the_noise_of_a_release_is_gaussian_with_the_claimed_deviation():
    purse = purse_of()
    total = np.full(20_000, 7.0)
    drawn = purse.release("sum", lambda: total, clip=0.3, share=0.25) - total
    noise = purse.releases[0].noise
    assert noise == pytest.approx(2 * purse.noise)  # a quarter of the purse
    standard = drawn / (0.3 * noise)
    assert stats.kstest(standard, "norm").pvalue > 1e-4
    assert abs(standard.std() - 1) < 4 / np.sqrt(2 * len(total))


def test_two_releases_have_different_noise():
    assert not np.array_equal(draw_normal(8), draw_normal(8))


def test_epsilon_is_the_accountants_of_all_releases_together():
    purse = purse_of(3.0)
    for name, share in SHARES.items():
        purse.release(name, lambda: np.zeros(2), 1.0, share)
    accountant = rdp.RdpAccountant(ORDERS, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for each in purse.releases:
        accountant.compose(dp_accounting.GaussianDpEvent(each.noise))
    assert purse.spent() == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-12)
    assert 2.9 < purse.spent() <= 3.0
    with pytest.raises(AssertionError, match="more than there is"):
        purse.release("one more", lambda: np.zeros(2), 1.0, 0.01)


def test_a_clip_is_found_that_most_answers_are_within():
    lengths = np.random.default_rng(0).lognormal(0.0, 1.0, 4000)
    purse = purse_of(8.0, clients=len(lengths))
    clip = purse.find_clip("clip", lambda at: np.where(lengths <= at, 0.5, -0.5).sum(), 0.05)
    wanted = min(each for each in LENGTHS if (lengths <= each).mean() >= WITHIN)
    assert clip == wanted
    assert len(purse.releases) == 4


def test_what_is_noise_is_shrunken_away():
    rng = np.random.default_rng(0)
    assert shrink(rng.normal(size=1000), 1.1) == 0.0
    assert shrink(100 + rng.normal(size=1000), 1.0) > 0.999


# What one client can move.


def laid_out(clients=CLIENTS, changed=False, **how):
    given = federation(clients)
    if changed:  # the first client's examples, to something outrageous
        x, y, mine = np.array(given.train.x), np.array(given.train.y), slice(0, int(given.train.sizes[0]))
        x[mine], y[mine] = 50 * np.abs(x[mine]), 1 - y[mine]
        given = dataclasses.replace(given, train=dataclasses.replace(given.train, x=x, y=y))
    place = advising._place(given, make_spec({"model": {"name": "auto"}}, "a test"), True)
    engine = setup.engine_of(place, "fed_avg", {}, make_spec({"train": how}, "a test").train)[0]
    return place, engine


class Overheard(Purse):
    """A purse without noise that writes down what clients' answers add up to; what it hands on is given, if it is."""

    def __init__(self, told=None):
        super().__init__(8.0, 1e-5, CLIENTS, Kept(None, ""))
        self.told, self.heard = told, {}

    def release(self, name, total, clip, share):
        self.heard[name] = (np.asarray(total(), np.float64), clip)
        super().release(name, lambda: np.zeros(1), clip, share)  # the books
        return (self.told or self.heard)[name][0]


def test_one_clients_change_moves_no_released_sum_by_more_than_its_clip():
    first = None
    for changed in (False, True):
        place, engine = laid_out(changed=changed)
        init, of = jax.tree.map(np.asarray, place.model.init(jax.random.key(0))), advising._linear(place)
        purse = Overheard(first)  # the second federation is asked what the first one was
        pilot = advising.run_private_pilot(place, engine, of, init, purse, seed=0, tell=lambda *_: None)
        choosing.weigh_privately(pilot, [0, 3, 4, 7], purse)
        advising.ask_own_share(pilot, of, 1.0, purse)
        first, second = first or purse.heard, purse.heard
    assert set(first) == set(second) >= {"sizes", "steps 1", "levels", "scores", "weights 1", "outcomes", "squares"}
    for name, (total, clip) in first.items():
        # To change a client is to remove one and to add another: two clips.
        assert np.linalg.norm(total - second[name][0]) <= 2 * clip * (1 + 1e-5), name
        assert np.linalg.norm(total) <= CLIENTS * clip * (1 + 1e-5), name
    moved = [name for name, (total, _) in first.items() if not np.array_equal(total, second[name][0])]
    assert {"sizes", "steps 1", "levels", "scores", "outcomes"} <= set(moved)  # and it is heard in them


@pytest.mark.parametrize("what", a.WHAT)
def test_no_answer_from_kept_scores_is_longer_than_its_clip(what):
    rng = np.random.default_rng(1)
    clip, cap = 0.3, 1.5
    most = {"levels": a.LEVELS_CLIP, "weights": 1.0, "squares": clip**2}.get(what, 0.5 if "bits" in what else clip)
    answer = jax.jit(a.answers, static_argnums=2)
    for wild in (0.1, 5.0, 50.0):
        said = -wild * rng.random((1, 6, 9, 3)).astype(np.float32)
        kept = a.q.Scores(said, np.ones((1, 6), np.float32))
        weights = np.array([[0.4, 0.3, 0.2, 0.1, 0, 0]] * 2, np.float32)
        asked = a.Inquiry((), np.array([0, 3, 4, 7, 0, 0], np.int32), weights, np.ones(2, np.float32))
        wanted = a.Wanted(asked, np.int32(a.WHAT.index(what)), np.float32(clip), np.float32(cap), ())
        row = np.asarray(answer(kept, wanted, a.OUTCOMES**2))
        assert np.linalg.norm(row) <= most * (1 + 1e-5)
        assert np.linalg.norm(row) > 0
        nobody = kept._replace(present=np.zeros((1, 6), np.float32))
        assert not np.asarray(answer(nobody, wanted, a.OUTCOMES**2)).any()


def test_steps_of_clients_are_clipped_where_they_are_made():
    place, engine = laid_out()
    seen = Asked(engine, np.asarray(engine.sizes[:CLIENTS]))
    init = jax.tree.map(np.asarray, place.model.init(jax.random.key(0)))
    one = lambda who, bits: seen.ask(
        lambda most: a.step_question(advising._linear(place), most, bits),
        (init, np.float32(0.01), np.int32(0), np.float32(0.2)),
        1.0,
        np.array(who),
    )
    lengths = [np.linalg.norm(one([i], False)) for i in range(CLIENTS)]
    assert max(lengths) == pytest.approx(0.2, rel=1e-5)
    assert float(one([0], True)) in (0.5, -0.5)


# A whole advice.


@pytest.fixture
def drawn(monkeypatch):
    """Noise that is the same each time: what noise does to a choice cannot be asserted of chance."""
    draw = np.random.default_rng(0).standard_normal
    monkeypatch.setattr(advising, "Purse", functools.partial(Purse, draw=draw))


def test_an_advice_tells_its_promise_and_what_the_noise_hides(tmp_path, drawn):
    found = advise(federation(), private=0.5, delta=1e-4, out=tmp_path / "advice")
    told = found.privacy
    assert 0.49 < told.epsilon <= 0.5 == told.asked and told.delta == 1e-4
    purse = Purse(0.5, 1e-4, CLIENTS, Kept(None, ""))
    purse.releases = [Release(**each.model_dump()) for each in told.releases]
    assert purse.spent() == pytest.approx(told.epsilon)
    words = " ".join(found.doubts)
    assert "epsilon = 0.5" in words and "delta = 0.0001" in words and "The noise hides differences below" in words
    assert "groups, which need models of single clients" in words
    # Twelve clients at epsilon 1/2: nothing can be seen, and that is said in the answer itself.
    assert not told.decided and "not a finding" in found.answer[2]
    assert found.hurt is None and found.groups is None and not found.degree.clients
    assert read_advice(read_json(tmp_path / "advice" / "advice.json")).privacy == told
    again = advise(federation(), private=0.5, delta=1e-4, out=tmp_path / "advice")
    assert again.tried == found.tried and again.privacy == told  # nothing was drawn, or spent, again
    assert {**make_spec(again.spec, "again").rows} == {**make_spec(found.spec, "found").rows}


def test_what_cannot_be_private_is_refused_by_name():
    with pytest.raises(UserError, match=r"about classes, and .* has numbers"):
        advise(source("linear", clients=8, examples=12, features=2), private=1.0)
    with pytest.raises(UserError, match="linear models, and mlp"):
        advise(federation(), {"name": "mlp"}, private=1.0)
    with pytest.raises(UserError, match="standardize = true takes exact means"):
        advise(federation(), private=1.0, data={"standardize": True})
    with pytest.raises(UserError, match="leave the budget out"):
        advise(federation(), private=1.0, budget="60s")
    with pytest.raises(UserError, match="is no promise to 12 clients"):
        advise(federation(), private=1.0, delta=0.2)
    with pytest.raises(UserError, match="an epsilon is a number above 0"):
        advise(federation(), private=-1.0)


def test_the_command_takes_an_epsilon(tmp_path):
    path = tmp_path / "rows.csv"
    given = federation(clients=9)
    rows = ["site,a,b,c,label"]
    for i in range(9):
        for x, y in zip(
            given.train.x[i * ROWS : (i + 1) * ROWS], given.train.y[i * ROWS : (i + 1) * ROWS], strict=True
        ):
            rows.append(f"s{i},{x[0]},{x[1]},{x[2]},{'yes' if y else 'no'}")
    path.write_text("\n".join(rows))
    columns = ["--client", "site", "--label", "label", "--new-clients", "0", "--out", str(tmp_path / "out"), "--json"]
    found = CliRunner().invoke(app, ["advise", str(path), "--private", "4", *columns])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["privacy"]["asked"] == 4.0


@pytest.mark.thorough
def test_with_a_large_epsilon_the_choice_on_digits_is_the_plain_one():
    plain, private = advise(digits(clients=20), folds=1), advise(digits(clients=20), folds=1, private=1e6)
    assert private.privacy.decided
    assert (plain.kind, plain.method) == (private.kind, private.method)


@pytest.mark.thorough
def test_with_a_large_epsilon_candidates_are_worth_what_plain_advice_expects_of_them():
    """What is chosen may differ: groups are tried by the plain pilot alone."""
    plain, private = (advise(federation(40, own=0.3), folds=1, private=epsilon) for epsilon in (None, 1e6))
    assert private.privacy.decided
    for kind in ("shared", "path", "local"):
        assert private.errors[kind].mean == pytest.approx(plain.errors[kind].mean, abs=1.5), kind


@pytest.mark.thorough
def test_with_many_clients_a_modest_epsilon_sees_that_clients_differ(drawn):
    found = advise(federation(300, own=4.0), private=4.0)
    assert found.privacy.decided and found.kind != "shared"
    assert found.privacy.hidden_loss < 0.1


@pytest.mark.thorough
def test_the_remote_engine_gives_the_same_private_advice_but_for_the_noise():
    here, far = (advise(federation(), private=1e6, engine=engine) for engine in ("vectorized", "remote"))
    assert (here.kind, here.method) == (far.kind, far.method)
    for mine, theirs in zip(here.tried, far.tried, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, abs=0.02), mine.name
