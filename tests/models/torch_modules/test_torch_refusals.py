"""What cannot be trained is refused before a run, in words that say what to do; PyTorch's errors in its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_twins import CLASSES, FEATURES, HIDDEN, KEY, batch, network, twins  # noqa: E402

import apiece  # noqa: E402
from apiece.errors import UserError  # noqa: E402
from apiece.models.failures import raise_failures  # noqa: E402
from apiece.models.torch.module import from_torch  # noqa: E402

PARAMS = twins()[0].init(KEY)


def test_running_statistics_are_refused_by_name():
    loss = from_torch(network(("norm", torch.nn.BatchNorm1d(HIDDEN)))).objective.loss
    with pytest.raises(UserError, match=r"norm.running_mean, norm.running_var.*BatchNorm1d.*GroupNorm.*track_running"):
        jax.jit(loss)({**PARAMS, "norm/weight": jnp.ones(HIDDEN), "norm/bias": jnp.zeros(HIDDEN)}, batch(), KEY)


@pytest.mark.parametrize(
    "norm", [torch.nn.GroupNorm(1, HIDDEN), torch.nn.BatchNorm1d(HIDDEN, track_running_stats=False)]
)
def test_the_remedies_for_running_statistics_work(norm):
    model = from_torch(network(("norm", norm)))
    slope = jax.jit(jax.grad(model.objective.loss))(model.init(KEY), batch(), KEY)
    assert all(np.isfinite(leaf).all() for leaf in slope.values()) and "norm/weight" in slope


def test_statistics_that_are_frozen_are_accepted():
    module = network(("norm", torch.nn.BatchNorm1d(HIDDEN)))
    module.get_submodule("norm").eval()
    model = from_torch(module)
    assert np.isfinite(model.objective.loss(model.init(KEY), batch(), KEY))


class Counter(torch.nn.Module):
    """Writes into a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(FEATURES, CLASSES)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return self.layer(x)


def test_a_buffer_that_changes_is_refused_by_name():
    model = from_torch(Counter())
    with pytest.raises(UserError, match=r"Counter changes buffers .*\(seen; of Counter\)"):
        model.objective.loss(model.init(KEY), batch(), KEY)


def test_a_third_derivative_is_refused():
    loss = twins()[0].objective.loss
    slope = lambda p: jax.grad(loss)(p, batch(), KEY)
    curve = lambda p: jax.jvp(slope, (p,), (PARAMS,))[1]
    with pytest.raises(UserError, match="third derivative of Sequential"):
        jax.jvp(curve, (PARAMS,), (PARAMS,))


def test_a_derivative_in_the_examples_is_refused():
    loss = twins()[0].objective.loss
    with pytest.raises(UserError, match="in its examples was asked for"):
        jax.grad(lambda x: loss(PARAMS, batch()._replace(x=x), KEY))(batch().x)
    with pytest.raises(UserError, match=r"differentiate model.objective.loss"):
        jax.grad(lambda p: twins()[0].apply(p, batch().x).sum())(PARAMS)


class Attention(torch.nn.Module):
    """The fused attention of PyTorch has a first derivative only."""

    def forward(self, h):
        wide = h[:, None, None, :]
        return torch.nn.functional.scaled_dot_product_attention(wide, wide, wide).flatten(1)


def test_a_layer_without_a_second_derivative_says_so_before_the_run():
    loss = from_torch(network(("mix", Attention()))).objective.loss
    slope = lambda p: jax.grad(loss)(p, batch(), KEY)
    jax.jit(slope)(PARAMS)
    with pytest.raises(
        UserError, match=r"in the second derivative of Sequential: RuntimeError: derivative for .* not impl"
    ):
        jax.jit(lambda p: jax.jvp(slope, (p,), (p,))[1])(PARAMS)


class Floats(torch.nn.Module):
    """Pictures as numbers, then a linear layer."""

    def __init__(self, features=64, classes=10):
        super().__init__()
        self.out = torch.nn.Linear(features, classes)

    def forward(self, x):
        return self.out(x.float() / 255)


def test_a_wrong_shape_is_told_in_the_words_of_pytorch_before_the_run():
    model = from_torch(Floats(features=60))
    with pytest.raises(UserError, match=r"PyTorch, in the gradient of Floats: RuntimeError: mat1 and mat2 shapes"):
        apiece.fit("fed_avg", model, apiece.data.digits(clients=4), objective=model.objective, rounds=1)


def test_an_error_inside_a_run_is_told_in_the_words_of_pytorch_and_does_not_hang():
    model = from_torch(Floats(classes=7))  # labels 7, 8 and 9 are met only when the run is under way
    with pytest.raises(UserError, match=r"PyTorch, in the gradient of Floats: IndexError: Target . is out of bounds"):
        apiece.fit("fed_avg", model, apiece.data.digits(clients=4), objective=model.objective, rounds=1)
    raise_failures()  # told once


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: from_torch(3), "needs a torch.nn.Module, or a function that makes one; got int"),
        (lambda: from_torch(lambda: "net"), "needs a torch.nn.Module, or a function that makes one; got str"),
        (lambda: from_torch(torch.nn.Tanh()), "Tanh has no parameter to train"),
        (lambda: from_torch(torch.nn.Linear(2, 2).double()), r"weight of Linear is torch.float64 .* module.float\(\)"),
        (lambda: from_torch(torch.nn.LazyLinear(2)), "lazy parameters .*run it once"),
    ],
)
def test_what_is_no_model_is_refused(made, said):
    with pytest.raises(UserError, match=said):
        made()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda out, y: torch.nn.functional.cross_entropy(out, y), r"one number an example.*shape \(\)"),
        (lambda out, y: torch.zeros(len(y), 2), r"one number an example.*shape \(2, 2\)"),
        (lambda out, y: out @ y, "PyTorch, in the gradient of Sequential: RuntimeError"),
    ],
)
def test_a_loss_that_is_not_by_example_is_refused(loss, said):
    with pytest.raises(UserError, match=said):
        from_torch(network(), loss).objective.loss(PARAMS, batch(), KEY)


def test_outputs_that_do_not_fit_the_labels_are_refused():
    loss = from_torch(torch.nn.Linear(FEATURES, 1)).objective.loss
    params = {"weight": jnp.zeros((1, FEATURES)), "bias": jnp.zeros(1)}
    with pytest.raises(UserError, match="one score a class along the last axis"):
        loss(params, batch(), KEY)
    wide = from_torch(torch.nn.Linear(FEATURES, 2)).objective.loss
    with pytest.raises(UserError, match=r"outputs of shape \(2, 2\) for labels of shape \(2,\)"):
        wide({"weight": jnp.zeros((2, FEATURES)), "bias": jnp.zeros(2)}, batch()._replace(y=jnp.zeros(7)), KEY)
