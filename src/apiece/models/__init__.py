"""The models used, each an init/apply pair with named parameters; and what a model is trained and judged by."""

from apiece.models.model import Model, accept, linear, mlp, quadratic, softmax
from apiece.models.objective import Objective, objective

__all__ = ["Model", "Objective", "accept", "linear", "mlp", "objective", "quadratic", "softmax"]
