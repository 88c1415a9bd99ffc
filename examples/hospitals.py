"""A table of hospitals: gaps, words, a yes/no outcome. Is it worth learning together, and who would be hurt by it?

Run it: python examples/hospitals.py [folder]    (the folder keeps the table and the report; default: a temporary one)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet
from rich import print

import apiece


def write_table(path: Path, hospitals: int = 14) -> None:
    """Made up: age, pressure and smoking matter everywhere, but not equally; the last hospital sees another disease."""
    rng = np.random.default_rng(1)
    lines = ["hospital,age,sex,pressure,cholesterol,smoker,ill"]
    for k in range(hospitals):
        older, lab = rng.normal(60, 5), rng.random() < 0.7  # some hospitals hardly ever measure cholesterol
        effect = np.array([0.08, 0.03, 1.2]) * (-1 if k == hospitals - 1 else rng.normal(1, 0.25, 3))
        for _ in range(rng.integers(60, 160)):
            age, pressure, chol = rng.normal(older, 12), rng.normal(135, 18), rng.normal(5.4, 1.0)
            smoker = rng.choice(["never", "former", "current"], p=[0.5, 0.3, 0.2])
            risk = effect @ [age - 60, pressure - 135, smoker == "current"] + 0.3 * (chol - 5.4)
            ill = "yes" if rng.random() < 1 / (1 + np.exp(-risk)) else "no"
            cells = [f"{age:.0f}", rng.choice(["f", "m"]), "" if rng.random() < 0.1 else f"{pressure:.0f}",
                     f"{chol:.1f}" if rng.random() < (0.95 if lab else 0.1) else "", smoker]  # fmt: skip
            lines.append(",".join([f"hospital{k:02d}", *cells, ill]))
    path.write_text("\n".join(lines) + "\n")


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
    table = folder / "hospitals.csv"
    write_table(table)

    # Look first: `inspect` never raises. It says what it found, and what it will do about gaps and words.
    how = {"client": "hospital", "label": "ill", "standardize": True}
    seen = apiece.data.inspect(table, **how)
    for what in ("clients", "rows", "classes", "filled", "one_hot"):
        print(f"{what}: {seen.found[what]}")
    print("problems:", seen.problems, "warnings:", seen.warnings)

    # Alone, one model for all, fine-tuned (always there), and Ditto, each tuned on validation with as many trials.
    found = apiece.compare(table, ["ditto"], rounds=20, seeds=2, tune=3, out=folder / "run", data_options=how)
    print(apiece.report.terminal.comparison(found.record))

    # Client by client: the mean over seeds of the points of accuracy that Ditto gains over training alone.
    rows = pyarrow.parquet.read_table(folder / "run" / "clients.parquet").to_pylist()
    gains: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == "ditto" and not row["new"]:
            gains.setdefault(row["client"], []).append(row["gain_over_local"])
    ordered = sorted(gains, key=lambda client: -np.mean(gains[client]))
    for client in (*ordered[:3], *ordered[-3:]):
        print(f"{client} gains {np.mean(gains[client]):+.1f} points over training alone")
    harm = found.record.methods["ditto"].harm
    print(f"hurt: {100 * harm.hurt_expected:.0f} % of the hospitals expected, {100 * harm.hurt_proved:.0f} % proved")

    page = apiece.report.write_report(folder / "run")
    print(f"the whole story: {page.name}, {page.stat().st_size // 1000} kB, opens offline")
