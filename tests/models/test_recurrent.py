"""The LSTM's own gradient is that of automatic differentiation, first and second."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece.models.recurrent import lstm, lstm_init


def plain_lstm(layer, x):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ layer["w"].T + h @ layer["u"].T + layer["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[0], layer["u"].shape[1]), x.dtype)
    return lax.scan(step, (start, start), x.swapaxes(0, 1))[1].swapaxes(0, 1)


def setting():
    layer = lstm_init(jax.random.key(0), 3, 4)
    return layer, jax.random.normal(jax.random.key(1), (2, 5, 3))


def close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), a, b)


def test_value_and_gradients_equal_automatic_ones(x64):
    bent = lambda f: lambda layer, x: jnp.sum(jnp.sin(f(layer, x)))
    close(*(jax.jit(jax.value_and_grad(bent(f), (0, 1)))(*setting()) for f in (lstm, plain_lstm)))


def test_second_derivatives_equal_automatic_ones(x64):
    layer, x = setting()
    along = jax.tree.map(jnp.cos, layer)
    slope = lambda f: jax.grad(lambda layer: jnp.sum(jnp.sin(f(layer, x))))
    curved = lambda f: jax.jit(lambda layer: jax.jvp(slope(f), (layer,), (along,))[1])(layer)
    close(curved(lstm), curved(plain_lstm))


def test_gradients_hold_inside_loops(x64):
    layer, x = setting()
    gradient = lambda x: jax.grad(lambda layer: jnp.sum(jnp.sin(lstm(layer, x))))(layer)
    expected = jax.tree.map(lambda leaf: leaf[None], jax.jit(gradient)(x))
    close(jax.jit(jax.vmap(gradient))(x[None]), expected)
    close(lax.map(gradient, x[None]), expected)
