"""A site: its rows, its memory, its models, and how it answers the server's letters. It runs installed code alone."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pydantic

from apiece import files
from apiece.data.encoding import Encoding
from apiece.data.statistics import ask_rows
from apiece.deploy.agree import MEASURES
from apiece.deploy.config import SiteConfig, hash_of, read_site
from apiece.deploy.rows import SiteRows, read_rows
from apiece.engines.contact import keys
from apiece.engines.remote.desk import Desk, Reply
from apiece.engines.remote.halves import agree_from, compile_programs, data_of
from apiece.engines.remote.letter import Letter, Terms, minor_version
from apiece.engines.remote.station import NeedsTerms, Station, Tell
from apiece.errors import UserError
from apiece.estimate.curvature import ROWS
from apiece.experiment import build as setup
from apiece.experiment.folder import RunFolder, name_file
from apiece.experiment.privacy import refuse_public_noise
from apiece.experiment.product import Product, read_product, write_product
from apiece.experiment.rebuilt import Rebuilt
from apiece.experiment.secure import secure_of
from apiece.protocol import Data, Tree

QUESTIONS = {"curvature": ROWS}
ALONE = "local"  # the row whose outcomes others are compared with


def split_row(row: str) -> tuple[str, int]:
    """(method, seed) of a row's name.

    >>> split_row("ditto~0")
    ('ditto', 0)
    """
    method, _, seed = row.rpartition("~")
    if not method or not seed.isdigit():
        raise UserError(f"'{row}' is no method and seed")
    return method, int(seed)


class Site:
    """One client of a run, in its own folder.

    Args:
        folder: with site.toml. tell: the log.
    """

    def __init__(self, folder: Path, tell: Tell = lambda event, **about: None) -> None:
        self.folder, self.tell = folder, tell
        self.config: SiteConfig = read_site(folder)
        self.rows: SiteRows = read_rows(self.config, folder)
        self.finished = False
        self.run_folder = RunFolder(folder / "run")
        self._desks: dict[str, Desk] = {}
        self._alone: dict[int, dict[str, tuple[np.ndarray, ...]]] = {}
        terms = Terms(minor_version(), self.config.run, "")
        tasks = {"survey": self._survey, "measure": self._measure, "propose": self._propose, "finish": self._finish}
        self.station = Station(terms, self.config.number, self._desk, tasks, tell)
        self.product: Product | None = None
        self.parts: dict[str, Data] = {}
        if self._agreed_file.exists():
            self._take(files.read_json(self._agreed_file))

    @property
    def _agreed_file(self) -> Path:
        return self.folder / "agreed.json"

    def answer(self, wire: bytes) -> bytes:
        """The letter back."""
        return self.station.answer(wire)

    # What is agreed before the first round.

    def _survey(self, letter: Letter) -> Reply:
        told = {"name": self.config.name, "label_column": self.config.label, **self.rows.survey()}
        return {}, json.dumps(files.as_plain(told)).encode()

    def _measure(self, letter: Letter) -> Reply:
        """Sums over this site's training rows, of one of a few questions."""
        head = letter.head
        question = MEASURES.get(str(head.get("question")))
        if question is None:
            raise UserError(f"there is no measure '{head.get('question')}'; both sides run the same version")
        if head.get("of") == "features":
            encoding = Encoding.from_dict(head.get("rules"))
            self.rows._check(encoding)
            x = encoding.encode({name: column.values for name, column in self.rows.columns.items()})[
                self.rows.part == 0
            ]
        elif head.get("of") in self.rows.columns:
            x = self.rows.values(str(head["of"]))
        else:
            raise UserError(f"{self.rows.where} has no column '{head.get('of')}'")
        message = head.get("message")
        said = ask_rows(x)(question, np.asarray(message) if message is not None else ())
        return {}, json.dumps(
            [np.asarray(one).tolist() for one in (said if isinstance(said, tuple) else [said])]
        ).encode()

    def _propose(self, letter: Letter) -> Reply:
        """What the server publishes: the rules and the spec. This site says yes, or why not."""
        try:
            agreed = json.loads(letter.body)
        except ValueError as error:
            raise UserError(f"the proposal cannot be read: {error}") from None
        if self.product is not None and hash_of(agreed) != self.station.terms.spec:
            raise UserError(f"this site follows the spec {self.station.terms.spec}, and the server proposes another "
                            f"({hash_of(agreed)}); start a new run under another name")  # fmt: skip
        self._take(agreed)
        files.write_json(self._agreed_file, agreed)
        assert self.product is not None
        write_product(self.run_folder.product, self._own_product())
        self.tell("agreed", spec=self.station.terms.spec, methods=list(self.product.methods))
        return {"hash": self.station.terms.spec}, b""

    def _take(self, agreed: Any) -> None:
        """Follow what was agreed from now on, or none of it."""
        try:
            product = Product.model_validate(agreed)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise UserError(f"what the server proposes cannot be read, at '{key}': {first['msg']}") from None
        if product.encoding is None:
            raise UserError("what the server proposes has no rules for rows ('encoding')")
        found = self.rows.examples(product.encoding, tuple(product.classes), product.scaled())
        x = found["train"][0]
        told = product.examples
        if list(x.shape[1:]) != told.x.shape or str(x.dtype) != told.x.dtype:
            raise UserError(f"an example is {x.dtype}{x.shape[1:]} here, and {told.x.dtype}{tuple(told.x.shape)} was "
                            "agreed on")  # fmt: skip
        parts = {part: _laid_out(*both) for part, both in found.items()}
        rebuilt = Rebuilt(self.run_folder.path, product, {})
        refuse_public_noise(rebuilt.train)
        self.parts, self._rebuilt, self._desks, self.product = parts, rebuilt, {}, product
        self.station.terms = self.station.terms._replace(spec=hash_of(agreed))

    def _own_product(self) -> Product:
        """The product as it is in this site's folder: this site's model alone."""
        assert self.product is not None
        return self.product.model_copy(update={"clients": [self.config.name]})

    # The run.

    def _desk(self, row: str) -> Desk:
        if self.product is None:
            raise NeedsTerms("nothing is agreed with this site yet")
        if row not in self._desks:
            method, seed = split_row(row)
            if method not in self.product.methods or seed not in self.product.seeds:
                raise UserError(f"the run has no method '{method}' with seed {seed}")
            bench = self._rebuilt.maker(method).bench
            build, hyper = setup.method_of(bench.place, bench.method, bench.options, bench.plan)
            params = bench.place.model.init(keys(seed).model)
            example = jax.tree.map(lambda leaf: leaf[:1], (self.parts["train"].x, self.parts["train"].y))
            terms = agree_from(build, params, example, seed, hyper, compile_programs(build))
            kept = self._alone.setdefault(seed, self._load_alone(seed))
            self._desks[row] = Desk(
                terms,
                self.config.number,
                self.parts,
                self.folder / "memory" / f"{name_file(method)}-{seed}.safetensors",
                outcomes=bench.place.objective.outcomes,
                questions=QUESTIONS,
                alone=(kept, method == ALONE),
                spec=self.station.terms.spec,
                rounds=bench.plan.rounds,
                secure=secure_of(bench.plan, self.product.population),
                once=bench.plan.private is not None and bench.plan.private.at == "clients",
                judged=lambda model, round: self._keep_model(row, model, round),
            )
        return self._desks[row]

    def _keep_model(self, row: str, model: Tree, round: int) -> None:
        """This site's model where `apiece site predict` finds it, and what training alone gave, to be compared with."""
        method, seed = split_row(row)
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)
        about = {"clients": [self.config.name], "round": round, "seed": seed}
        files.write_arrays(self.run_folder.models(method, seed), files.arrays_by_path("personal", stacked), about)
        if method == ALONE:
            arrays = {f"{part}-{k}": one for part, both in self._alone[seed].items() for k, one in enumerate(both)}
            files.write_arrays(self._alone_file(seed), arrays, {"round": round})

    def _alone_file(self, seed: int) -> Path:
        return self.folder / "memory" / f"alone~{seed}.safetensors"

    def _load_alone(self, seed: int) -> dict[str, tuple[np.ndarray, ...]]:
        if not self._alone_file(seed).exists():
            return {}
        arrays, _ = files.read_arrays(self._alone_file(seed))
        return {name[:-2]: (arrays[name], arrays[f"{name[:-2]}-1"]) for name in arrays if name.endswith("-0")}

    def _finish(self, letter: Letter) -> Reply:
        self.finished = True
        self.tell("finished", rounds=letter.head.get("rounds"))
        return {}, b""


def _laid_out(x: np.ndarray, y: np.ndarray) -> Data:
    """A part's rows, with room for as many as the next power of two, which is never read: sites of a machine share
    compiled programs then, and a site whose data grow compiles nothing anew. Without rows there is room for one."""
    return data_of(x, y, 1 << max(len(y) - 1, 0).bit_length())


def open_site(folder: Path) -> Any:
    """The run in a site's folder, as `apiece.open` gives it: its own model, without the server."""
    from apiece.experiment.opened import OpenedRun

    product = RunFolder(folder / "run").product
    if not product.exists():
        raise UserError(f"the site in {folder} has no model yet: it has not taken part in a run")
    return OpenedRun(folder / "run", read_product(product), {})
