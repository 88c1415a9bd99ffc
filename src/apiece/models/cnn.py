"""Convolutional networks for images and for sensors.

A stage is a convolution, 2x2 max pooling where it is said, a bias and a ReLU. The bias is added after pooling, which
gives the same numbers as before it from a quarter of the work.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from apiece.client.draw import numbers
from apiece.errors import UserError
from apiece.models.convolution import convolution, convolution_1d, max_pool
from apiece.models.layers import convolution_init, dense_init
from apiece.models.model import Model, check_counts, check_sizes, rectified, with_output
from apiece.protocol import Params


class Stage(NamedTuple):
    """One convolution: how many filters, of which size, pooled or not.

    >>> Stage(32, size=5)
    Stage(filters=32, size=5, pooled=True)
    """

    filters: int
    size: int = 3
    pooled: bool = True


def cnn(
    shape: Sequence[int], outputs: int, stages: Sequence[Stage], hidden: Sequence[int] = (), padding: str = "same"
) -> Model:
    """Stages, then dense layers with ReLU, then the outputs; layers are named conv0, ..., hidden0, ..., out.

    `shape` is an image's (height, width) or (height, width, channels).

    >>> model = cnn((8, 8), 10, [Stage(4), Stage(8)], hidden=(16,))
    >>> [(name, layer["w"].shape) for name, layer in jax.eval_shape(model.init, jax.random.key(0)).items()]
    [('conv0', (3, 3, 1, 4)), ('conv1', (3, 3, 4, 8)), ('hidden0', (16, 32)), ('out', (10, 16))]
    """
    height, width, channels = image_shape(shape)
    check_sizes("cnn", shape, outputs, hidden)
    if not stages or any(min(stage.filters, stage.size) < 1 for stage in stages):
        raise UserError(f"cnn: stages must be one Stage or more, of at least one filter and size 1, not {stages!r}")
    convolved = [(f"conv{k}", stage) for k, stage in enumerate(stages)]
    rows, columns, inputs = height, width, channels
    fans = []
    for stage in stages:
        lost = 0 if padding == "same" else stage.size - 1
        half = 2 if stage.pooled else 1
        rows, columns = (rows - lost) // half, (columns - lost) // half
        fans.append(inputs)
        inputs = stage.filters
        if min(rows, columns) < 1:
            raise UserError(f"images of {height}x{width} are too small for {len(stages)} such stages; take fewer")
    widths = [rows * columns * inputs, *hidden, outputs]
    names = [f"hidden{k}" for k in range(len(hidden))] + ["out"]

    def init(key: Any) -> Params:
        keys = iter(jax.random.split(key, len(stages) + len(names)))
        params = {
            name: convolution_init(next(keys), (stage.size, stage.size), fan, stage.filters)
            for (name, stage), fan in zip(convolved, fans, strict=True)
        }
        for name, fan, wide in zip(names, widths[:-1], widths[1:], strict=True):
            params[name] = dense_init(next(keys), fan, wide, gain=1.0 if name == "out" else 2.0)
        return params

    def features(params: Params, x: jax.Array) -> jax.Array:
        h = numbers(x).reshape(len(x), height, width, channels)
        for name, stage in convolved:
            h = convolution(h, params[name]["w"], padding=padding)
            h = jax.nn.relu((max_pool(h) if stage.pooled else h) + params[name]["b"])
        return rectified(params, names[:-1], h.reshape(len(x), -1))

    filters = "-".join(str(stage.filters) for stage in stages)
    return with_output(init, features, f"cnn {filters}, " + "-".join(map(str, widths)))


def cnn2(shape: Sequence[int], outputs: int, width: int = 32, hidden: Sequence[int] = (512,)) -> Model:
    """Two 5x5 convolutions (`width` and twice as many filters), each pooled, and a dense layer.

    >>> cnn2((28, 28), 10).name
    'cnn 32-64, 3136-512-10'
    """
    return cnn(shape, outputs, [Stage(width, 5), Stage(2 * width, 5)], hidden)


def cnn2_valid(shape: Sequence[int], outputs: int, width: int = 32, hidden: Sequence[int] = (512,)) -> Model:
    """As `cnn2`, without padding: 28x28 images end as 4x4 of 64 channels (1024-512-10), a usual benchmark.

    >>> cnn2_valid((28, 28), 10).name
    'cnn 32-64, 1024-512-10'
    """
    return cnn(shape, outputs, [Stage(width, 5), Stage(2 * width, 5)], hidden, padding="valid")


def cnn3(
    shape: Sequence[int], outputs: int, width: int = 32, hidden: Sequence[int] = (64,), third: int | None = None
) -> Model:
    """Three 3x3 convolutions (`width`, then twice as many, then `third` or as many again), each pooled; a dense layer.

    >>> cnn3((32, 32, 3), 10).name, cnn3((28, 28), 10, third=128, hidden=()).name
    ('cnn 32-64-64, 1024-64-10', 'cnn 32-64-128, 1152-10')
    """
    return cnn(shape, outputs, [Stage(width), Stage(2 * width), Stage(third or 2 * width)], hidden)


def cnn5(shape: Sequence[int], outputs: int, width: int = 32, hidden: Sequence[int] = (128,)) -> Model:
    """Five 3x3 convolutions, two before each of two poolings and one before a third, and a dense layer.

    >>> cnn5((28, 28), 47).name
    'cnn 32-32-64-64-128, 1152-128-47'
    """
    first, second, third = width, 2 * width, 4 * width
    pairs = [Stage(filters, 3, pooled) for filters in (first, second) for pooled in (False, True)]
    return cnn(shape, outputs, [*pairs, Stage(third)], hidden)


def sensor_cnn(
    shape: Sequence[int], outputs: int, width: int = 32, size: int = 5, hidden: Sequence[int] = (64,)
) -> Model:
    """For signals (length, channels) or (length,): two convolutions along time, each of stride 2, and a dense layer.

    >>> model = sensor_cnn((128, 9), 6)
    >>> model.name
    'sensor cnn 32-64, 2048-64-6'
    """
    if len(shape) not in (1, 2) or shape[0] < 2:
        raise UserError(f"a sensor_cnn takes signals (length,) or (length, channels), not examples of shape {shape}")
    check_sizes("sensor_cnn", shape, outputs, hidden)
    check_counts("sensor_cnn", width=width, size=size)
    length, channels = shape[0], shape[1] if len(shape) == 2 else 1
    filters = (width, 2 * width)
    end = (length + 3) // 4  # halved twice, rounded up
    widths = [end * filters[-1], *hidden, outputs]
    names = [f"hidden{k}" for k in range(len(hidden))] + ["out"]

    def init(key: Any) -> Params:
        keys = iter(jax.random.split(key, len(filters) + len(names)))
        fans = zip((channels, *filters), filters, strict=False)
        params = {f"conv{k}": convolution_init(next(keys), (size,), *fan) for k, fan in enumerate(fans)}
        for name, fan, wide in zip(names, widths[:-1], widths[1:], strict=True):
            params[name] = dense_init(next(keys), fan, wide, gain=1.0 if name == "out" else 2.0)
        return params

    def features(params: Params, x: jax.Array) -> jax.Array:
        h = numbers(x).reshape(len(x), length, channels)
        for k in range(len(filters)):
            layer = params[f"conv{k}"]
            h = jax.nn.relu(convolution_1d(h, layer["w"], stride=2) + layer["b"])
        return rectified(params, names[:-1], h.reshape(len(x), -1))

    return with_output(init, features, f"sensor cnn {filters[0]}-{filters[1]}, " + "-".join(map(str, widths)))


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """(height, width, channels) of an image's shape, which may leave the one channel out.

    >>> image_shape((28, 28))
    (28, 28, 1)
    """
    if len(shape) not in (2, 3) or math.prod(shape) < 1:
        raise UserError(
            f"a model of images needs examples of shape (height, width) or (height, width, channels), "
            f"not {tuple(shape)}; "
            "store the pictures in their own shape, or take softmax or mlp"
        )
    height, width, *channels = shape
    return height, width, channels[0] if channels else 1
