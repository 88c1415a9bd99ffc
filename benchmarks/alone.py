"""Training alone, against scikit-learn: `local` and `local_ridge` beside cross-validated ridge models of each client.

    APIECE_DATA=/path/to/data python -m benchmarks.alone heart_by_hospital school_by_school vehicle_by_sensor

Everybody has the same training rows. Scikit-learn chooses a ridge for each client by cross-validation on them; ours is
chosen on validation rows, as in every comparison.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.preprocessing import StandardScaler

from apiece import compare
from apiece.data import source
from apiece.evaluate import half_over_clients, per_client

FEDERATIONS = ("heart_by_hospital", "school_by_school", "vehicle_by_sensor")


def alone(name, rounds=100, tune=8, **options):
    """{who: (test error of all rows, of each client), "sizes": test rows of each client} on a federation."""
    federation = source(name, **options)
    with tempfile.TemporaryDirectory() as folder:
        found = compare(federation, ["local", "local_ridge"], rounds=rounds, seeds=1, tune=tune, baselines=False,
                        newcomer_examples=[], out=Path(folder) / "run")  # fmt: skip
    place, rows = found.place, {}
    for method, trials in found.trials.items():
        errors, offsets = trials[0].scores("test", "error")
        rows[method] = per_client(errors, offsets)[: place.population]
    held, scaling = place.federation, place.target_scaling
    unit = 1.0 if scaling is None else scaling.target_spread**2  # of squared errors: targets may have been scaled
    rows["scikit-learn"] = unit * np.array([learned(held, i) for i in range(held.clients)])
    sizes = np.asarray(held.test.sizes)
    return rows, sizes, held.task == "regression"


def learned(federation, client):
    """The mean test error of a client whose model scikit-learn made of its training rows; NaN without test rows."""
    (x, y), (seen, truth) = (split.client(client) for split in (federation.train, federation.test))
    if not len(truth):
        return np.nan
    flat = lambda rows: np.asarray(rows, float).reshape(len(rows), -1) / (255 if rows.dtype == np.uint8 else 1)
    scale = StandardScaler().fit(flat(x))
    x, seen = scale.transform(flat(x)), scale.transform(flat(seen))
    if federation.task == "regression":
        return np.mean((RidgeCV(np.logspace(-3, 4, 15)).fit(x, y).predict(seen) - truth) ** 2)
    least = np.unique(y, return_counts=True)[1]
    if len(least) == 1:
        return np.mean(truth != y[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of limits reached, and of what will change
        model = LogisticRegressionCV(Cs=10, cv=min(5, least.min()), max_iter=300) if least.min() > 1 else (
            LogisticRegression(max_iter=300)
        )  # fmt: skip
        return np.mean(model.fit(x, y).predict(seen) != truth)


def table(names):
    """The lines of a table: each method's test error, and how far it is behind scikit-learn's."""
    print("| federation | local | local_ridge | scikit-learn | local behind | local_ridge behind |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        rows, sizes, numbers = alone(name)
        factor, form = (1, "{:.4g}") if numbers else (100, "{:.1f} %")
        whole = {who: factor * np.average(np.nan_to_num(errors), weights=sizes) for who, errors in rows.items()}
        cells = [form.format(error) for error in whole.values()]
        for who in ("local", "local_ridge"):
            half = factor * half_over_clients(rows["scikit-learn"], rows[who], sizes)
            gap, half = whole[who] - whole["scikit-learn"], half
            if numbers:
                gap, half = (100 * each / whole["scikit-learn"] for each in (gap, half))
            cells.append(f"{gap:+.1f} ± {half:.1f}{' %' if numbers else ' points'}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    table(sys.argv[1:] or FEDERATIONS)
