"""Data of your own: a CSV file with a client column, arrays you already have, and a federation kept on disk.

Run it: python examples/own_data.py
"""

import tempfile
from pathlib import Path

import numpy as np

import apiece


def write_table(path: Path, clinics: int = 12, patients: int = 40) -> None:
    """A made-up table: in every clinic the risk depends on age and pressure, but not everywhere in the same way."""
    rng = np.random.default_rng(0)
    lines = ["clinic,age,pressure,ill"]
    for clinic in range(clinics):
        slope = np.array([1.0, 1.0]) + rng.normal(0, 0.8, 2)
        for age, pressure in rng.normal(0, 1, (patients, 2)):
            ill = rng.random() < 1 / (1 + np.exp(-slope @ [age, pressure]))
            lines.append(f"clinic{clinic:02d},{age:.3f},{pressure:.3f},{'yes' if ill else 'no'}")
    path.write_text("\n".join(lines) + "\n")


with tempfile.TemporaryDirectory() as folder:
    table = Path(folder, "clinics.csv")
    write_table(table)

    # Look first: `inspect` never raises, it lists.
    seen = apiece.data.inspect(table, client="clinic", label="ill")
    print(f"{seen.found['clients']} clients, {seen.found['rows']} rows, problems: {len(seen.problems)}")

    # From the file, straight into a comparison.
    found = apiece.compare(table, ["rtfa"], rounds=30, seeds=1, out=Path(folder, "run"),
                           data_options={"client": "clinic", "label": "ill"})  # fmt: skip
    for name, method in found.record.methods.items():
        accuracy = method.statistic("test", "accuracy", "mean_weighted")
        print(f"{name:8} test accuracy {accuracy.mean:.3f}")

    # The same rows as a federation that opens memory-mapped, with two clinics kept as new clients.
    federation = apiece.data.load(table, client="clinic", label="ill").hold_out_clients(0.2)
    saved = federation.save(Path(folder, "clinics"))
    print(sorted(path.name for path in saved.iterdir())[:3], apiece.Federation.load(saved).clients, "clients train")

# Arrays without clients: a partition deals them out.
rng = np.random.default_rng(0)
x, y = rng.normal(size=(600, 5)).astype(np.float32), rng.integers(0, 3, 600)
client = apiece.data.assign(y, "dirichlet_per_client", clients=10, alpha=0.3)
federation = apiece.data.from_rows(x, y, client, classes=("a", "b", "c"))
print(federation.summary()["classes_per_client"], "classes per client")
