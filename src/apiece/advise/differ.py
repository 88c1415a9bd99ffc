"""How different clients are, in numbers: moments of their gradients at the shared model, rows, labels, groups.

At the shared model a client's mean gradient g_i is noise of variance v_i/n_i around its true one. What is left,

    excess_i = |g_i|^2 - v_i/n_i,    tau^2 = M/(M-1) mean_i excess_i / tr(H^2),    phi = mean v_i / mean tr(H_i),

gives the spread tau of clients' own models around the shared one, against the noise phi / (n_i H) of a model that is
fitted alone; lambda_i = phi / (n_i tau^2) is then the pull that theory wants. These explain, and never decide.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from apiece.advise.pilot import Pilot

MEMORISED = -2.0  # z below this: a pilot that has learned its examples by heart has no gradients left


class Difference(NamedTuple):
    """z: evidence that clients differ at all. radius, noise: spread of a parameter between clients, and within one."""

    z: float
    radius: float
    noise: float
    between: float
    pull: float  # lambda_i n_i = phi / tau^2; infinite: share
    rows_between: float
    labels_between: float
    memorised: bool


def measure_difference(pilot: Pilot, classes: int) -> Difference:
    """The moments of a pilot, put together."""
    square, noise, trace, size = (np.asarray(each, np.float64) for each in pilot.moments)
    there = size >= 2  # one example has no variance
    clients = int(there.sum())
    rows, labels = (between_share(pilot.rows, name) for name in ("x", "y"))
    if clients < 2:
        nan = float("nan")
        return Difference(nan, nan, nan, nan, nan, rows, labels, False)
    excess = square[there] - noise[there] / size[there]
    spread = excess.std(ddof=1) / np.sqrt(clients)
    z = float(excess.mean() / spread) if spread > 0 else 0.0
    tau2 = max(clients / (clients - 1) * excess.mean() / max(pilot.hessian_square, 1e-30), 0.0)
    phi = noise[there].mean() / max(trace[there].mean(), 1e-30)
    if not classes:  # its noise contains the difference of clients itself
        phi = max(phi - tau2 * trace[there].mean(), 0.3 * phi)
    parameters = sum(np.size(leaf) for leaf in pilot.shared.values())
    alone = phi * parameters / (pilot.usual * max(trace[there].mean(), 1e-30))  # variance of a parameter fitted alone
    return Difference(z, float(np.sqrt(tau2)), float(np.sqrt(alone)), float(tau2 / max(tau2 + alone, 1e-30)),
                      float(phi / tau2) if tau2 > 0 else float("inf"), rows, labels, z < MEMORISED)  # fmt: skip


def between_share(sums: Mapping[str, Any], name: str) -> float:
    """Of the variance of rows (or labels), the share that lies between clients, beyond what chance puts there.

    >>> sums = dict(clients=2, rows=4, x_sum=np.array([4.0]), x_square=8.0, x_means=8.0)  # rows 0, 0 and 2, 2
    >>> between_share(sums, "x")
    1.0
    """
    clients, rows = float(sums["clients"]), float(sums["rows"])
    total = float((np.asarray(sums[f"{name}_sum"], np.float64) ** 2).sum()) / max(rows, 1)
    within = float(sums[f"{name}_square"]) - float(sums[f"{name}_means"])
    if rows <= clients or clients < 2:
        return 0.0
    noise = within / (rows - clients)
    between = max(float(sums[f"{name}_means"]) - total - (clients - 1) * noise, 0.0) / (rows * (1 - 1 / clients))
    return between / max(between + noise, 1e-30)


def own_share(pilot: Pilot, pull: float) -> float:
    """How much of a client's model its own data decide, mean of some clients: tr(H (H + lam)^-1) / rank."""
    who, spectra = pilot.spectra
    shares = []
    for i, eigenvalues in zip(who, np.asarray(spectra, np.float64), strict=True):
        real = eigenvalues[eigenvalues > 1e-6 * max(eigenvalues.max(), 1e-12)]
        lam = pull / max(int(pilot.sizes[i]), 1)
        shares.append(float((real / (real + lam)).mean()) if len(real) else 0.0)
    return float(np.mean(shares)) if shares else 0.0
