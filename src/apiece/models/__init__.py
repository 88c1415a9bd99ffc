"""The models used, each an init/apply pair with named parameters; and what a model is trained and judged by."""

from typing import TYPE_CHECKING, Any

from apiece.models.adapter import adapted
from apiece.models.catalog import MODELS, named_model
from apiece.models.cnn import Stage, cnn, cnn2, cnn2_valid, cnn3, cnn5, sensor_cnn
from apiece.models.foreign import accept, from_equinox, from_flax, has_plain_convolution
from apiece.models.model import Model, linear, mlp, quadratic, softmax
from apiece.models.objective import Objective, brier, objective
from apiece.models.pretrain import features, pretrained
from apiece.models.resnet import resnet18
from apiece.models.sequence import char_lstm, text_lstm, transformer

if TYPE_CHECKING:
    from apiece.models.torch.module import from_torch, load_params, save_state_dict, state_dict_of

# fmt: off
__all__ = [
    "Model", "linear", "mlp", "quadratic", "softmax",
    "Stage", "cnn", "cnn2", "cnn2_valid", "cnn3", "cnn5", "resnet18", "sensor_cnn",
    "char_lstm", "text_lstm", "transformer",
    "MODELS", "named_model", "adapted",
    "accept", "from_equinox", "from_flax", "has_plain_convolution",
    "from_torch", "state_dict_of", "save_state_dict", "load_params",
    "Objective", "brier", "objective", "features", "pretrained",
]

TORCH = ("from_torch", "state_dict_of", "save_state_dict", "load_params")


def __getattr__(name: str) -> Any:
    """What torch modules need is loaded when it is asked for: it uses parts of JAX that others should not depend on."""
    if name not in TORCH:
        raise AttributeError(f"module 'apiece.models' has no attribute '{name}'")
    from apiece.models.torch import module as torch_module

    return getattr(torch_module, name)
