"""Forward, and the gradient of the weights, as PyTorch's layers compute them with the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.models import cnn2_valid, resnet18
from apiece.models.attention import attention
from apiece.models.convolution import convolution, convolution_1d, max_pool
from apiece.models.layers import dense, embedding, group_norm, layer_norm
from apiece.models.recurrent import lstm

torch = pytest.importorskip("torch")
F = torch.nn.functional


def to_torch(a, *axes):
    return torch.tensor(np.array(a)).permute(*axes) if axes else torch.tensor(np.array(a))


def close(ours, theirs, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(ours), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(("stride", "padding", "around"), [(1, "valid", 0), (1, "same", 1), (2, "same", 1)])
def test_a_convolution_and_its_gradients_are_torch_s(rng, stride, padding, around):
    x, w = (jnp.array(rng.normal(size=s), jnp.float32) for s in ((2, 7, 8, 3), (3, 3, 3, 4)))
    tx, tw = to_torch(x, 0, 3, 1, 2).clone().requires_grad_(), to_torch(w, 3, 2, 0, 1).clone().requires_grad_()
    theirs = F.conv2d(tx, tw, stride=stride, padding=around)
    close(convolution(x, w, stride, padding), theirs.permute(0, 2, 3, 1))
    torch.sin(theirs).sum().backward()
    dx, dw = jax.jit(jax.grad(lambda x, w: jnp.sin(convolution(x, w, stride, padding)).sum(), (0, 1)))(x, w)
    close(dx, tx.grad.permute(0, 2, 3, 1))
    close(dw, tw.grad.permute(2, 3, 1, 0), 1e-4)


def test_a_convolution_along_time_is_torch_s(rng):
    x, w = (jnp.array(rng.normal(size=s), jnp.float32) for s in ((2, 9, 3), (5, 3, 4)))
    theirs = F.conv1d(to_torch(x, 0, 2, 1), to_torch(w, 2, 1, 0), stride=2, padding=2)
    close(convolution_1d(x, w, stride=2), theirs.permute(0, 2, 1))


def test_pooling_is_torch_s(rng):
    x = jnp.array(rng.normal(size=(2, 5, 6, 3)), jnp.float32)
    close(max_pool(x), F.max_pool2d(to_torch(x, 0, 3, 1, 2), 2).permute(0, 2, 3, 1))


def test_normalizations_are_torch_s(rng):
    x, scale, b = (jnp.array(rng.normal(size=s), jnp.float32) for s in ((2, 3, 5, 4), 4, 4))
    layer = {"scale": scale, "b": b}
    theirs = F.group_norm(to_torch(x, 0, 3, 1, 2), 2, to_torch(scale), to_torch(b))
    close(group_norm(layer, x, 2), theirs.permute(0, 2, 3, 1))
    close(layer_norm(layer, x), F.layer_norm(to_torch(x), (4,), to_torch(scale), to_torch(b)))


def test_dense_and_embedding_are_torch_s(rng):
    x, w, b = (jnp.array(rng.normal(size=s), jnp.float32) for s in ((5, 3), (4, 3), 4))
    close(dense({"w": w, "b": b}, x), F.linear(to_torch(x), to_torch(w), to_torch(b)))
    tokens = jnp.array([[0, 2], [3, 3]])
    close(embedding({"w": w}, tokens), F.embedding(to_torch(tokens), to_torch(w)))


def test_an_lstm_and_its_gradients_are_torch_s(rng):
    net = torch.nn.LSTM(3, 4, batch_first=True)
    with torch.no_grad():
        net.bias_hh_l0.zero_()  # torch has two biases that are only ever added
    x = jnp.array(rng.normal(size=(2, 6, 3)), jnp.float32)
    theirs = net(to_torch(x))[0]
    layer = {"w": net.weight_ih_l0, "u": net.weight_hh_l0, "b": net.bias_ih_l0}
    layer = {name: jnp.array(p.detach().numpy()) for name, p in layer.items()}
    close(lstm(layer, x), theirs)
    torch.sin(theirs).sum().backward()
    gradient = jax.jit(jax.grad(lambda layer: jnp.sin(lstm(layer, x)).sum()))(layer)
    close(gradient["u"], net.weight_hh_l0.grad)
    close(gradient["w"], net.weight_ih_l0.grad)


def test_causal_attention_is_torch_s(rng):
    net = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = jnp.array(rng.normal(size=(2, 5, 8)), jnp.float32)
    future = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    tx = to_torch(x)
    theirs = net(tx, tx, tx, attn_mask=future, need_weights=False)[0]
    parts = {"w": net.in_proj_weight, "b": net.in_proj_bias, "out": net.out_proj.weight, "out_b": net.out_proj.bias}
    close(attention({name: jnp.array(p.detach().numpy()) for name, p in parts.items()}, x, heads=2), theirs)


def test_a_whole_cnn_is_torch_s(rng):
    model = cnn2_valid((28, 28), 10, width=4, hidden=(16,))
    params = model.init(jax.random.key(0))
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                              torch.nn.Conv2d(4, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2))  # fmt: skip
    for layer, name in ((net[0], "conv0"), (net[3], "conv1")):
        layer.weight.data = to_torch(params[name]["w"], 3, 2, 0, 1)
        layer.bias.data = to_torch(params[name]["b"]) + 0.1
        params[name]["b"] = params[name]["b"] + 0.1
    x = rng.integers(0, 256, (3, 28, 28), np.uint8)
    h = net(torch.tensor(x / 255, dtype=torch.float32)[:, None]).permute(0, 2, 3, 1).reshape(3, -1)
    hidden, out = params["hidden0"], params["out"]
    h = F.relu(F.linear(h, to_torch(hidden["w"]), to_torch(hidden["b"])))
    close(model.apply(params, jnp.array(x)), F.linear(h, to_torch(out["w"]), to_torch(out["b"])))


def test_resnet18_has_the_parameters_of_torch_s():
    """He's network: 11,173,962 parameters for ten classes with this stem on colour images."""
    shapes = jax.eval_shape(resnet18((32, 32, 3), 10).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 11_173_962
