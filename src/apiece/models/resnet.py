"""ResNet-18 with group normalization in place of batch normalization, whose statistics would mix clients.

The stem is that for small images: a 3x3 convolution without pooling (He et al. 2016; Hsieh et al. 2020).
"""

from collections.abc import Sequence
from typing import Any

import jax

from apiece.client.draw import numbers
from apiece.models.cnn import image_shape
from apiece.models.convolution import convolution
from apiece.models.layers import convolution_init, dense_init, group_norm, norm_init
from apiece.models.model import Model, with_output
from apiece.protocol import Params


def resnet18(
    shape: Sequence[int], outputs: int, width: int = 64, blocks: Sequence[int] = (2, 2, 2, 2), groups: int = 2
) -> Model:
    """Stages of basic blocks with `width`, 2 `width`, ... channels, each stage after the first halving the image.

    A block adds to its input norm(conv(relu(norm(conv(input))))); where the size changes, the input passes a 1x1
    convolution. The mean over places goes to the outputs.

    >>> params = jax.eval_shape(resnet18((8, 8), 10, width=8, blocks=(1, 1)).init, jax.random.key(0))
    >>> list(params), sorted(params["block1"])
    (['block0', 'block1', 'norm', 'out', 'stem'], ['conv0', 'conv1', 'norm0', 'norm1', 'norm2', 'shortcut'])
    """
    height, wide, channels = image_shape(shape)
    plan: list[tuple[str, int, int, int]] = []  # name, channels in and out, stride
    inputs = width
    for stage, count in enumerate(blocks):
        for k in range(count):
            filters, stride = width * 2**stage, 2 if stage and not k else 1
            plan.append((f"block{len(plan)}", inputs, filters, stride))
            inputs = filters

    def init(key: Any) -> Params:
        keys = iter(jax.random.split(key, 2 + 3 * len(plan)))
        filters = lambda size, fan, out: convolution_init(next(keys), (size, size), fan, out, bias=False)
        params: Params = {"stem": filters(3, channels, width), "norm": norm_init(width)}
        for name, fan, out, stride in plan:
            block = {"conv0": filters(3, fan, out), "norm0": norm_init(out)}
            block |= {"conv1": filters(3, out, out), "norm1": norm_init(out)}
            if stride > 1 or fan != out:
                block |= {"shortcut": filters(1, fan, out), "norm2": norm_init(out)}
            params[name] = block
        return params | {"out": dense_init(next(keys), inputs, outputs, gain=1.0)}

    def features(params: Params, x: jax.Array) -> jax.Array:
        h = numbers(x).reshape(len(x), height, wide, channels)
        h = jax.nn.relu(group_norm(params["norm"], convolution(h, params["stem"]["w"]), groups))
        for name, _, _, stride in plan:
            block, back = params[name], h
            h = jax.nn.relu(group_norm(block["norm0"], convolution(h, block["conv0"]["w"], stride), groups))
            h = group_norm(block["norm1"], convolution(h, block["conv1"]["w"]), groups)
            if "shortcut" in block:
                back = group_norm(block["norm2"], convolution(back, block["shortcut"]["w"], stride), groups)
            h = jax.nn.relu(h + back)
        return h.mean((1, 2))

    return with_output(init, features, f"resnet {2 + 2 * len(plan)}, {width}-{inputs}-{outputs}")
