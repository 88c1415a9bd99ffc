"""The product of a run: all that its models need to predict, typed and versioned, beside them in models/product.json.

The data are not among it. What is one's own (a method, a model) stands there by where it is imported from; what was
given as an object is called "given:label", and is given again to whoever opens the folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pydantic

from apiece.data import Federation, Split
from apiece.data.encoding import Encoding
from apiece.data.scaling import Scaling
from apiece.errors import UserError
from apiece.experiment.build import Arena, tokens_of
from apiece.experiment.environment import environment
from apiece.experiment.record import Entry
from apiece.experiment.spec import Spec
from apiece.experiment.stages import Staged
from apiece.experiment.variant import Variant
from apiece.experiment.written import written_spec
from apiece.files import as_plain, leaves_by_path, read_json, write_json
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.protocol import Tree, apply_model

FORMAT = 1  # of product.json: raised when a key goes or changes its meaning


class ArrayShape(Entry):
    """The shape and the type of an array."""

    shape: list[int]
    dtype: str


class Examples(Entry):
    """What the models were trained on, without the data."""

    x: ArrayShape
    """One example, encoded and scaled."""
    y: ArrayShape
    """Its target."""
    largest: int
    """The training examples of the client that has most."""
    tokens: int
    """Where an example is a row of whole numbers: one more than the largest of them all; else 0."""


class ScalingEntry(Entry):
    """Features became (x - mean) / spread, targets (y - target_mean) / target_spread."""

    mean: list[Any]
    spread: list[Any]
    target_mean: float
    target_spread: float


class ProductModel(Entry):
    """The model that every client has its own parameters of."""

    title: str
    """What it is, in words."""
    table: dict[str, Any]
    """The model as under [model] of a spec: its name or where it is imported from, options, objective, adapter."""
    parameters: dict[str, ArrayShape]
    """Of one model, by path."""


class ProductMethod(Entry):
    """How the models were made, and how they predict."""

    table: dict[str, Any]
    """The method as under [methods] of a spec, with all its options as they were chosen."""
    predicts: str
    """"model": a client's model is parameters, and the model's own function predicts; "method": the method's does."""


class Predictor(Entry):
    """What models of one shape need to predict, but for their arrays: a run's product and a client's card have it."""

    format: int
    """Of this file; raised when a key goes or changes its meaning, not when one is added."""
    task: str
    classes: list[str]
    """The classes in the order of a model's outputs; empty if outputs are values."""
    features: list[str]
    """The features in their order, if they have names."""
    encoding: Encoding | None
    """First: how columns of a table become features; null: the data were no table."""
    scaling: ScalingEntry | None
    """Then: how features are scaled, and targets; null: they are not."""
    examples: Examples
    model: ProductModel
    packages: dict[str, str]
    """The versions that wrote it."""


class Product(Predictor):
    """What models/product.json holds.

    >>> "encoding" in Product.model_fields
    True
    """

    name: str
    """Of the federation."""
    clients: list[str]
    """Every client with a model of its own, in the order of the files' rows."""
    population: int
    """How many of them trained; the others were new."""
    methods: dict[str, ProductMethod]
    train: dict[str, Any]
    """How they were trained, as under [train] of a spec: what a newcomer's model needs."""
    seeds: list[int]
    recommended: str
    """The method whose models are used unless another is named: the one that validation chooses."""

    def scaled(self) -> Scaling | None:
        """The scaling, as arrays."""
        return None if self.scaling is None else Scaling.from_dict(self.scaling.model_dump())

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return as_plain(self.model_dump(mode="json"))


