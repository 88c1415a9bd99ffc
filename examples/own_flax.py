"""A Flax network of your own, unchanged: one for everybody (FedAvg) against own last layers.

Run it: python examples/own_flax.py    (needs Flax: pip install 'apiece[flax]')
"""

import flax.linen as nn

import apiece


class Digits(nn.Module):
    """A small network; pictures arrive as they are stored: rows of 64 pixels, uint8."""

    @nn.compact
    def __call__(self, x):
        x = x.astype("float32") / 255
        x = nn.relu(nn.Dense(32, name="hidden")(x))
        x = nn.LayerNorm(name="norm")(x)
        return nn.Dense(10, name="out")(x)


# Ten clients that each see few of the ten digits. What is private is chosen by its name in the module.
federation = apiece.data.digits(clients=10, alpha=0.1)

fitted = {}
for method, options in {"fed_avg": {}, "partial": {"private": "norm, out"}}.items():
    how = dict(rounds=20, evaluate_every=20, options={"lr": 0.2, **options})
    fitted[method] = apiece.fit(method, Digits(), federation, **how)
    error = fitted[method].curve[-1]["validation_error"]
    print(f"{method:8} validation accuracy {1 - error:.3f}, {fitted[method].costs['gradients']:.0f} gradients")

# A client's own model is a tree of parameters: Flax's own.
first = federation.ids[0]
own = fitted["partial"].personal(first)
x, y = federation.test.client(0)
scores = Digits().apply({"params": own}, x[:5])
print(f"client {first}'s model says", scores.argmax(1).tolist(), "of", y[:5].tolist())
