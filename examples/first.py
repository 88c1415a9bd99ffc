"""A first look from Python: train one method, take out one client's model, welcome a client nobody has seen.

Run it: python examples/first.py
"""

import numpy as np

import apiece

# Handwritten digits, dealt to 20 clients that prefer different digits; two of them are kept out of training.
federation = apiece.data.digits(clients=20).hold_out_clients(0.1)
softmax = apiece.models.softmax((64,), classes=10)
result = apiece.fit("ditto", softmax, federation, rounds=50, options={"lam": 0.1})

test = result.evaluate()["test"]["accuracy"]
print(f"test accuracy over all clients {test['mean_weighted']:.3f}, worst tenth of the clients {test['worst10']:.3f}")

name = federation.ids[0]
model = result.personal(name)  # named parameters: {"w": [10, 64], "b": [10]}
x, y = federation.test.client(0)
right = np.mean(result.predict(name, x).argmax(1) == y)
print(f"client {name}: own model with w of shape {model['w'].shape}, {right:.2f} on its test")

# A client that never took part sends nothing: it enrolls with its own examples and gets a model.
x, y = federation.new.train.client(0)
theirs = result.onboard(x, y)
x, y = federation.new.test.client(0)
print(f"new client {federation.new.ids[0]}: {np.mean(softmax.apply(theirs, x).argmax(1) == y):.2f} on its test")

spent = result.costs
print(f"{spent['visits']} visits, {spent['bytes_up'] / 1e6:.2f} MB up, {spent['gradients']:,} gradient evaluations")
