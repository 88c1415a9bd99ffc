"""The published experiments, a folder per paper: each a module with data, methods, settings and claims as checks.

A module has a docstring, whose first line is its title, and `run(quick, watch) -> Reproduction`. `quick` takes a
minute or two; the full settings are the published ones. Whether a claim holds is a result, not an error. Those in
`REAL` read real federations from the folder that APIECE_DATA names, and compute in single precision, as users do.
"""

import importlib
import json
import time
from pathlib import Path
from typing import Any

import jax

from apiece.errors import UserError, suggest
from apiece.experiment.train import Watch
from apiece.files import write_json
from apiece.report.figure_page import Grid, write_figure
from apiece.report.numbers import number
from apiece.reproduce.kept import keeping
from apiece.reproduce.verdict import FORMAT, VERDICTS, Claim, Reproduction, claim_of

SYNTHETIC = {  # name -> its module, in the folder of its paper
    "asymptotics": "tuned_averaging.asymptotics",
    "fedclup-linear": "fedclup.linear",
    "fedclup-logistic": "fedclup.logistic",
    "dynamic-lambda": "fedclup.dynamic_lambda",
    "self-fl-synthetic": "self_fl.synthetic",
    "all-for-all-mean": "all_for_all.mean",
    "all-for-all-groups": "all_for_all.groups",
    "ffgg-quadratic": "ffgg.quadratic",
    "ffgg-async": "ffgg.asynchronous",
    "ffgg-byzantine": "ffgg.byzantine",
}
REAL = {
    "last-layer": "tuned_averaging.last_layer",
    "fedclup-images": "fedclup.images",
    "self-fl-images": "self_fl.images",
    "wake-word": "self_fl.wake_word",
    "partial": "ffgg.partial",
    "hospitals": "cross_silo.hospitals",
}
MODULES = SYNTHETIC | REAL
NAMES = tuple(MODULES)


def title_of(name: str) -> str:
    """The first line of a reproduction's text."""
    return (module_of(name).__doc__ or "").strip().splitlines()[0].rstrip(".")


def reproduce(
    name: str, *, quick: bool = False, watch: Watch | None = None, keep: Path | None = None
) -> dict[str, Any]:
    """Run one; its result is plain, but for the figure, which `write` takes out.

    `keep`: a folder where the parts of a long one are kept as they end, and from which it goes on (`kept`).
    """
    module = module_of(name)
    start = time.perf_counter()
    with jax.enable_x64(name not in REAL), keeping(keep) as parts:
        found: Reproduction = module.run(quick, watch or (lambda what, done, total: None))
    return {
        "format": FORMAT,
        "name": name,
        "title": title_of(name),
        "quick": quick,
        "claims": [claim._asdict() for claim in found.claims],
        "settings": found.settings,
        "notes": found.notes,
        "seconds": round(time.perf_counter() - start + parts.seconds, 1),
        "figure": found.figure,
    }


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Leave verdict.json, figure.html (with the verdict below it) and figure.png in a folder; the files."""
    told = {key: value for key, value in result.items() if key != "figure"}
    write_json(folder / "verdict.json", told)
    tables = [Grid("Verdict", HEADS, [cells(claim_of(claim)) for claim in result["claims"]])]
    for title, rows in tables_in(result["settings"]).items():
        heads = list(next(iter(rows.values())))
        lines = [[name, *(cell(row[head]) for head in heads)] for name, row in rows.items()]
        tables.append(Grid(title[0].upper() + title[1:], ("", *heads), lines))
    return [folder / "verdict.json", *write_figure(result["figure"], folder, tables=tables)]


def tables_in(settings: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Those settings that are tables: rows by name, each with the same columns by name.

    >>> list(tables_in({"rounds": 10, "error": {"local": {"test": 0.2}, "ditto": {"test": 0.1}}}))
    ['error']
    """
    rows_of = lambda value: list(value.values()) if isinstance(value, dict) else []
    same = lambda rows: len(rows) > 1 and all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)
    return {key: value for key, value in settings.items() if same(rows_of(value))}


def cell(value: Any, digits: int = 3) -> str:
    """A number, or a word, of a table.

    >>> cell(0.12345), cell("cnn 8-16"), cell(None)
    ('0.123', 'cnn 8-16', '–')
    """
    return value if isinstance(value, str) else number(value, digits)


HEADS = ("claim", "published", "ours", "interval", "could see", "verdict")


def cells(claim: Claim) -> list[str]:
    """A row of the verdict table as text.

    >>> cells(Claim("rounds at lam = 1", 49.0, 50.0, None, "holds"))
    ['rounds at lam = 1', '49', '50', '', '', 'holds']
    >>> cells(Claim("gain", "above 0", 0.5, (-0.25, 1.25), "undecided", "here", (0.0, None), 1.07))[3:]
    ['−0.25 to 1.25', '1.1', 'undecided']
    """
    write = lambda value: cell(value, 4)
    between = "" if claim.interval is None else f"{write(claim.interval[0])} to {write(claim.interval[1])}"
    whose = "" if claim.source == "paper" else f" ({claim.source})"
    power = "" if claim.seen is None else cell(claim.seen, 2)
    verdict = f"{claim.verdict}: {claim.because}" if claim.because else claim.verdict
    return [claim.name, write(claim.published) + whose, write(claim.ours), between, power, verdict]


def read_verdict(path: Path) -> dict[str, Any]:
    """What a run left in verdict.json, or a `UserError` if a version of another shape wrote it."""
    told = json.loads(path.read_text(encoding="utf-8"))
    if told.get("format") != FORMAT:
        had = told.get("format", 1)
        raise UserError(f"{path}: its format is {had}, and this version reads {FORMAT}. Run the reproduction again.")
    return told


def counted(claims: list[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict.

    >>> counted([{"verdict": "holds"}, {"verdict": "undecided"}, {"verdict": "holds"}])
    {'holds': 2, 'does not hold': 0, 'undecided': 1}
    """
    return {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in VERDICTS}


def module_of(name: str) -> Any:
    """The module behind a name."""
    if name not in NAMES:
        raise UserError(f"there is no reproduction '{name}': {suggest(name, NAMES)}")
    return importlib.import_module(f"apiece.reproduce.{MODULES[name]}")
