"""apiece's networks, written in PyTorch as one would: the same layers, the same sizes."""

import torch
from torch import nn
from torch.nn import functional as F

from .workloads import Workload


class Text(nn.Module):
    """char_lstm: embedding 8, two layers of 256."""

    def __init__(self, tokens: int):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(tokens, 8), nn.LSTM(8, 256, 2, batch_first=True)
        self.out = nn.Linear(256, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.embed(x))[0])


class Transformer(nn.Module):
    """Four causal blocks of 256/1024, four heads, norm first."""

    def __init__(self, tokens: int, length: int):
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, 256), nn.Parameter(0.02 * torch.randn(length, 256))
        block = nn.TransformerEncoderLayer(
            256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, 4, norm=nn.LayerNorm(256), enable_nested_tensor=False)
        self.out = nn.Linear(256, tokens)
        self.future = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks(self.embed(x) + self.place, self.future, is_causal=True))


class Block(nn.Module):
    """A basic block of ResNet-18 with group norm."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv0 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv1 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm0, self.norm1 = nn.GroupNorm(2, outputs), nn.GroupNorm(2, outputs)
        changed = stride > 1 or inputs != outputs
        short = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(2, outputs)] if changed else []
        self.short = nn.Sequential(*short)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm0(self.conv0(x)))
        return F.relu(self.norm1(self.conv1(h)) + self.short(x))


class Mean(nn.Module):
    """Over height and width."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def resnet18(channels: int, classes: int) -> nn.Sequential:
    """The stem for small images, four stages of two blocks."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU()]
    inputs = 64
    for stage in range(4):
        for k in range(2):
            layers.append(Block(inputs, 64 * 2**stage, 2 if stage and not k else 1))
            inputs = 64 * 2**stage
    return nn.Sequential(*layers, Mean(), nn.Linear(inputs, classes))


# By name: window, padding, the filters of each convolution and whether it is pooled, the dense layer.
CONVOLVED = {
    "cnn2_valid": (5, 0, ((32, True), (64, True)), 512),
    "cnn2": (5, 2, ((32, True), (64, True)), 512),
    "cnn3": (3, 1, ((32, True), (64, True), (64, True)), 64),
    "cnn5": (3, 1, ((32, False), (32, True), (64, False), (64, True), (128, True)), 128),
}


def network(w: Workload) -> nn.Module:
    """The workload's model."""
    torch.manual_seed(0)
    if w.model == "char_lstm":
        return Text(w.classes)
    if w.model == "transformer":
        return Transformer(w.classes, w.features)
    channels = w.shape[-1] if len(w.shape) == 3 else 1
    if w.model == "resnet18":
        return resnet18(channels, w.classes)
    if w.model == "sensor_cnn":
        convolved = [nn.Conv1d(w.shape[1], 32, 5, 2, 2), nn.ReLU(), nn.Conv1d(32, 64, 5, 2, 2), nn.ReLU()]
        return nn.Sequential(*convolved, nn.Flatten(), nn.Linear(w.shape[0] // 4 * 64, 64), nn.ReLU(),
                             nn.Linear(64, w.classes))  # fmt: skip
    window, padding, stages, hidden = CONVOLVED[w.model]
    layers: list[nn.Module] = []
    size = w.shape[0]
    for filters, pooled in stages:
        size = (size + 2 * padding - window + 1) // (2 if pooled else 1)
        # Pooling before ReLU, as in apiece: the same numbers, a quarter of the work.
        layers += [nn.Conv2d(channels, filters, window, 1, padding), *([nn.MaxPool2d(2)] if pooled else []), nn.ReLU()]
        channels = filters
    dense = [nn.Linear(size * size * channels, hidden), nn.ReLU(), nn.Linear(hidden, w.classes)]
    return nn.Sequential(*layers, nn.Flatten(), *dense)
