"""The same networks in a plain PyTorch loop; the clock stands still while batches are drawn and gathered."""

import torch
from torch import nn
from torch.nn import functional as F

from . import rival_torch, workloads
from .deep import examples


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


def network(w: workloads.Workload) -> nn.Module:
    torch.manual_seed(0)
    if w.model == "char_lstm":
        return Text(w.classes)
    if w.model == "transformer":
        return Transformer(w.classes, w.features)
    # Pooling before ReLU, as in apiece: the same numbers, a quarter of the work.
    convolved = [nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*convolved, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


class System(rival_torch.System):
    """FedAvg as in `rival_torch`, with another network and, for images, PyTorch's other memory format."""

    def __init__(self, w: workloads.Workload, method: str, threads: int, form: str):
        torch.set_num_threads(threads)
        self.w, self.rng = w, workloads.np.random.default_rng(0)
        x, y = examples(w)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y).long()
        self.net, self.form = network(w), torch.contiguous_format
        if w.model == "cnn2_valid":
            self.x = self.x[:, None].float() / 255
            self.form = torch.channels_last if form == "channels_last" else self.form
            self.net = self.net.to(memory_format=self.form)
        else:
            self.x = self.x.long()
        self.shared = {k: v.clone() for k, v in self.net.state_dict().items()}

    def local(self, xs: torch.Tensor, ys: torch.Tensor) -> None:
        self.net.load_state_dict(self.shared)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.w.lr)
        for x, y in zip(xs, ys, strict=True):
            optimizer.zero_grad()
            self.judged(x, y).backward()
            optimizer.step()

    def judged(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.ndim == 4:
            x = x.contiguous(memory_format=self.form)
        return F.cross_entropy(self.net(x).flatten(0, -2), y.flatten())

    def loss(self) -> float:
        self.net.load_state_dict(self.shared)
        with torch.no_grad():
            return float(self.judged(self.x[:64], self.y[:64]))
