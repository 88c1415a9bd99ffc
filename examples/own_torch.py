"""A PyTorch network of your own, unchanged: one for everybody (FedAvg) against one apiece (Ditto).

Run it: python examples/own_torch.py    (needs PyTorch: pip install 'apiece[torch]')
"""

import tempfile
from pathlib import Path

import torch

import apiece
from apiece.models import from_torch, save_state_dict, state_dict_of


class Digits(torch.nn.Module):
    """A small convolutional network; pictures arrive as they are stored: rows of 64 pixels, uint8."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.norm = torch.nn.GroupNorm(2, 8)
        self.drop = torch.nn.Dropout(0.1)
        self.out = torch.nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = x.view(-1, 1, 8, 8).float() / 255
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(self.drop(x.flatten(1)))


# Ten clients that each see few of the ten digits. A function that makes the module: every seed has its own start.
federation = apiece.data.digits(clients=10, alpha=0.1)
model = from_torch(Digits)

fitted = {}
for method in ("fed_avg", "ditto"):
    how = dict(rounds=10, evaluate_every=10, options={"steps": 10, "lr": 0.2})
    fitted[method] = apiece.fit(method, model, federation, objective=model.objective, **how)
    error = fitted[method].curve[-1]["validation_error"]
    print(f"{method:8} validation accuracy {1 - error:.3f}, {fitted[method].costs['gradients']:.0f} gradients")

# A client's own model goes back to PyTorch, as a state_dict or as a safetensors file.
first = federation.ids[0]
own = fitted["ditto"].personal(first)
module = Digits()
module.load_state_dict(state_dict_of(own, module))
module.eval()
x, y = federation.test.x[:5], federation.test.y[:5]  # the first client's rows come first
with torch.no_grad():
    print(f"client {first}'s model says", module(torch.tensor(x)).argmax(1).tolist(), "of", y.tolist())
with tempfile.TemporaryDirectory() as folder:
    file = save_state_dict(Path(folder, "own.safetensors"), own, module)
    print(file.name, "holds", list(state_dict_of(own, module)))
