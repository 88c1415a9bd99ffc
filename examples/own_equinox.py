"""An Equinox network of your own: one for everybody (FedAvg) against one apiece (Ditto).

Run it: python examples/own_equinox.py    (needs Equinox: pip install 'apiece[equinox]')
"""

import equinox as eqx
import jax

import apiece
from apiece.models import from_equinox


class Digits(eqx.Module):
    """A small network of one example at a time; a picture arrives as it is stored: 64 pixels, uint8."""

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        first, last = jax.random.split(key)
        self.hidden, self.out = eqx.nn.Linear(64, 32, key=first), eqx.nn.Linear(32, 10, key=last)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.hidden(x / 255)))


# Ten clients that each see few of the ten digits. A function of a key: every seed has its own start.
federation = apiece.data.digits(clients=10, alpha=0.1)
model = from_equinox(Digits, federation.train.x[:1])

fitted = {}
for method in ("fed_avg", "ditto"):
    fitted[method] = apiece.fit(method, model, federation, rounds=20, evaluate_every=20, options={"lr": 0.2})
    error = fitted[method].curve[-1]["validation_error"]
    print(f"{method:8} validation accuracy {1 - error:.3f}, {fitted[method].costs['gradients']:.0f} gradients")

# A client's own model is a tree of parameters under the module's names.
first = federation.ids[0]
x, y = federation.test.client(0)
says = fitted["ditto"].predict(first, x[:5]).argmax(1)
print(f"client {first}'s model says", says.tolist(), "of", y[:5].tolist())
print("its parameters:", apiece.split.paths(fitted["ditto"].personal(first)))
