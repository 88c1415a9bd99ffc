"""Methods train a PyTorch module as they train the same model in JAX, on every engine."""

import functools

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_twins import gap, in_jax  # noqa: E402

import apiece  # noqa: E402
from apiece import methods, testing  # noqa: E402
from apiece.engines.costs import costs  # noqa: E402
from apiece.models import Model  # noqa: E402
from apiece.models.failures import raise_failures  # noqa: E402
from apiece.models.torch.module import from_torch  # noqa: E402
from apiece.testing import case  # noqa: E402


class Softmax(torch.nn.Module):
    """With the parameters that `apiece.testing` gives: w and b."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(case.CLASSES, case.FEATURES))
        self.b = torch.nn.Parameter(torch.zeros(case.CLASSES))

    def forward(self, x):
        return x @ self.w.T + self.b


LOSS = from_torch(Softmax()).objective.loss


def by_torch(factory):
    """The same method, with PyTorch's loss in place of the one it is given."""
    return functools.wraps(factory)(lambda loss, **options: factory(LOSS, **options))


QUICK = [
    ("fed_avg", {}, "vectorized"),
    ("ditto", {}, "remote"),
    ("scaffold", {}, "remote"),
    ("maml_fl", {"order": "exact", "tune_epochs": None, "tune_steps": 1}, "vectorized"),
    ("ffgg", {"tune_epochs": None, "tune_steps": 1}, "remote"),
]
WHOLE = [
    pytest.param(name, options, engine, marks=pytest.mark.exhaustive)
    for name, options, there in [*QUICK, ("partial", {"order": "alternate"}, "")]
    for engine in testing.ENGINES
    if engine != there
]


@pytest.mark.parametrize(("name", "options", "engine"), [*QUICK, *WHOLE])
def test_a_method_does_with_pytorch_what_it_does_with_jax(name, options, engine):
    factory, schedule = methods.CATALOG[name], ((0, 1, 2, 3), (1, 3))
    cases = testing.Case(by_torch(factory), options), testing.Case(factory, options)
    theirs, ours = (case.run(engine, schedule, models=False) for case in cases)
    raise_failures()
    assert gap(ours.replies, jax.tree.map(np.zeros_like, ours.replies)) > 1e-3, "nothing was learned"
    for a, b in zip(theirs, ours, strict=True):
        assert gap(a, b) < 2e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["fed_avg", "ditto"])
def test_a_method_with_a_pytorch_loss_keeps_the_whole_contract(name):
    fits = [check for check in testing.CHECKS if not testing.CHECKS[check].layers]  # the module has one layer
    assert testing.check_method(by_torch(methods.CATALOG[name]), checks=fits)
    raise_failures()


def small_digits():
    return apiece.data.digits(clients=6).hold_out_clients(0.2)


class Digits(torch.nn.Module):
    """Takes pictures as they are stored, uint8."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 8)
        self.out = torch.nn.Linear(8, 10)

    def forward(self, x):
        assert x.dtype == torch.uint8
        return self.out(torch.tanh(self.hidden(x.float() / 255)))


def test_fit_trains_judges_predicts_and_onboards():
    torch.manual_seed(0)
    model, federation = from_torch(Digits()), small_digits()
    how = dict(rounds=4, evaluate_every=2, options={"steps": 5, "lr": 0.5})
    ours = Model(model.init, lambda params, x: in_jax(params, x.astype(np.float32) / 255))
    there = apiece.fit("fed_per", model, federation, objective=model.objective, **how)
    here = apiece.fit("fed_per", ours, federation, **how)
    assert gap(there.personal("0"), here.personal("0")) < 1e-6
    assert gap(there.personal("0"), there.personal("1")) > 1e-3
    for mine, other in zip(there.curve, here.curve, strict=True):
        for what in ("validation_loss", "validation_error"):
            assert abs(mine[what] - other[what]) < 1e-6
    assert there.costs["gradients"] == here.costs["gradients"] > 0
    x, y = federation.new.train.x[:5], federation.new.train.y[:5]
    assert gap(there.predict("0", x), here.predict("0", x)) < 1e-5
    assert gap(there.onboard(x, y), here.onboard(x, y)) < 1e-5  # many more steps, on parameters of size 1
    raise_failures()


def test_a_function_that_makes_the_module_gives_every_seed_its_own_start():
    model = from_torch(Digits)
    init = jax.jit(model.init)
    first, again, other = (init(jax.random.key(seed)) for seed in (0, 0, 1))
    assert gap(first, again) == 0 and gap(first, other) > 1e-3
    assert gap(from_torch(made := Digits()).init(jax.random.key(5))["out/bias"], made.out.bias.detach().numpy()) == 0


def test_frozen_parameters_stay_and_are_not_sent():
    module = Digits()
    module.hidden.requires_grad_(False)
    model = from_torch(module)
    assert list(model.init(jax.random.key(0))) == ["out/weight", "out/bias"]
    example = np.zeros((1, 64), np.uint8), np.zeros(1, np.int32)
    sent = costs(methods.fed_avg(model.objective.loss), model.init(jax.random.key(0)), example, size=40)
    assert sent.bytes_up == sent.bytes_down == 4 * (80 + 10)
