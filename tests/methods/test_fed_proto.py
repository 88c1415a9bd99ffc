"""FedProto: its golden numbers, what it is without a pull, how prototypes predict, and what it refuses."""

import golden_classes as golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from class_runs import ENGINES, LOSS, NETWORK, run, start

from apiece import methods
from apiece.engines.costs import costs
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.methods.fed_proto import Prototyped, Prototypes
from apiece.models import Model, char_lstm, linear, mlp, quadratic
from apiece.protocol import Data

KEY = jax.random.key(0)
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [None, 2])
def test_fed_proto_follows_its_program(engine, size):
    server, models, _ = run(engine, methods.fed_proto, 3, size, model=NETWORK, lam=0.3, steps=2, lr=0.2)
    cohorts = [Participation(size=size).draw(0, r, 3) for r in range(3)]
    own, prototypes, known = golden.fed_proto(3, 2, 0.2, 0.3, cohorts)
    close(server.mean, prototypes)
    assert server.known.tolist() == known.tolist() == [True, True, True, False]
    here = sorted(set(np.concatenate(cohorts)))  # who never came catches up by itself
    close(models["hidden"]["w"][here], [own[i][0] for i in here])
    close(models["out"]["w"][here], [own[i][1] for i in here])


@pytest.mark.usefixtures("x64")
def test_without_a_pull_it_is_local_to_the_last_digit():
    options = dict(steps=2, lr=0.2, batch=2)
    _, ours, _ = run("vectorized", methods.fed_proto, 3, model=NETWORK, lam=0.0, **options)
    _, alone, _ = run("vectorized", methods.local, 3, **options)
    jax.tree.map(np.testing.assert_array_equal, ours, alone)


def test_the_nearest_prototype_is_predicted_and_one_that_nobody_has_is_not():
    method = methods.fed_proto(LOSS, model=NETWORK, nearest=True)
    mean = np.array([[0.0, 0], [4, 0], [0, 4], [0.1, 0.1]])
    params, known = start(), np.array([True, True, True, False])
    mine = method.personal(params, Prototypes(jnp.array(mean), jnp.array(known)), None, KEY)
    assert isinstance(mine, Prototyped)
    features = golden.X @ np.asarray(golden.A).T
    far = np.square(features[:, None] - mean).sum(2)
    said = np.asarray(method.predict(NETWORK.apply, mine, jnp.array(golden.X)))
    assert said.argmax(1).tolist() == far[:, :3].argmin(1).tolist()
    np.testing.assert_allclose(said[:, :3], -far[:, :3], rtol=1e-4)
    assert np.isfinite(said).all()


def test_before_anybody_spoke_every_class_is_as_likely():
    method = methods.fed_proto(LOSS, model=NETWORK, nearest=True)
    mine = method.personal(start(), method.init(start(), KEY), None, KEY)
    said = method.predict(NETWORK.apply, mine, jnp.array(golden.X))
    assert (said == said[:, :1]).all()


def test_prototypes_are_sent_and_no_model_is():
    network = mlp((64,), 10, hidden=(8,))
    params = network.init(KEY)
    example = np.zeros((1, 64), np.float32), np.zeros(1, int)
    loss = lambda params, batch, key: 0.0 * batch.weight.sum()
    found = costs(methods.fed_proto(loss, model=network, steps=5), params, example, 40)
    whole = 4 * sum(leaf.size for leaf in jax.tree.leaves(params))
    assert found == (4 * 80 + 10, 4 * 80 + 4 * 10, whole, 5, 0, 0)


NETWORK_OF_ONES_OWN = Model(NETWORK.init, NETWORK.apply, "my network")
REFUSED = [
    (linear((4,)), np.zeros((2, 4)), np.zeros(2), "one class each; here labels are float32 of the shape"),
    (linear((4,), 3), np.zeros((2, 4)), np.zeros((2, 3), int), "one class each"),
    (char_lstm(5, embed=2, width=3, layers=1), np.zeros((2, 4), int), np.zeros((2, 4), int), "last layer|one class"),
    (quadratic(4), np.zeros((2, 4, 4)), np.zeros((2, 4)), "is not one matrix and a bias: .* are a vector"),
    (NETWORK_OF_ONES_OWN, golden.X, golden.Y, "which my network does not tell"),
    (NETWORK._replace(features=lambda params, x: x), golden.X, golden.Y, "tells 3 features .* last layer takes 2"),
]


@pytest.mark.parametrize(("model", "x", "y", "words"), REFUSED)
def test_what_has_no_classes_or_no_features_is_refused(model, x, y, words):
    params = model.init(KEY)
    data = Data(jnp.asarray(x, jnp.float32 if x.dtype == float else None), jnp.asarray(y), 0, 2, 2)
    method = methods.fed_proto(LOSS, model=model)
    with pytest.raises(UserError, match=f"'fed_proto'.*({words})"):
        method.enroll(params, method.init(params, KEY), data, KEY)