def describe_product(spec: Spec, place: Arena, options: Mapping[str, Mapping[str, Any]], recommended: str) -> Product:
    """The product of a run of `spec` at `place`: `options` are those that were chosen, method by method."""
    federation, written = place.federation, as_plain(written_spec(spec))
    encoding = federation.encoding
    scaling = None if federation.scaling is None else ScalingEntry.model_validate(federation.scaling.as_dict())
    params = jax.eval_shape(place.model.init, jax.random.key(0))
    x, y = (array_shape(jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)) for leaf in (place.x, place.y))
    tokens = tokens_of(federation) if federation.train.x.ndim == 2 else 0
    methods = {
        name: _described(spec.rows[name], written["methods"][name], chosen, place) for name, chosen in options.items()
    }
    return Product(
        format=FORMAT,
        name=federation.name,
        task=federation.task,
        classes=list(federation.classes),
        features=list(federation.features),
        encoding=encoding,
        scaling=scaling,
        examples=Examples(x=x, y=y, largest=int(place.sizes("train").max()), tokens=tokens),
        clients=place.ids.tolist(),
        population=place.population,
        model=ProductModel(title=place.model.name, table=written["model"], parameters=shapes_by_path(params)),
        methods=methods,
        train=written["train"],
        seeds=list(spec.seeds),
        recommended=recommended,
        packages=environment().packages,
    )


def _described(row: Variant, written: dict[str, Any], chosen: Mapping[str, Any], place: Arena) -> ProductMethod:
    """The row's table in the spec, with every option as it was chosen."""
    options = row.options | dict(chosen)
    table = {"method": written["method"]} if "method" in written else {}
    if isinstance(row.method, Staged):  # the stages' options are the whole method's
        stage = lambda one: {key: one[key] for key in ("method", "rounds") if key in one}
        table = {"stages": [stage(one) for one in written["stages"]], **({"fine_tune": {}} if row.method.tuned else {})}
    table |= as_plain(CATALOG.complete(row.method, options))
    build, hyper = bind(row.method, place.objective.loss, options, None, place.population, place.model)
    own = build(hyper, 0).predict is not apply_model
    return ProductMethod(table=table, predicts="method" if own else "model")


def array_shape(leaf: Any) -> ArrayShape:
    """The shape of an array, to be written down.

    >>> array_shape(np.zeros((2, 3), np.uint8)).shape
    [2, 3]
    """
    return ArrayShape(shape=list(leaf.shape), dtype=str(np.dtype(leaf.dtype)))


def shapes_by_path(tree: Tree) -> dict[str, ArrayShape]:
    """The shapes of a tree's arrays by their paths.

    >>> list(shapes_by_path({"out": {"w": np.zeros(2)}}))
    ['out/w']
    """
    named = leaves_by_path("", tree)
    return {name.removeprefix("/"): array_shape(leaf) for name, leaf in named.items()}


def hollow_federation(product: Product) -> Federation:
    """A federation of one made-up example with the measures of the real one: what a model is sized by."""
    x, y = (np.zeros((1, *one.shape), one.dtype) for one in (product.examples.x, product.examples.y))
    if product.examples.tokens:
        x[0, 0] = product.examples.tokens - 1
    split = Split(x, y, np.array([0, 1]))
    about: dict[str, Any] = dict(task=product.task, classes=tuple(product.classes))
    return Federation(product.name, np.array(["made up"]), split, split, split, **about)


def write_product(path: Path, product: Product) -> None:
    """Write product.json, whole or not at all."""
    plain = product.plain()
    try:
        json.dumps(plain)
    except TypeError as error:
        raise UserError(
            f"the models cannot be saved: an option of a method is no number, text or list ({error})"
        ) from None
    write_json(path, plain)


def read_product(path: Path) -> Product:
    """The product that a file describes; a `UserError` says what is wrong.

    >>> try: read_product(Path("no-such-run/models/product.json"))
    ... except UserError as error: print(str(error).partition(",")[0])
    there is no no-such-run/models/product.json
    """
    if not path.is_file():
        raise UserError(
            f"there is no {path}, which says how the models predict: the run is not finished, or was written by an "
            f"older version. Where its data are, apiece resume {path.parent.parent} makes it"
        )
    values = read_json(path)
    written = values.get("format") if isinstance(values, dict) else None
    if not isinstance(written, int) or not 1 <= written <= FORMAT:
        raise UserError(
            f"{path} has format {written}; this version reads {FORMAT}. Update: pip install --upgrade apiece"
        )
    try:
        return Product.model_validate(values)
    except pydantic.ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(f"{path} is damaged: '{key}': {error.errors()[0]['msg'].lower()}; resume the run to make it "
                        "again") from None  # fmt: skip
