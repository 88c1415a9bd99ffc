"""What the FedCLUP paper's tables say of FedCLUP and its rivals: communication, computation, statistical rates.

Orders of growth, not bounds: constants are left out as they are in print, so that only their dependence on lam, kappa,
eps and the federation means something. L-smooth and mu-strongly convex losses, kappa = L/mu. Numbers or arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain
from apiece.theory.domain import above_zero, curvatures, from_zero


class Cost(NamedTuple):
    """Local gradients in a communication round, and rounds to a squared distance of eps (of the start's)."""

    computation: Any
    communication: Any


def solver_costs(lam: Any, smoothness: Any, convexity: Any, eps: Any = 1e-6, clients: Any = 10) -> dict[str, Cost]:
    """Table 1 of the FedCLUP paper for those who solve min mean_i [L_i(w_i) + lam/2 |w_i - x|^2], with logarithms.

    fed_clup: (lam + L)/(lam + mu) and kappa (lam + mu)/(lam + L) ln 1/eps. l2gd, at its best p = lam/(lam + L):
    1 + L/lam and 2 lam kappa/(lam + L) ln 1/eps, to a neighbourhood only. al2sgd, with m clients:
    (m + sqrt(m (L + lam)/mu)) / c and c ln 1/eps, c = sqrt(min(L, lam)/mu). chen_two_stage: lam/eps and
    max(lam, 1)/eps. So FedCLUP talks less than L2GD where lam is above mu, AL2SGD+ less than FedCLUP at a large kappa.

    The rows of FedProx, Delta/(rho eps), and pFedMe, 1/(m R eps), rest on constants of their own papers: left out.

    >>> found = solver_costs(1.0, 1.0, 0.1)
    >>> {name: round(float(cost.communication)) for name, cost in found.items()}
    {'fed_clup': 76, 'l2gd': 138, 'al2sgd': 44, 'chen_two_stage': 1000000}
    """
    lam, eps, clients = above_zero(lam=lam, eps=eps, clients=clients)
    L, mu = curvatures(smoothness, convexity)
    if not (eps < 1).all():
        raise UserError("eps is a share of the first squared distance, and below 1")
    kappa, log = L / mu, np.log(1 / eps)
    root = np.sqrt(np.minimum(L, lam) / mu)
    found = {
        "fed_clup": ((lam + L) / (lam + mu), kappa * (lam + mu) / (lam + L) * log),
        "l2gd": (1 + L / lam, 2 * lam * kappa / (lam + L) * log),
        "al2sgd": ((clients + np.sqrt(clients * (L + lam) / mu)) / root, root * log),
        "chen_two_stage": (lam / eps, np.maximum(lam, 1.0) / eps),
    }
    return {name: Cost(plain(work), plain(rounds)) for name, (work, rounds) in found.items()}


class Rates(NamedTuple):
    """Squared errors by their order: FedCLUP's, which is that of the lower bound, and that of Chen and others."""

    fed_clup: Any
    chen: Any


def statistical_rates(radius: Any, examples: Any, clients: Any, diameter: Any = 1.0, loss: Any = 1.0) -> Rates:
    """Table 3 of the FedCLUP paper: n examples at each of m clients whose optima are R from the centre.

    FedCLUP and the lower bound: 1/n if R > 1/sqrt(n), R^2 + 1/(mn) below; the print has the smaller of the two, which
    is below its own lower bound. Chen and others, for losses up to |l| on a set of that diameter: (D^2 + |l|)/n, then
    |l| R/sqrt(n), and |l|/sqrt(mn) from R <= 1/(m sqrt(n)) on, as printed (where the last two meet, they differ).

    >>> [round(float(rate), 6) for rate in statistical_rates(0.05, 100, 10)]
    [0.0035, 0.005]
    >>> statistical_rates([1.0, 0.0], 100, 10).fed_clup.tolist()
    [0.01, 0.001]
    """
    (radius,), (n, m, D, most) = from_zero(radius=radius), above_zero(
        examples=examples, clients=clients, diameter=diameter, loss=loss
    )  # fmt: skip
    apart = radius > 1 / np.sqrt(n)
    shared = np.where(apart, 1 / n, np.minimum(radius**2 + 1 / (m * n), 1 / n))
    close = np.where(radius <= 1 / (m * np.sqrt(n)), most / np.sqrt(m * n), most * radius / np.sqrt(n))
    return Rates(plain(shared), plain(np.where(apart, (D**2 + most) / n, close)))
