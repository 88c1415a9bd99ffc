"""Personal models come back as what PyTorch loads; other inputs and losses than the usual ones pass through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import safetensors.torch  # noqa: E402
from torch_twins import FEATURES, KEY, batch, gap, network, twins  # noqa: E402

from apiece.errors import UserError  # noqa: E402
from apiece.models.torch.module import from_torch, load_params, save_state_dict, state_dict_of  # noqa: E402
from apiece.protocol import Batch  # noqa: E402
from apiece.split import paths, split  # noqa: E402


def moved(model):
    return jax.tree.map(lambda leaf: leaf + 1, model.init(KEY))


def test_a_state_dict_gives_the_module_the_model():
    model, module = from_torch(network()), network()
    params = moved(model)
    module.load_state_dict(state_dict_of(params), strict=True)
    with torch.no_grad():
        said = module(torch.tensor(np.asarray(batch().x))).numpy()
    assert gap(model.apply(params, batch().x), said) < 1e-6


def test_a_saved_model_opens_in_pytorch_and_here(tmp_path):
    model, module = from_torch(network()), network()
    params = moved(model)
    file = save_state_dict(tmp_path / "own.safetensors", params)
    module.load_state_dict(safetensors.torch.load_file(file), strict=True)
    again = load_params(file, model)
    assert gap(again, params) == 0 and list(again) == list(params)
    with pytest.raises(UserError, match=r"does not fit Linear: parameter weight is not there"):
        load_params(file, from_torch(torch.nn.Linear(2, 2)))
    with pytest.raises(UserError, match=r"parameter out/weight is \(3, 5\), not \(4, 5\)"):
        wide = network()
        wide.out = torch.nn.Linear(5, 4)
        load_params(file, from_torch(wide))
    (tmp_path / "bad.safetensors").write_bytes(b"no such thing")
    with pytest.raises(UserError, match=r"bad.safetensors cannot be read as a state_dict"):
        load_params(tmp_path / "bad.safetensors")


class Tied(torch.nn.Module):
    """One matrix by two names, a frozen layer and a constant buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.mix = torch.nn.Linear(4, 4).requires_grad_(False)
        self.head = torch.nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, tokens):
        assert not tokens.is_floating_point()
        return self.head(self.mix(self.embed(tokens) + self.shift))


def test_a_whole_state_dict_has_buffers_frozen_layers_and_both_names_of_a_shared_weight(tmp_path):
    module = Tied()
    model = from_torch(module)
    params = moved(model)
    assert list(params) == ["embed/weight"]
    whole = state_dict_of(params, module)
    other = Tied()
    other.load_state_dict(safetensors.torch.load_file(save_state_dict(tmp_path / "t", params, module)), strict=True)
    assert torch.equal(whole["head.weight"], torch.tensor(np.asarray(params["embed/weight"])))
    assert torch.equal(other.mix.weight, module.mix.weight)


def test_token_ids_reach_the_module_as_integers_and_absent_places_do_not_count():
    model = from_torch(Tied())
    tokens = jnp.array([[1, 2, 3], [4, 5, 6]], jnp.int32)
    given = Batch(tokens, jnp.array([[2, 3, -1], [5, 6, 7]], jnp.int32), jnp.ones(2))
    loss, error = model.objective.outcomes(model.init(KEY), given)
    first = model.apply(model.init(KEY), tokens)[0, :2]
    expected = -np.mean([jax.nn.log_softmax(first[0])[2], jax.nn.log_softmax(first[1])[3]])
    assert abs(float(loss[0]) - expected) < 1e-5
    assert loss.shape == error.shape == (2,) and ((error >= 0) & (error <= 1)).all()


def test_a_loss_and_an_error_of_ones_own_are_used():
    absolute = lambda out, y: (out[:, 0] - y).abs()
    judge = from_torch(torch.nn.Linear(FEATURES, 1), absolute, error=lambda out, y: 7 + 0 * y).objective
    params = {"weight": jnp.zeros((1, FEATURES)), "bias": jnp.zeros(1)}
    given = batch()._replace(y=jnp.arange(7.0))
    assert abs(float(judge.loss(params, given, KEY)) - 2) < 1e-6
    assert judge.outcomes(params, given)[1].tolist() == [7] * 5 + [0] * 2


def test_numbers_are_fitted_by_half_the_squared_error():
    judge = from_torch(torch.nn.Linear(FEATURES, 1)).objective
    params = {"weight": jnp.zeros((1, FEATURES)), "bias": jnp.zeros(1)}
    given = batch()._replace(y=jnp.arange(7.0))
    assert abs(float(judge.loss(params, given, KEY)) - 3) < 1e-6
    assert judge.outcomes(params, given)[1].tolist()[:5] == [0, 1, 4, 9, 16]


def test_parts_are_chosen_by_the_names_of_parameters():
    params = twins()[0].init(KEY)
    assert paths(params) == ["hidden/weight", "hidden/bias", "out/weight", "out/bias"]
    for words, mine in (("output", "out"), ("out", "out"), ("input", "hidden"), ("hidden", "hidden")):
        shared, own = split(params, words)
        assert all((own[name] is not None) == name.startswith(mine) for name in params)
        assert all((shared[name] is None) == name.startswith(mine) for name in params)
