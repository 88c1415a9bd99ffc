"""What a client does with its data: draw a batch, descend, solve."""

from apiece.client.descend import descend, full_gradient, gradient, toward
from apiece.client.draw import draw, shuffler, whole
from apiece.client.schedule import schedule
from apiece.client.solve import accelerated, alternate, conjugate_gradients, slopes, solve

# fmt: off
__all__ = [
    "draw", "shuffler", "whole",
    "descend", "full_gradient", "gradient", "toward",
    "accelerated", "alternate", "conjugate_gradients", "slopes", "solve",
    "schedule",
]
