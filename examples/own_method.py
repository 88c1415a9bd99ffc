"""A method of your own, from nothing to a checked one: a mixture of the shared model and an own model.

The idea is APFL's (Deng, Kamani, Mahdavi 2020), with a fixed share and one simplification: while a client trains its
own part v, the shared part x stays as it was received. The text of docs/how-to-add-a-method.md goes through this file.

Run it: python examples/own_method.py
"""

import jax
import numpy as np

import apiece
from apiece import tree
from apiece.client import descend
from apiece.methods import fed_avg, local
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree
from apiece.registry import FromZero, StepSize


def mixture(loss: Loss, *, share: Tree = 0.5, steps: int = 20, lr: StepSize = 0.1, batch: FromZero = 32) -> Method:
    """A client uses (1 - share) x + share v: the shared model and its own, mixed (after Deng et al. 2020).

    Client: v <- v - lr share G_i((1 - share) x + share v), `steps` times a round; and FedAvg's work on x.
    Server: as FedAvg. Sent: x down, FedAvg's update up. Kept: v.

    Args:
        share: how much of the model is the client's own; 0 is FedAvg, 1 is Local. steps: local steps a round, on each
        of the two models. lr: step size of both. batch: examples a step, 0 for all.
    """
    base = fed_avg(loss, steps=steps, lr=lr, batch=batch)

    def work(v: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        own_key, shared_key = jax.random.split(key)
        mixed = lambda v, batch, key: loss(tree.mix(x, v, share), batch, key)  # its gradient is share G_i(...)
        v = descend(mixed, v, data, own_key, steps=steps, lr=lr, batch=batch)
        return v, base.local((), x, data, shared_key)[1]

    return base._replace(
        enroll=lambda params, x, data, key: params,
        local=work,
        personal=lambda v, x, data, key: tree.mix(x, v, share),
    )


def golden(rounds: int, share: float, steps: int, lr: float) -> np.ndarray:
    """The same method in plain NumPy, on three clients with the losses w'Hw/2 - b'w: everybody's model at the end."""
    h = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]]])
    b = np.array([[2.0, 1.0], [0.0, 0.5], [-1.0, 3.0]])
    x, v = np.zeros(2), np.zeros((3, 2))
    for _ in range(rounds):
        received, updates = x, []
        for i in range(3):
            y = received
            for _ in range(steps):
                v[i] -= lr * share * (h[i] @ ((1 - share) * received + share * v[i]) - b[i])
                y = y - lr * (h[i] @ y - b[i])
            updates.append(y - received)
        x = received + np.mean(updates, axis=0)
    return (1 - share) * x + share * v


def models(method, **options) -> np.ndarray:
    """Everybody's model after three rounds on those three clients, by apiece, in float64."""
    options = {"steps": 2, "lr": 0.1, "batch": 0, **options}
    with jax.enable_x64(True):
        result = apiece.fit(method, federation=apiece.data.source("quadratics"), rounds=3, options=options)
        return np.array([result.personal(name) for name in "012"])


if __name__ == "__main__":
    checked = apiece.testing.check_method(mixture)
    print(f"{len(checked)} checks of the contract passed; the last: {checked[-1]}")

    gap = np.abs(models(mixture, share=0.5) - golden(3, share=0.5, steps=2, lr=0.1)).max()
    print(f"golden numbers: the largest difference is {gap:.0e}")
    assert gap < 1e-6

    assert np.allclose(models(mixture, share=0.0), models(fed_avg), atol=1e-6)
    assert np.allclose(models(mixture, share=1.0), models(local), atol=1e-6)
    print("identities: share 0 is FedAvg, share 1 is Local")

    for share in (0.0, 0.5, 1.0):
        result = apiece.fit(mixture, rounds=50, options={"share": share})
        loss = result.curve[-1]["validation_loss"]
        print(f"digits, share {share}: validation loss {loss:.3f}, {result.costs['gradients']:,} gradients")
