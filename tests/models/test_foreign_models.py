"""Flax and Equinox modules as models, what is refused, and their convolutions exchanged for ours."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.errors import UserError
from apiece.models import accept, cnn2, from_equinox, from_flax, has_plain_convolution, objective, resnet18
from apiece.models.convolution import convolution
from apiece.models.swap import swapped
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


@pytest.mark.parametrize(
    ("shape", "window", "how"),
    [
        ((2, 6, 7, 3), (3, 3, 3, 4), dict(padding="SAME")),
        ((2, 6, 7, 3), (3, 2, 3, 4), dict(padding="SAME", window_strides=(2, 2))),
        ((2, 6, 7, 3), (3, 2, 3, 4), dict(padding=[(2, 0), (1, 3)], window_strides=(2, 2))),
        ((2, 3, 6, 7), (4, 3, 3, 3), dict(padding="VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))),
        ((2, 9, 3), (4, 3, 5), dict(padding="SAME", dimension_numbers=("NWC", "WIO", "NWC"))),
        ((2, 3, 9), (5, 3, 4), dict(padding=[(1, 2)], window_strides=(2,), dimension_numbers=("NCH", "OIH", "NHC"))),
    ],
)
def test_an_exchanged_convolution_has_the_same_values_and_gradients(x64, shape, window, how):
    rng = np.random.default_rng(0)
    x, w = jnp.array(rng.normal(size=shape)), jnp.array(rng.normal(size=window))
    how = {"window_strides": (1,) * (x.ndim - 2), "dimension_numbers": ("NHWC", "HWIO", "NHWC")} | how
    theirs = lambda w, x: jax.lax.conv_general_dilated(x, w, **how)
    bent = lambda f: jax.jit(jax.value_and_grad(lambda w, x: jnp.sin(f(w, x)).sum(), (0, 1)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11),
        bent(swapped(theirs))(w, x),
        bent(theirs)(w, x),
    )
    assert not has_plain_convolution(lambda w, batch, key: swapped(theirs)(w, batch.x).sum(), w, Batch(x, None, None))


def test_a_flax_module_keeps_its_values_and_gradients_with_our_convolutions_and_poolings():
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.relu(nn.Conv(4, (3, 3))(x)), (2, 2), (2, 2))  # many equal ones: zeros
            return nn.Dense(3)(nn.Conv(4, (3, 3), strides=2)(x).reshape(len(x), -1))

    x = jnp.array(np.random.default_rng(0).normal(size=(2, 7, 6, 1)), jnp.float32)
    model = from_flax(Net(), x)
    params = model.init(jax.random.key(0))
    both = model.apply, lambda params, x: Net().apply({"params": params}, x)
    ours, theirs = (jax.jit(jax.value_and_grad(lambda p, f=f: jnp.sin(f(p, x)).sum()))(params) for f in both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, theirs)
    program = str(jax.make_jaxpr(model.apply)(params, x))
    assert "reduce_window_max" not in program and program.count("custom_vjp_call[") == 3


def test_an_equinox_module_keeps_its_values_with_our_convolutions():
    eqx = pytest.importorskip("equinox")
    make = lambda key: eqx.nn.Conv1d(6, 4, 3, padding=1, key=key)
    model = from_equinox(make, X[..., 0])
    params = model.init(jax.random.key(1))
    expected = jax.vmap(make(jax.random.key(1)))(X[..., 0])
    np.testing.assert_allclose(jax.jit(model.apply)(params, X[..., 0]), expected, rtol=1e-5, atol=1e-6)
    assert "custom_vjp_call" in str(jax.make_jaxpr(model.apply)(params, X[..., 0]))


def test_a_convolution_that_cannot_be_exchanged_is_kept_with_a_warning():
    nn = pytest.importorskip("flax.linen")
    x = jnp.ones((1, 6, 6, 2))
    for kept in (nn.Conv(2, (3, 3), feature_group_count=2), nn.Conv(2, (3, 3), kernel_dilation=2)):
        with pytest.warns(UserWarning, match="thirty times slower inside a compiled loop.*has no equal"):
            model = from_flax(kept, x)
        params = model.init(jax.random.key(0))
        np.testing.assert_array_equal(model.apply(params, x), kept.apply({"params": params}, x))


def test_a_module_without_plain_convolutions_is_left_as_it_is():
    nn = pytest.importorskip("flax.linen")

    class Ours(nn.Module):
        @nn.compact
        def __call__(self, x):
            w = self.param("w", nn.initializers.he_normal(), (3, 3, 1, 2))
            return nn.Dense(3)(convolution(x, w).mean((1, 2)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = from_flax(Ours(), X)
    assert not has_plain_convolution(
        lambda p, batch, key: model.apply(p, batch.x), model.init(jax.random.key(0)), Batch(X, None, None)
    )
