"""How examples were scaled for training: what takes a new example there, and an answer back to its own units."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from apiece.errors import UserError


@dataclass(frozen=True, eq=False)
class Scaling:
    """Features become (x - mean) / spread, and targets (y - target_mean) / target_spread.

    >>> scaling = Scaling(np.array([60.0]), np.array([10.0]), target_mean=5.0, target_spread=2.0)
    >>> scaling.inputs(np.array([[70.0]])).tolist(), scaling.in_own_units(np.array([0.5])).tolist()
    ([[1.0]], [6.0])
    """

    mean: np.ndarray
    spread: np.ndarray
    target_mean: float = 0.0
    target_spread: float = 1.0

    @property
    def of_targets(self) -> bool:
        """Whether targets are scaled, too."""
        return (self.target_mean, self.target_spread) != (0.0, 1.0)

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Features as they come, as a model takes them."""
        return (x - self.mean) / self.spread

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as they come, as a model is trained on them."""
        return (y - self.target_mean) / self.target_spread

    def in_own_units(self, outputs: np.ndarray) -> np.ndarray:
        """A model's answers, in the units of the targets."""
        return outputs * self.target_spread + self.target_mean

    def after(self, first: "Scaling | None") -> "Scaling":
        """Both as one: `first`, then this.

        >>> twice = Scaling(np.array([1.0]), np.array([2.0])).after(Scaling(np.array([60.0]), np.array([10.0])))
        >>> twice.mean.tolist(), twice.spread.tolist()
        ([70.0], [20.0])
        """
        if first is None:
            return self
        mean, spread = first.mean + first.spread * self.mean, first.spread * self.spread
        target_mean = first.target_mean + first.target_spread * self.target_mean
        return Scaling(mean, spread, target_mean, first.target_spread * self.target_spread)

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "mean": np.asarray(self.mean, np.float64).tolist(),
            "spread": np.asarray(self.spread, np.float64).tolist(),
            "target_mean": self.target_mean,
            "target_spread": self.target_spread,
        }

    @classmethod
    def from_dict(cls, values: Any) -> "Scaling":
        """What `as_dict` gave; a `UserError` if it is damaged.

        >>> Scaling.from_dict(Scaling(np.zeros(2), np.ones(2)).as_dict()).spread.tolist()
        [1.0, 1.0]
        """
        try:
            mean, spread = (np.asarray(values[key], np.float64) for key in ("mean", "spread"))
            return cls(mean, spread, float(values["target_mean"]), float(values["target_spread"]))
        except (KeyError, TypeError, ValueError):
            raise UserError(f"no valid scaling: {str(values)[:80]}") from None
