"""FedBABU: its golden numbers, which part moves when, and FedRep with heads that stay."""

import jax
import numpy as np
import pytest
from golden import fed_avg
from golden_partial import TOY
from partial_runs import ENGINES, loss, run

from apiece import methods
from apiece.engines.costs import costs
from apiece.errors import UserError
from apiece.models import mlp, objective

HALVES = np.ones(2) / 2
HEAD = np.array([0.7, -0.4, 0.3])[: TOY.r.shape[1]]  # where the head begins; the runs' parameters begin at zero
TRAIN, TUNE = dict(private="w", steps=2, lr=0.1), dict(tune_epochs=None, tune_steps=3, tune_lr=0.2)
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def headed(params, batch, key):
    return loss(params | {"w": params["w"] + HEAD}, batch, key)


def expected(rounds, part):
    """(The body after so many rounds, everybody's tuned body and head): all of them are quadratic problems."""
    body = fed_avg(TOY.P, TOY.t - TOY.C @ HEAD, HALVES, rounds, TRAIN["steps"], TRAIN["lr"])[-1]
    bodies, heads = [], []
    for p, c, b, t, r in zip(*TOY[:5], strict=True):
        whole, wanted = np.block([[p, c], [c.T, b]]), np.concatenate([t, r])
        mine = np.concatenate([body, HEAD])
        free = {"body": np.arange(len(mine)) < len(t), "head": np.arange(len(mine)) >= len(t), "all": True}[part]
        for _ in range(TUNE["tune_steps"]):
            mine = mine - TUNE["tune_lr"] * np.where(free, whole @ mine - wanted, 0)
        bodies.append(mine[: len(t)])
        heads.append(mine[len(t) :])
    return body, bodies, heads


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("part", ["head", "body", "all"])
def test_fed_babu_follows_its_program(engine, part):
    server, models = run(methods.fed_babu, TOY, (3,), loss=headed, engine=engine, tune_part=part, **TRAIN, **TUNE)[-1]
    body, bodies, heads = expected(3, part)
    close(server["theta"], body)
    close(models["theta"], bodies)
    close(HEAD + models["w"], heads)


@pytest.mark.usefixtures("x64")
def test_it_is_fed_rep_whose_heads_stay_until_the_end_to_the_last_digit():
    ours, _ = run(methods.fed_babu, TOY, (3,), loss=headed, **TRAIN, **TUNE)[-1]
    theirs, _ = run(methods.fed_rep, TOY, (3,), loss=headed, inner_lr=0.0, inner_steps=1, **TRAIN)[-1]
    np.testing.assert_array_equal(ours["theta"], theirs["theta"])


@pytest.mark.usefixtures("x64")
def test_long_tuning_ends_at_the_best_head_for_the_body():
    long = dict(tune_epochs=None, tune_steps=500, tune_lr=0.3)
    server, models = run(methods.fed_babu, TOY, (3,), loss=headed, **TRAIN, **long)[-1]
    best = [np.linalg.solve(b, r - c.T @ server["theta"]) for c, b, r in zip(TOY.C, TOY.B, TOY.r, strict=True)]
    np.testing.assert_allclose(HEAD + models["w"], best, atol=1e-8)


def test_the_head_is_neither_sent_nor_kept():
    model = mlp((6,), 3, hidden=(4,))
    params = model.init(jax.random.key(0))
    example = np.zeros((1, 6), np.float32), np.zeros(1, int)
    found = costs(methods.fed_babu(objective(model, "classification").loss, steps=5), params, example, 40)
    body = 4 * (6 * 4 + 4)
    assert found == (body, body, 0, 5, 20, 0)  # ten passes over forty examples, in batches of 32


def test_a_part_that_cannot_be_tuned_is_refused():
    with pytest.raises(UserError, match="option 'tune_part' of method 'fed_babu' is not 'heads': did you mean 'head'"):
        methods.fed_babu(headed, tune_part="heads")
