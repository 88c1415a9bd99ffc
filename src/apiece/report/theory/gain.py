"""`apiece theory gain`: what each client of a Gaussian hierarchy should borrow, and what it gains by it (Self-FL)."""

import numpy as np

from apiece.errors import UserError
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.report.theory import Prediction, require
from apiece.theory import self_fl

HEADS = ("examples", "alone", "shared", "bayes", "gain", "borrowed", "steps", "printed rule")
ROWS = 20  # of different clients in the table


def gain(spread: float, noise: float, examples: np.ndarray, lr: float = 1e-3, most: int = 1000) -> Prediction:
    """Expected squared errors of a client's estimate: alone, the shared centre, the Bayes rule and the printed rule.

    `spread` and `noise` are standard deviations: of the clients around their centre, and of one example; client m, with
    n_m examples, estimates its own mean with the variance noise^2 / n_m. `lr`: the step size along the gradient of the
    whole negative log-likelihood, for the number of local steps.

    >>> found = gain(1.0, 1.0, np.array([1.0] * 100))
    >>> [round(found.numbers["clients"][0]["error"][rule], 4) for rule in ("local", "paper", "bayes")]
    [1.0, 0.9806, 0.505]
    """
    examples = np.atleast_1d(np.asarray(examples, float))
    if len(examples) < 2 or not (examples >= 1).all() or (examples % 1).any():
        raise UserError("--examples: how many examples each client has, whole numbers from 1, of two clients at least")
    require("above 0", noise=noise, lr=lr)
    require("at least 0", spread=spread)
    variance = noise**2 / examples
    bayes = self_fl.hierarchy(variance, spread**2)
    errors = self_fl.errors(variance, spread**2)
    steps = self_fl.whole_steps(variance, bayes.pull, lr / variance, most)
    gains = self_fl.gain(variance, spread**2)
    clients = [
        {
            "examples": float(examples[m]),
            "error": {name: float(values[m]) for name, values in errors._asdict().items()},
            "gain": float(gains[m]),
            "borrowed": float(bayes.borrowed[m]),
            "steps": int(steps[m]),
        }
        for m in range(len(examples))
    ]
    means = {name: float(np.mean(values)) for name, values in errors._asdict().items()}
    kinds, first, counts = np.unique(examples, return_index=True, return_counts=True)
    shown = np.unique(np.linspace(0, len(kinds) - 1, min(ROWS, len(kinds))).astype(int))
    rows = [_cells(clients[first[k]], int(counts[k])) for k in shown]
    notes = (
        f"Mean over clients: alone {number(means['local'])}, shared {number(means['centre'])}, bayes "
        f"{number(means['bayes'])}, the printed rule {number(means['paper'])} (squared errors).",
        "gain: how many times smaller the error is than alone. borrowed: the weight of the others in the estimate.",
        f"steps: local steps of size {lr:g} from the others' mean to the estimate, at most {most}.",
        "The printed rule takes one's own mean for the centre itself, and so borrows too much when clients differ.",
    )
    numbers = {"clients": clients, "mean_error": means, "settings": {"spread": spread, "noise": noise, "lr": lr}}
    return Prediction(numbers, Grid("Gain", HEADS, rows), _figure(spread, noise, examples), notes)


def _cells(client: dict, count: int) -> list[str]:
    error = client["error"]
    return [
        number(client["examples"], 6) + (f" (× {count})" if count > 1 else ""),
        *(number(error[name]) for name in ("local", "centre", "bayes")),
        number(client["gain"]), f"{100 * client['borrowed']:.0f} %", str(client["steps"]), number(error["paper"]),
    ]  # fmt: skip


def _figure(spread: float, noise: float, examples: np.ndarray) -> Figure:
    variance = noise**2 / examples
    middle = float(np.sqrt(np.median(variance)))
    spreads = np.geomspace(middle / 30, middle * 30, 81)
    over_spread = self_fl.errors(variance, spreads**2)
    sizes = np.geomspace(1, max(1000.0, 2 * float(examples.max())), 61)
    one_of_them = np.tile(variance, (len(sizes), 1))
    one_of_them[:, 0] = noise**2 / sizes
    over_size = self_fl.errors(one_of_them, spread**2)
    names = {"local": "alone", "centre": "shared", "bayes": "bayes", "paper": "printed rule"}
    lines = lambda x, pick: [Line(name, x, pick(key)) for key, name in names.items()]
    label = "expected squared error"
    return Figure(
        "What borrowing gains (a Gaussian hierarchy of clients)",
        f"{len(examples)} clients with {number(examples.min(), 6)} to {number(examples.max(), 6)} examples, noise "
        f"{number(noise)}; on the right spread {number(spread)}. bayes is the best possible, with known variances.",
        [
            Panel("As clients differ more", "spread of the clients (standard deviation)", f"{label}, mean over clients",
                  lines(spreads, lambda key: getattr(over_spread, key).mean(axis=-1)), log_x=True, log_y=True),
            Panel("As a client has more data", "examples of one client", label,
                  lines(sizes, lambda key: getattr(over_size, key)[:, 0]), log_x=True, log_y=True),
        ],
    )  # fmt: skip
