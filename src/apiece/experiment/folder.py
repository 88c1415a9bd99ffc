"""The run folder: what its files are called, and how a finished one is read."""

import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import pydantic

from apiece.data.federation import HITS
from apiece.errors import UserError
from apiece.experiment.metric import Criterion
from apiece.experiment.ranking import count_beside_local, mean_costs, rank
from apiece.experiment.record import FORMAT, Record
from apiece.experiment.tables import means_of_clients, read_table
from apiece.experiment.tune import best
from apiece.files import read_json, write_json

LONGEST = 100  # letters of a name in the name of a file, which may have 255
PLAIN_NAME = re.compile(rf"[a-z0-9_][a-z0-9_.-]{{0,{LONGEST - 1}}}")


class RunFolder(NamedTuple):
    """Where everything of a run lies.

    >>> RunFolder(Path("runs/demo")).models("ditto", 0).as_posix()
    'runs/demo/models/ditto-0.safetensors'
    """

    path: Path

    @property
    def spec(self) -> Path:
        """The resolved spec: enough to run it again."""
        return self.path / "spec.toml"

    @property
    def asked(self) -> Path:
        """Of a tuning, which is no run: the spec that is tuned."""
        return self.path / "asked.toml"

    @property
    def record(self) -> Path:
        """What was found, all methods and seeds."""
        return self.path / "record.json"

    @property
    def rounds(self) -> Path:
        """A row per method, seed and evaluation."""
        return self.path / "rounds.parquet"

    @property
    def clients(self) -> Path:
        """A row per method, seed and client."""
        return self.path / "clients.parquet"

    @property
    def profile(self) -> Path:
        """A row per client: its data, and who is like it. Runs of older versions have none."""
        return self.path / "profile.parquet"

    @property
    def verdicts(self) -> Path:
        """A row per method and client: what is believed of it. Runs of older versions have none."""
        return self.path / "verdicts.parquet"

    @property
    def advice(self) -> Path:
        """What was advised before the run, if it was asked for."""
        return self.path / "advice.json"

    @property
    def page(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def live(self) -> Path:
        """How far it is, while it goes; gone when it is finished."""
        return self.path / "live.json"

    @property
    def federation(self) -> Path:
        """The federation that was given in memory, saved."""
        return self.path / "federation"

    @property
    def fingerprint(self) -> Path:
        """What tells whether the data are still the same."""
        return self.path / "checkpoints" / "federation.json"

    @property
    def steps(self) -> Path:
        """How long steps may be, once that was found."""
        return self.path / "checkpoints" / "steps.json"

    @property
    def results(self) -> tuple[Path, Path, Path]:
        """The files of a finished run, in the order of writing."""
        return self.rounds, self.clients, self.record

    @property
    def is_finished(self) -> bool:
        """Whether all of these are there."""
        return all(path.exists() for path in self.results)

    def models(self, method: str, seed: int) -> Path:
        """Every client's model under a method, and the server's state."""
        return self.path / "models" / f"{name_file(method)}-{seed}.safetensors"

    @property
    def product(self) -> Path:
        """All that the models need to predict."""
        return self.path / "models" / "product.json"

    @property
    def newcomers(self) -> Path:
        """Models of clients that came after the run."""
        return self.path / "models" / "newcomers"

    def newcomer(self, name: str, method: str, seed: int) -> Path:
        """The model of a client that came after the run."""
        return self.newcomers / name_file(name) / f"{name_file(method)}-{seed}.safetensors"

    def tuning(self, method: str) -> Path:
        """The trials of a method's tuning so far."""
        return self.path / "checkpoints" / f"{name_file(method)}-tuning.json"

    def checkpoint(self, method: str, seed: int) -> Path:
        """A run on its way."""
        return self.path / "checkpoints" / f"{name_file(method)}-{seed}.safetensors"

    def outcome(self, method: str, seed: int) -> Path:
        """What a finished run left."""
        return self.path / "checkpoints" / f"{name_file(method)}-{seed}-done.safetensors"

    def end(self, method: str, seed: int) -> Path:
        """A run after its last round, from which it can go on."""
        return self.path / "checkpoints" / f"{name_file(method)}-{seed}-end.safetensors"

    def require_finished(self) -> None:
        """Raise a `UserError` that names the missing file of a run that is not finished."""
        for file in (self.record, self.rounds, self.clients):
            if not file.is_file():
                raise UserError(f"'{self.path}' holds no finished run: there is no {file.name}. "
                                f"Finish it: apiece resume {self.path}")  # fmt: skip


def name_file(method: str) -> str:
    """What a method's files are called: its name, if every platform takes that; else what is left of it, and a hash.

    No two methods share a file: also not where capitals do not count, nor a name that looks like another's hash.

    >>> name_file("fed_avg"), name_file("my_package.mine:mixture")
    ('fed_avg', 'my_package.mine_mixture~1a52115860')
    """
    if PLAIN_NAME.fullmatch(method):
        return method
    told = re.sub("^[.-]|[^a-z0-9_.-]", "_", method.lower())[:LONGEST]
    return f"{told}~{hashlib.sha256(method.encode()).hexdigest()[:10]}"


def write_record(folder: Path, record: Record) -> None:
    """Write record.json, whole or not at all."""
    write_json(RunFolder(Path(folder)).record, record.plain())


def read_record(folder: str | Path) -> Record:
    """The record of a finished run, also of one that an older version wrote; a `UserError` says what is wrong.

    >>> try: read_record("no-such-run")
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    run = RunFolder(Path(folder))
    run.require_finished()
    values = read_json(run.record)
    _refuse_later(run.record, values)
    first = values.get("format", 1) == 1
    try:
        record = Record.model_validate(_blank(values) if first else values)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise UserError(f"{run.record} is damaged: '{key}': {problem['msg'].lower()}; delete it and resume to make it "
                        "again") from None  # fmt: skip
    return _judged(run, record) if first else record


def _refuse_later(path: Path, values: Any) -> None:
    if not isinstance(values, dict) or "methods" not in values:
        raise UserError(f"{path} is damaged: it holds no methods; delete it and resume to make it again")
    written = values.get("format", 1)
    if not isinstance(written, int) or not 1 <= written <= FORMAT:
        by = _writer(values)
        raise UserError(f"{path} has format {written}, written by {by}; this version reads formats 1 to {FORMAT}. "
                        f"Read it with {by}, or update: pip install --upgrade apiece")  # fmt: skip


def _writer(values: dict[str, Any]) -> str:
    environment = values.get("environment")
    packages = environment.get("packages") if isinstance(environment, dict) else None
    version = packages.get("apiece") if isinstance(packages, dict) else None
    return f"apiece {version}" if version else "another version of apiece"


def _blank(values: dict[str, Any]) -> dict[str, Any]:
    """A record of format 1 with room for what it lacks."""
    nothing: dict[str, Any] = {"chosen": None, "costs": {}, "beside_local": None}
    methods = values["methods"]
    if isinstance(methods, dict):
        methods = {name: {**nothing, **one} if isinstance(one, dict) else one for name, one in methods.items()}
    ranking = {"metric": "", "higher": False, "order": [], "diverged": [], "behind": {}, "by_validation": None,
               "beside_local": None}  # fmt: skip
    return {**values, "format": FORMAT, "methods": methods, "ranking": ranking}


def _judged(run: RunFolder, record: Record) -> Record:
    """A record of format 1 with what was left to the report then: the table of clients tells the same as ever."""
    clients = means_of_clients(read_table(run.clients))
    if lost := [name for name in record.methods if name not in clients]:
        raise UserError(f"{run.clients} has no rows of method '{lost[0]}'; delete it and resume to make it again")
    methods = {}
    for name, method in record.methods.items():
        tried = [one.model_dump() for one in method.tuning]
        added = {
            "chosen": best(tried) if len(tried) > 1 else None,  # a single one was not tried at all
            "costs": mean_costs([one.costs for one in method.seeds]),
            "beside_local": count_beside_local(clients[name]),
        }
        methods[name] = method.model_copy(update=added)
    hits = record.federation.task in HITS
    ranking = rank(Criterion("accuracy" if hits else "error", hits), methods, clients)
    return record.model_copy(update={"methods": methods, "ranking": ranking})
