"""A whole job as a user would run it, in a process of its own, by whichever apiece is on PYTHONPATH.

Only what an earlier version has as well is used, but for `sweep`. The last line on stdout is a JSON document.
"""

import json
import sys
import tempfile
import time
from typing import Any

import numpy as np

METHODS = "local,fed_avg,fed_prox,ftfa,rtfa,ditto,pfedme,scaffold,fed_clup"
LAMS, SEEDS = [0.01, 0.03, 0.1, 0.3, 1.0], 11
GRID = [(lr, lam) for lr in (0.05, 0.1, 0.2, 0.4, 0.8) for lam in LAMS]


def demo() -> dict[str, Any]:
    """Nine methods on the digits, eight trials each, three seeds: `make demo`."""
    from apiece.cli import main

    with tempfile.TemporaryDirectory() as folder:
        how = ["--methods", METHODS, "--rounds", "100", "--seeds", "3", "--tune", "8", "--out", f"{folder}/run"]
        sys.argv = ["apiece", "compare", "--data", "digits", *how, "--json"]
        stdout, sys.stdout = sys.stdout, sys.stderr
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.stdout = stdout
        with open(f"{folder}/run/record.json", encoding="utf-8") as file:
            record = json.load(file)
    return {"options": {name: found["options"] for name, found in record["methods"].items()}}


def first_fit() -> dict[str, Any]:
    """The first `fit` of a process, and a second one with another option."""
    import apiece

    federation = apiece.data.digits()
    found: dict[str, Any] = {}
    for which, lam in (("first", 0.1), ("second", 0.3)):
        began = time.perf_counter()
        result = apiece.fit("ditto", federation=federation, rounds=100, options={"lam": lam})
        found[f"{which}_seconds"] = time.perf_counter() - began
        found[f"{which}_training_seconds"] = result.costs["seconds"]
    return found


def check() -> dict[str, Any]:
    """The whole contract for a method of one's own, Ditto as it stands in the catalog, on every engine."""
    from apiece.methods import ditto
    from apiece.testing import check_method

    return {"lines": len(list(check_method(ditto)))}


def fits() -> dict[str, Any]:
    """A grid of two options, a `fit` for each point."""
    import apiece

    federation = apiece.data.digits()
    options = [{"lr": lr, "lam": lam} for lr, lam in GRID]
    return _losses(apiece.fit("ditto", federation=federation, rounds=100, options=each) for each in options)


def lams_one_by_one(work: str) -> dict[str, Any]:
    """Five options from eleven seeds, a `fit` and an evaluation for each."""
    import apiece

    federation, how = _federation(work)
    errors = []
    for lam in LAMS:
        for seed in range(SEEDS):
            result = apiece.fit("ditto", federation=federation, rounds=100, seed=seed, options={"lam": lam}, **how)
            errors.append(1 - result.evaluate()["test"]["accuracy"]["mean"])
    return {"test_error": float(np.mean(errors))}


def lams_by_sweep(work: str) -> dict[str, Any]:
    """The same by one call."""
    import apiece

    federation, how = _federation(work)
    found = apiece.sweep("ditto", {"lam": LAMS}, SEEDS, federation=federation, rounds=100, **how)
    return {"test_error": float(np.mean([row["test_error"] for row in found.rows]))}


def torch_loop() -> dict[str, Any]:
    """The demo's gradient steps by a plain PyTorch loop, of one trial of each method over a few rounds."""
    import torch

    from apiece.data import digits

    torch.set_num_threads(1)
    train = digits().hold_out_clients(0.1).train
    x, y = torch.from_numpy(train.x / np.float32(255)), torch.from_numpy(train.y.astype(np.int64))
    rounds, draw, began = 2, np.random.default_rng(0), time.process_time()
    for steps in GRADIENTS.values():
        center = [torch.zeros(10, x.shape[1]), torch.zeros(10)]
        for _ in range(rounds):
            for at, size in zip(train.offsets[:-1], train.sizes, strict=True):
                mine = [leaf.clone().requires_grad_() for leaf in center]
                for _ in range(steps):
                    rows = at + draw.choice(size, min(32, size), replace=False)
                    loss = torch.nn.functional.cross_entropy(x[rows] @ mine[0].T + mine[1], y[rows])
                    with torch.no_grad():
                        for leaf, g, to in zip(mine, torch.autograd.grad(loss, mine), center, strict=True):
                            leaf -= 0.1 * (g + 0.1 * (leaf - to))
    trials = 11  # eight of tuning and three seeds
    return {"processor_seconds": (time.process_time() - began) / rounds * 100 * trials}


# Gradients that a client takes in a visit, by the options that the demo starts from.
GRADIENTS = dict.fromkeys(METHODS.split(","), 20) | {"ditto": 40, "pfedme": 100}


def _losses(results: Any) -> dict[str, Any]:
    return {"validation_loss": float(np.mean([result.curve[-1]["validation_loss"] for result in results]))}


def _federation(work: str) -> tuple[Any, dict[str, Any]]:
    """The digits; or W1 of the other benchmarks: 100 clients, 784 features, 20 clients a round."""
    from apiece import data

    if work == "digits":
        return data.digits(), {}
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20_000, 784)) * (rng.random((20_000, 784)) < 0.2)
    labels = (pixels @ rng.normal(size=(784, 10))).argmax(1)
    client = np.repeat(np.arange(100), 200)  # 120 of them to train on
    classes = [str(digit) for digit in range(10)]
    return data.from_rows(pixels.astype(np.uint8), labels, client, classes=classes), {"cohort": 20}


if __name__ == "__main__":
    start, spent = time.perf_counter(), time.process_time()
    answer = globals()[sys.argv[1]](*sys.argv[2:])
    clocks = {"seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - spent}
    print(json.dumps(clocks | answer))
