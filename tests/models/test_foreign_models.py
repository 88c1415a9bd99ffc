"""Flax and Equinox modules as models, what is refused, and the warning about slow convolutions."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.errors import UserError
from apiece.models import accept, cnn2, from_equinox, from_flax, has_plain_convolution, objective, resnet18
from apiece.models.convolution import convolution
from apiece.protocol import Batch
from apiece.split import paths, split

X = jnp.ones((2, 6, 6, 1))


def test_a_linen_module_is_a_model():
    nn = pytest.importorskip("flax.linen")
    module = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(3)])
    model = accept(module, X[:, 0, :, 0])
    params = model.init(jax.random.key(1))
    np.testing.assert_array_equal(
        model.apply(params, X[:, 0, :, 0]), module.apply(module.init(jax.random.key(1), X[:, 0, :, 0]), X[:, 0, :, 0])
    )
    assert paths(split(params, "layers_2")[1]) == ["layers_2/bias", "layers_2/kernel"]


def test_a_linen_module_with_batch_statistics_is_refused():
    nn = pytest.importorskip("flax.linen")
    with pytest.raises(UserError, match=r"BatchNorm keeps batch_stats beside its parameters.*group"):
        from_flax(nn.BatchNorm(use_running_average=False), X)


def test_an_nnx_module_is_a_model():
    nnx = pytest.importorskip("flax.nnx")
    model = from_flax(lambda rngs: nnx.Linear(6, 3, rngs=rngs), X[:, 0, :, 0])
    params = model.init(jax.random.key(0))
    expected = X[:, 0, :, 0] @ params["kernel"] + params["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, X[:, 0, :, 0]), expected, rtol=1e-6)
    with pytest.raises(UserError, match="BatchNorm keeps mean, var beside"):
        from_flax(lambda rngs: nnx.BatchNorm(6, rngs=rngs), X)
    with pytest.raises(UserError, match="neither a linen module nor a function that makes an nnx module"):
        from_flax(nnx.Linear(6, 3, rngs=nnx.Rngs(0)), X)


def test_an_equinox_module_is_a_model():
    eqx = pytest.importorskip("equinox")
    make = lambda key: eqx.nn.MLP(6, 3, 4, 2, key=key)
    model = from_equinox(make, X[:, 0, :, 0])
    params = model.init(jax.random.key(1))
    module = make(jax.random.key(1))
    np.testing.assert_allclose(model.apply(params, X[:, 0, :, 0])[0], module(X[0, 0, :, 0]), rtol=1e-6)
    assert "layers/2/weight" in paths(split(params, "output")[1])
    with pytest.raises(UserError, match="BatchNorm keeps"):
        from_equinox(lambda key: eqx.nn.BatchNorm(6, "batch", mode="ema"), X)


def test_a_plain_convolution_is_told_from_ours():
    loss = lambda model: objective(model, "classification").loss
    batch = Batch(X, jnp.zeros(2, jnp.int32), jnp.ones(2))
    for model in (cnn2((6, 6), 3, width=2), resnet18((6, 6), 3, width=2, blocks=(1,))):
        assert not has_plain_convolution(loss(model), jax.eval_shape(model.init, jax.random.key(0)), batch)
    plain = lambda w, batch, key: jax.jit(lambda x: jax.lax.conv(x, w, (1, 1), "SAME"))(batch.x).sum()
    assert has_plain_convolution(plain, jnp.ones((1, 6, 3, 3)), batch)


def test_a_module_with_a_plain_convolution_is_accepted_with_a_warning():
    nn = pytest.importorskip("flax.linen")
    with pytest.warns(UserWarning, match="thirty times slower inside a compiled loop"):
        from_flax(nn.Conv(2, (3, 3)), X)

    class Ours(nn.Module):
        @nn.compact
        def __call__(self, x):
            w = self.param("w", nn.initializers.he_normal(), (3, 3, 1, 2))
            return nn.Dense(3)(convolution(x, w).mean((1, 2)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_flax(Ours(), X)
