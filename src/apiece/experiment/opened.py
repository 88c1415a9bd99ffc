"""A run from its folder alone, wherever that is now, and without the data: numbers, models, room for newcomers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import files
from apiece.data.encoding import Encoding
from apiece.data.ids import suggest_id
from apiece.data.load.later import Rows, encode_rows, encode_text, plain_encoding, targets_of
from apiece.data.load.read import TEXT
from apiece.engines.contact import newcomer_model
from apiece.errors import UserError, suggest
from apiece.experiment import build as setup
from apiece.experiment.checkpoint import load_personal
from apiece.experiment.folder import RunFolder, read_record
from apiece.experiment.prediction import Prediction
from apiece.experiment.product import Product, read_product
from apiece.experiment.rebuilt import Maker, Rebuilt
from apiece.experiment.record import Record
from apiece.protocol import Personal

AT_ONCE = 4096  # rows that are predicted together


class OpenedRun:
    """A run as its folder tells it. `apiece.open` gives one.

    Methods and seeds are the run's recommended method and its first seed, unless others are named. Rows are a path
    (CSV, Parquet, NPZ; a picture or a folder of them, a text), columns by name, a DataFrame: as they come, in their own
    units; or an array of examples as the model takes them, encoded and scaled.

    >>> try: open("no-such-run")
    ... except UserError as error: print(error)
    there is no run folder 'no-such-run'
    """

    def __init__(self, folder: Path, product: Product, given: Mapping[str, Any]) -> None:
        self.folder, self.product = folder, product
        self._run, self._rebuilt = RunFolder(folder), Rebuilt(folder, product, given)

    @property
    def record(self) -> Record:
        """All that the run found, as in record.json."""
        return read_record(self.folder)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The methods, best first: the test score with its interval over seeds, and which of them is recommended."""
        record, rows = self.record, []
        for name in record.ranking.order:
            found = record.methods[name].statistic("test", record.ranking.metric, "mean_weighted")
            ends = (None, None, None) if found is None else (found.mean, found.low, found.high)
            score = dict(zip((record.ranking.metric, "low", "high"), ends, strict=True))
            rows.append({"method": name, **score, "recommended": name == self.product.recommended})
        return rows

    @property
    def clients(self) -> list[str]:
        """Everybody with a model here: who trained, who was new in the run, and who came after it."""
        return [*self.product.clients, *self.newcomers]

    @property
    def newcomers(self) -> list[str]:
        """Who came after the run, and was given a name."""
        names = []
        for file in sorted(self._run.newcomers.glob("*/*.safetensors")):
            with files.read_rows(file) as (_, _, about):
                names.append(about["client"])
        return list(dict.fromkeys(names))

    def personal(self, client: str, *, method: str | None = None, seed: int | None = None) -> Personal:
        """The model of one client, by its id or by the name that it came with after the run."""
        name, number = self.which(method, seed)
        like, client = self.maker(name).like, str(client)
        late = self._run.newcomer(client, name, number)
        if late.exists():
            return files.rebuild_tree("personal", like, files.read_arrays(late)[0])
        path = self._run.models(name, number)
        if not path.exists():
            raise UserError(f"no models of '{name}' with seed {number} were kept: there is no {path}")
        found = load_personal(path, client, like)
        if found is not None:
            return found
        if client in self.product.clients:
            raise UserError(f"no personal models of '{name}' were kept: they are larger than train.models_gb allowed")
        known = np.array(self.clients)
        if client in known:
            raise UserError(f"client '{client}' came after the run, and has no model by '{name}' with seed {number}; "
                            "onboard it with that method")  # fmt: skip
        raise UserError(f"no client '{client}' in {self.folder}: {suggest_id(client, known)}")

    def predict(
        self, client: str | Personal, rows: Any, *, method: str | None = None, seed: int | None = None
    ) -> Prediction:
        """What a client's model (by its id, or the model itself) says of rows."""
        product, (name, number) = self.product, self.which(method, seed)
        if product.task == "custom":
            raise UserError(f"'{self.folder}' has a task of its own kind, whose models answer no examples")
        model = self.personal(client, method=name, seed=number) if isinstance(client, str) else client
        x, notes, called = self.examples(rows)
        said = self.maker(name).predict
        parts = [np.asarray(said(model, jnp.asarray(x[at : at + AT_ONCE]))) for at in range(0, len(x), AT_ONCE)]
        outputs = np.concatenate(parts)
        scaling = product.scaled()
        values = None if product.classes else outputs if scaling is None else scaling.in_own_units(outputs)
        return Prediction(outputs, tuple(product.classes), values, tuple(notes), called)

    def onboard(
        self, rows: Any, y: Any = None, *, name: str | None = None, method: str | None = None, seed: int | None = None
    ) -> Personal:
        """A model for somebody nobody has seen, from its own rows; the others' models stay as they are.

        Args:
            rows: a table with the target in its column, or an array of examples beside `y`.
            y: class indexes or values, as the model was trained on them.
            name: to keep the model in the run folder, where `personal` and `predict` find it by that name.
            method, seed: which, if not the recommended one and the first.
        """
        chosen, number = self.which(method, seed)
        if name is not None and name in self.product.clients:
            raise UserError(f"'{name}' is a client of the run, with a model of its own; give the newcomer another name")
        path = self._run.newcomer(name, chosen, number) if name is not None else None
        if path is not None and path.exists():
            raise UserError(f"'{name}' has a model by '{chosen}' already: {path}; remove it, or give another name")
        x, targets = self._own_rows(rows, y)
        model = self._made_for(x, targets, chosen, number)
        if path is not None:
            about = {"client": name, "method": chosen, "seed": number, "examples": len(targets)}
            files.write_arrays(path, files.arrays_by_path("personal", jax.tree.map(np.asarray, model)), about)
        return model

    def examples(self, rows: Any) -> tuple[np.ndarray, list[str], tuple[str, ...]]:
        """(examples as the models take them, what a reader should know, what the rows are called) of rows."""
        like = self.product.examples.x
        if isinstance(rows, np.ndarray | jax.Array | list):
            x = np.asarray(rows)
            if x.shape[1:] != tuple(like.shape):
                raise UserError(f"a batch of examples of shape {tuple(like.shape)} is needed; got {x.shape}")
            return x.astype(like.dtype, copy=False), [], ()
        if self._is_text(rows):
            text = encode_text(rows, self.product.classes, like.shape[0])
            return text.x.astype(like.dtype, copy=False), text.notes, text.pieces
        found = encode_rows(rows, self.encoding)
        return self._scaled(found), found.notes, found.table.called

    def _is_text(self, rows: Any) -> bool:
        """Whether the clients of the run have texts, and rows are at a path that holds one."""
        product = self.product
        spoken = (
            product.encoding is None and bool(product.classes) and product.examples.y.shape == product.examples.x.shape
        )
        return spoken and isinstance(rows, str | os.PathLike) and Path(rows).suffix.lower() == TEXT

    @property
    def encoding(self) -> Encoding:
        """How columns of a table become features."""
        like = self.product.examples.x
        return self.product.encoding or plain_encoding(self.product.features, like.shape, like.dtype)

    def _scaled(self, rows: Rows) -> np.ndarray:
        scaling, dtype = self.product.scaled(), self.product.examples.x.dtype
        return (rows.x if scaling is None else scaling.inputs(rows.x)).astype(dtype, copy=False)

    def _own_rows(self, rows: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        product = self.product
        if y is not None:
            x, targets = self.examples(rows)[0], np.asarray(y)
        else:
            if isinstance(rows, np.ndarray | jax.Array | list):
                raise UserError("examples given as an array need their targets beside them: onboard(x, y)")
            x, targets = self._with_targets(rows)
        if len(x) != len(targets) or len(targets) == 0:
            raise UserError(f"a new client needs as many targets as examples, at least one; got {len(x)} examples and "
                            f"{len(targets)} targets")  # fmt: skip
        return x, targets.astype(product.examples.y.dtype)

    def _with_targets(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        product, scaling = self.product, self.product.scaled()
        if self._is_text(rows):
            text = encode_text(rows, product.classes, product.examples.x.shape[0])
            return text.x.astype(product.examples.x.dtype), text.y
        found = encode_rows(rows, self.encoding)
        targets = targets_of(found.table, self.encoding.label or "label", product.classes)
        return self._scaled(found), targets if product.classes or scaling is None else scaling.targets(targets)

    def _made_for(self, x: np.ndarray, y: np.ndarray, method: str, seed: int) -> Personal:
        """The newcomer's model, from the server's state as the run left it."""
        bench, path = self.maker(method).bench, self._run.models(method, seed)
        if not path.exists():
            raise UserError(f"no models of '{method}' with seed {seed} were kept: there is no {path}")
        build, hyper = setup.method_of(bench.place, bench.method, bench.options, bench.plan)
        with files.read_rows(path) as (get, names, about):
            if "visits" not in about:
                raise UserError(f"{path} was written by an older version: its models predict, but it lacks what a "
                                "newcomer's needs; run it again")  # fmt: skip
            kept = {name: get(name) for name in names if name.split("/")[0] in ("server", "initial")}
        shapes = jax.eval_shape(bench.place.model.init, jax.random.key(0))
        params = jax.tree.map(jnp.asarray, files.rebuild_tree("initial", shapes, kept))
        made = build(hyper, about["round"])
        opened = jax.eval_shape(made.init, params, jax.random.key(0))
        server = jax.tree.map(jnp.asarray, files.rebuild_tree("server", opened, kept))
        stands = dict(seed=about["seed"], round=about["round"], i=self.product.population, visits=about["visits"])
        return newcomer_model(made, params, server, jnp.asarray(x), jnp.asarray(y), **stands)

    def maker(self, method: str) -> Maker:
        """What makes a method's models and asks them."""
        return self._rebuilt.maker(method)

    def which(self, method: str | None, seed: int | None) -> tuple[str, int]:
        """(method, seed): those that are asked for, if the run has them."""
        product = self.product
        method = product.recommended if method is None else method
        if method not in product.methods:
            raise UserError(f"no method '{method}' in {self.folder}: {suggest(method, product.methods)}")
        seed = product.seeds[0] if seed is None else seed
        if seed not in product.seeds:
            raise UserError(f"no seed {seed} in {self.folder}; there are: {', '.join(map(str, product.seeds))}")
        return method, seed


def open(folder: str | Path, *, model: Any = None, given: Mapping[str, Any] | None = None) -> OpenedRun:
    """A run from its folder, wherever that is now; its data are not needed.

    Args:
        folder: as `apiece.compare` and `apiece run` leave it, or `Fit.save`.
        model: the model, if the run was given one as an object that cannot be imported (a network in a notebook), or
            one that is no longer where it was imported from.
        given: by name, what else is so: methods, an objective.

    >>> import apiece, tempfile
    >>> fitted = apiece.fit("ditto", federation=apiece.data.digits(clients=4), rounds=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     run = open(fitted.save(place + "/run"))
    ...     said = run.predict("3", np.zeros((2, 64), np.uint8))
    >>> len(said.labels), said.probabilities.shape
    (2, (2, 10))
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no run folder '{folder}'")
    named = {} if model is None else {"model": model}
    return OpenedRun(folder, read_product(RunFolder(folder).product), named | dict(given or {}))
