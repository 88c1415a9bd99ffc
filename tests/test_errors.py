"""What a user can do wrong through the public interface is a `UserError` that names it, whichever room it is in."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import apiece
from apiece.errors import UserError

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2
CLIENT = np.repeat(np.arange(4), 10)
LABELS = {"classes": ("no", "yes")}
FEDERATION = apiece.data.from_rows(X, Y, CLIENT, **LABELS)
MODELS, WRAP, EVALUATE = apiece.models, apiece.wrap, apiece.evaluate
SMALL = MODELS.softmax((3,), 2)
AVERAGING = apiece.methods.fed_avg(lambda params, batch, key: 0.0)


def rows(x=X, y=Y, client=CLIENT, **options):
    return apiece.data.from_rows(x, y, client, **{**LABELS, **options})


MISTAKES = {
    "fewer labels than rows": (lambda: rows(y=Y[:5]), "they must be as many"),
    "clients that are no whole numbers": (lambda: rows(client=CLIENT + 0.5), "client holds float64"),
    "clients of no kind": (lambda: rows(client=np.array([None] * len(CLIENT))), "return_inverse=True"),
    "a client that is not among the ids": (
        lambda: rows(client=np.where(CLIENT > 0, "ann", "bobb"), ids=["ann", "bob"]),
        "client 'bobb' of row 0 is not among the ids: did you mean 'bob'?",
    ),
    "a label that is no class": (lambda: rows(y=np.array(["yes", "noo"] * 20)), "y[1] is 'noo', and no class: did you"),
    "features that are words": (lambda: rows(x=X.astype(str)), "x holds <U32, not numbers"),
    "labels that are no whole numbers": (lambda: rows(y=Y + 0.5), "the number of each row's class"),
    "amounts that are words": (lambda: rows(y=np.array(["no", "yes"] * 20), classes=()), "classes="),
    "a split for other rows": (lambda: rows(split=[0, 1, 2]), "for each of 40 rows"),
    "a split that there is not": (lambda: rows(split=CLIENT), "0 (train), 1 (validation) or 2 (test)"),
    "a negative seed": (lambda: rows(seed=-1), "a seed is not negative"),
    "shares of two splits": (lambda: rows(shares=(0.5, 0.5)), "must be three numbers"),
    "a client beyond the last": (lambda: FEDERATION.train.client(4), "no client number 4"),
    "a client before the first": (lambda: FEDERATION.train.client(-1), "numbered from 0 to 3"),
    "clients to take that are not there": (lambda: FEDERATION.take([1, 4]), "0 to 3"),
    "clients to take by id": (lambda: FEDERATION.take(["1"]), "index_of"),
    "no outputs": (lambda: MODELS.softmax((3,), 0), "softmax: outputs must be a number of at least 1, not 0"),
    "features with a gap": (lambda: rows(x=np.where(X[7, 2] == X, np.nan, X)), "x[7, 2] is nan, no finite number"),
    "amounts without end": (lambda: rows(y=np.where(Y, 1.0, np.inf), classes=()), "y[0] is inf, no finite number"),
    "a source's option of another kind": (lambda: apiece.data.digits(clients="a"), "option 'clients' of data 'digits'"),
    "a network without convolutions": (lambda: MODELS.cnn((8, 8), 10, stages=()), "cnn: stages must be one Stage or"),
    "no filters": (lambda: MODELS.cnn2((8, 8), 10, width=0), "at least one filter"),
    "no tokens": (lambda: MODELS.char_lstm(0), "char_lstm: tokens must be a whole number of at least 1, not 0"),
    "no heads": (lambda: MODELS.transformer(9, heads=0), "transformer: heads must be a whole number of at least 1"),
    "an adapter of nothing": (lambda: MODELS.adapted(SMALL, rank=0), "adapted: rank must be a whole number of at"),
    "a model of other examples": (lambda: MODELS.pretrained(MODELS.mlp((4,), 2), FEDERATION), "examples of shape (3,)"),
    "a model of other classes": (lambda: MODELS.pretrained(MODELS.mlp((3,), 5), FEDERATION), "outputs of shape (5,)"),
    "a schedule of no rounds": (lambda: apiece.client.schedule("linear", 0), "rounds = 0: a schedule is over 1 round"),
    "a layer of nothing": (lambda: MODELS.mlp((3,), 2, hidden=(0,)), "mlp: hidden must be sizes"),
    "a task that there is not": (lambda: MODELS.objective(MODELS.softmax((3,), 2), "sorting"), "sorting"),
    "weights for other replies": (lambda: apiece.aggregate.mean(X, jnp.ones(4)), "are not stacked for 4 weights"),
    "other weights for a rule": (lambda: apiece.aggregate.median()(X, jnp.ones(4)), "are not stacked for 4 weights"),
    "a matrix that is not square": (lambda: apiece.estimate.neighbours(np.ones((2, 3)), 0.5), "got shape (2, 3)"),
    "samples of other features": (lambda: apiece.estimate.total_variation(X, X[:, :2]), "got (40, 3), (40, 2)"),
    "an empty sample": (lambda: apiece.estimate.total_variation(X[:0], X), "at least a row each"),
    "a share above one": (lambda: WRAP.corrupted(AVERAGING, share=1.5), "lies in 0 to 1"),
    "a guard that lets nothing in": (lambda: WRAP.guarded(AVERAGING, most=0), "above 0, not 0"),
    "a method that is no list": (lambda: apiece.compare(FEDERATION, "ditto"), "a list of names: ['ditto']"),
    "scores for other labels": (lambda: EVALUATE.auc([1.0, 2.0], [True]), "one score for each label"),
    "an interval of nothing": (lambda: EVALUATE.interval([]), "at least one seed"),
    "offsets that fall": (lambda: EVALUATE.per_client(np.ones(2), [0, 3, 2]), "client 1 would own -1 rows"),
    "theory outside its domain": (lambda: apiece.theory.clup.constants(-1.0, 1.0, 1.0), ""),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    make, said = MISTAKES[mistake]
    with pytest.raises(UserError) as found:
        make()
    assert said in str(found.value)


def test_a_thing_of_another_kind_is_named_too():
    """Of these, type checks would tell in this process; a user's has none."""
    program = """
import apiece
for make in (
    lambda: apiece.models.linear(3),
    lambda: apiece.models.mlp((3,), 2, hidden=8),
    lambda: apiece.data.digits(clients=3).train.client("2"),
    lambda: apiece.fit("ditto", federation="digits"),
    lambda: apiece.testing.check_method("ditto"),
):
    try:
        make()
    except apiece.UserError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    expected = ("shape must be sizes", "not 8", "index_of", "not 'digits'", "the factory itself, not 'ditto'")
    for said, line in zip(expected, done.stdout.splitlines(), strict=True):
        assert said in line
