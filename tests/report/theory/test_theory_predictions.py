"""`apiece theory ...`: numbers of the tables to six digits, figures that can be drawn, and clear refusals."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.report.figure import checked
from apiece.report.figure_page import render
from apiece.report.theory import numbers_in
from apiece.report.theory.byzantine import byzantine
from apiece.report.theory.gain import gain
from apiece.report.theory.risk import risk, spectrum_in
from apiece.report.theory.speedup import of_means, speedup, unlikeness
from apiece.report.theory.tradeoff import tradeoff

MEANS = np.array([0.1, 0.15, 0.2, 0.6, 0.65])


def total(prediction, name):
    return prediction.numbers["methods"][name]["risk"]


@pytest.mark.parametrize(
    ("gamma", "ridge", "r2", "s2", "bias", "variance", "star", "best"),
    [
        (2, 0.5, 1, 1, 0.553170, 0.348875, 2, 0.780776),
        (2, 1, 1, 0.5, 0.603553, 0.103553, 1, 0.707107),
        (1.5, 0.1, 1, 0.25, 0.357846, 0.247801, 0.375, 0.543400),
        (4, 2, 2.25, 1, 1.773977, 0.109272, 1.777778, 1.882634),
        (3, 0.01, 1, 0.1, 0.666679, 0.049261, 0.3, 0.707925),
        (10, 5, 1, 1, 0.912681, 0.044331, 10, 0.951249),
    ],
)
def test_risks_with_a_given_and_with_the_best_ridge(gamma, ridge, r2, s2, bias, variance, star, best):
    given = risk(gamma, r2**0.5, s2**0.5, norm=r2**0.5, ridge=ridge)
    for name in ("rtfa", "pfedme", "local_ridge"):  # with rho = r, alone is as around the centre
        found = given.numbers["methods"][name]
        assert found["bias"] == pytest.approx(bias, abs=1e-6)
        assert found["variance"] == pytest.approx(variance, abs=1e-6)
        assert found["risk"] == pytest.approx(bias + variance, abs=2e-6)
    assert given.numbers["lambda_star"] == pytest.approx(star, abs=1e-6)
    assert total(risk(gamma, r2**0.5, s2**0.5), "rtfa") == pytest.approx(best, abs=1e-6)


def test_a_spectrum_in_words():
    found = risk(1.5, 1.0, 1.0, norm=1.0, ridge=0.3, spectrum=spectrum_in("0.5:0.5:0.8,2:0.5:0.2"))
    assert found.numbers["methods"]["ftfa"]["bias"] == pytest.approx(0.351738, abs=1e-6)
    assert found.numbers["methods"]["rtfa"]["bias"] == pytest.approx(0.388191, abs=1e-6)
    assert found.numbers["methods"]["local"]["variance"] == pytest.approx(2.319017, abs=1e-6)


def test_who_wins_below_which_noise_is_told_the_right_way_round():
    told = " ".join(risk(2.0, 1.0, 1.0).notes)
    assert "ftfa beats fed_avg where the noise is below 0.7071" in told
    assert "ftfa beats local_ridge where the noise is below 0.9436" in told
    assert "fed_avg beats local whatever the noise" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, 1.0, 1.0), "above 1"),
        ((0.5, 1.0, 1.0), "above 1"),
        ((2.0, -1.0, 1.0), "--radius"),
        ((2.0, 1.0, -1.0), "--noise"),
        ((2.0, 1.0, 1.0, -1.0), "--norm"),
        ((2.0, 1.0, 1.0, 1.0, 0.0), "--ridge"),
        ((2.0, float("nan"), 1.0), "--radius"),
        ((1e300, 1.0, 1.0), "--gamma"),
    ],
)
def test_a_risk_outside_its_domain_names_the_quantity(arguments, said):
    with pytest.raises(UserError, match=said):
        risk(*arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.5:0.5,2:0.6", "sum to 1"),
        ("0.5:0.5:0.5,2:0.5:0.6", "sum to 1"),
        ("0:1", "above 0"),
        ("1", "s:h"),
        ("1:1,2:0:0", "s:h"),
        ("a:1", "numbers"),
    ],
)
def test_a_spectrum_that_is_none_is_refused(text, said):
    with pytest.raises(UserError, match=said):
        spectrum_in(text)


def test_a_larger_pull_needs_more_rounds():
    found = tradeoff(1.0, 0.1, 1.0, 1.0, 50, 100, lams=np.array([0.02, 0.1, 0.5, 1.0, 10.0]))
    points = found.numbers["points"]
    assert [point["local_steps"] for point in points] == [101, 66, 31, 24, 15]
    rounds = [point["rounds"] for point in points]
    assert rounds == sorted(rounds) and rounds[-1] > 5 * rounds[0]
    assert points[0]["on_frontier"] and not all(point["on_frontier"] for point in points)
    assert tradeoff(1.0, 0.5, 0.05, 2.0, 100, 10).numbers["rule"] == {"lambda": 255.5, "at_least": True}


def test_the_gain_is_what_the_hierarchy_says():
    found = gain(0.5, 2**0.5, np.array([4.0, 2.0, 1.0]))  # variances .5, 1, 2 and spread .25
    assert [client["gain"] for client in found.numbers["clients"]] == pytest.approx(
        [0.5 / 0.339080, 1 / 0.448276, 2 / 0.528736], abs=1e-5
    )
    bayes = [client["error"]["bayes"] for client in found.numbers["clients"]]
    assert bayes == pytest.approx([0.339080, 0.448276, 0.528736], abs=1e-6)
    assert len(gain(1.0, 1.0, np.full(50, 10.0)).table.rows) == 1  # equal clients share a row


def test_the_speed_up_of_five_means():
    found = speedup(of_means(MEANS), np.array([1e-4, 0.004, 0.02, 0.2, 1]))
    points = found.numbers["precisions"][::-1]
    assert [point["speedup"] for point in points] == pytest.approx([1, 2.142857, 2.5, 2.857143, 5], abs=1e-6)
    assert [point["bias"] for point in points] == pytest.approx([0, 0.000667, 0.00125, 0.010437, 0.0554], abs=1e-6)
    assert [point["steps"] for point in points] == pytest.approx([2e9, 583333.33, 20000, 175, 4], rel=1e-6)


def test_the_matrix_is_read_from_a_file(tmp_path):
    file = tmp_path / "b.csv"
    np.savetxt(file, of_means(MEANS), delimiter=",")
    np.testing.assert_allclose(unlikeness(file), of_means(MEANS))
    for wrong in ("1,x\n2,3\n", "", "0,1\n1\n", "0,1,2\n1,0,2\n", "0,-1\n1,0\n", "0.5,1\n1,0\n"):
        file.write_text(wrong)
        with pytest.raises(UserError, match=r"b\.csv"):
            unlikeness(file)
    with pytest.raises(UserError, match=r"none\.csv"):
        unlikeness(tmp_path / "none.csv")


def test_forgers_beyond_what_is_proved_are_told():
    found = byzantine(0.5, 1.5, 0.3, 16, 4)
    assert found.numbers["largest_share"] == pytest.approx(0.195312, abs=1e-6)
    assert found.numbers["step"] == pytest.approx(0.153563, abs=1e-6)
    assert not found.numbers["withstood"] and byzantine(0.5, 1.5, 0.3, 16, 3).numbers["withstood"]
    assert byzantine(0.5, 1.5, 0.03, 16, 4).numbers["largest_share"] == 0.5  # never a majority
    with pytest.raises(UserError, match="1/2"):
        byzantine(0.5, 1.5, 0.3, 4, 4)


def test_lists_of_numbers():
    assert numbers_in("1,2", "--eps").tolist() == [1, 2]
    for wrong in ("1,a", "", "1,,2", "nan"):
        with pytest.raises(UserError, match="--eps"):
            numbers_in(wrong, "--eps")


PREDICTIONS = {
    "risk": lambda: risk(2.0, 1.0, 1.0),
    "risk without noise": lambda: risk(1.5, 1.0, 0.0, spectrum=spectrum_in("0.5:0.5:0.8,2:0.5:0.2")),
    "risk of equal clients": lambda: risk(3.0, 0.0, 1.0),
    "tradeoff": lambda: tradeoff(1.0, 0.5, 0.01, 1.0, 50, 100),
    "gain": lambda: gain(0.0, 1.0, np.array([5.0, 50.0])),
    "speedup": lambda: speedup(of_means(MEANS), np.array([0.02])),
    "speedup of equal clients": lambda: speedup(np.zeros((3, 3)), np.array([0.02])),
    "byzantine": lambda: byzantine(0.5, 1.5, 0.3, 16, 0),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_every_figure_has_labels_units_and_lines_that_can_be_seen(name):
    found = PREDICTIONS[name]()
    for panel in checked(found.figure).panels:
        assert panel.x_label and panel.y_label
        assert all(np.isfinite(li.y).sum() >= 2 for li in panel.lines)
        assert len({li.name for li in panel.lines}) == len(panel.lines) <= 7
    assert render(found.figure, [found.table])
    assert all(len(row) == len(found.table.heads) for row in found.table.rows)
