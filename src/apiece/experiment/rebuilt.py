"""What a run's models were made by, made again from its product alone: model, objective, methods, without the data."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from apiece.engines.contact import model_shapes
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment.bench import Bench
from apiece.experiment.folder import RunFolder
from apiece.experiment.product import Product, hollow_federation, shapes_by_path
from apiece.experiment.spec import Spec, make_spec
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.variant import variant_of
from apiece.experiment.written import with_given
from apiece.own import GIVEN
from apiece.protocol import Personal


class Maker(NamedTuple):
    """A method of the run, ready to say what models are and what they say."""

    bench: Bench
    like: Personal  # the shapes of a client's model

    @property
    def predict(self) -> Callable[..., Any]:
        """(a client's model, examples) -> what it says of them; compiled."""
        return self.bench.predict


class Rebuilt:
    """The methods of a run, each made when first needed; `given` are the objects that no file can hold."""

    def __init__(self, folder: Path, product: Product, given: Mapping[str, Any]) -> None:
        self.folder, self.product, self._given = folder, product, dict(given)
        self._makers: dict[str, Maker] = {}

    @property
    def train(self) -> TrainSpec:
        """How the run goes."""
        return self._spec.train

    def maker(self, method: str) -> Maker:
        """What makes a method's models and asks them; made when first needed."""
        if method not in self._makers:
            row = variant_of(method, self._with_given(self._table(method)))
            bench = Bench(self._place, row.method, row.options, self._spec.train)
            build, hyper = setup.method_of(self._place, row.method, row.options, self._spec.train)
            largest, (x, y) = self.product.examples.largest, (self._place.x, self._place.y)
            some = lambda leaf: jax.ShapeDtypeStruct((largest, *leaf.shape[1:]), leaf.dtype)
            params = jax.eval_shape(self._place.model.init, jax.random.key(0))
            self._makers[method] = Maker(bench, model_shapes(build(hyper, 0), params, (some(x), some(y)), largest))
        return self._makers[method]

    def _table(self, method: str) -> dict[str, Any]:
        """The method's table; one that is given stands in for one that may be elsewhere now."""
        table = self.product.methods[method].table
        return {**table, "method": self._given[method]} if method in self._given and "stages" not in table else table

    @functools.cached_property
    def _spec(self) -> Spec:
        """The part of the run's spec that models and newcomers need."""
        model, train = _without_none(self.product.model.table), _without_none(self.product.train)
        model |= {"name": self._given["model"]} if "model" in self._given else {}
        return make_spec(self._with_given({"model": model, "train": train}), str(RunFolder(self.folder).product))

    @functools.cached_property
    def _place(self) -> setup.Arena:
        """Where models are made and asked: the arena of a made-up federation with the measures of the real one."""
        hollow = hollow_federation(self.product)
        model, objective = setup.model_and_objective(self._spec.model, hollow)
        told, here = self.product.model, jax.eval_shape(model.init, jax.random.key(0))
        _check_same_model(told.parameters, here, told.title)
        return setup.arena(hollow, model, objective)._replace(population=self.product.population)

    def _with_given(self, values: Any) -> Any:
        values = with_given(values, self._given)
        for name in _still_given(values):
            how = "model=..." if name == "model" else f"given={{'{name}': ...}}"
            raise UserError(f"'{name}' of the run in '{self.folder}' was given as an object, which no file can hold; "
                            f"give it again: apiece.open(folder, {how})")  # fmt: skip
        return values


def _without_none(values: Any) -> Any:
    """Tables without what is null: as if it were not said."""
    if not isinstance(values, dict):
        return values
    return {key: _without_none(value) for key, value in values.items() if value is not None}


def _still_given(values: Any) -> list[str]:
    """The labels of objects that are to be given again."""
    if isinstance(values, dict):
        return [name for value in values.values() for name in _still_given(value)]
    if isinstance(values, list):
        return [name for value in values for name in _still_given(value)]
    return [values.removeprefix(GIVEN)] if isinstance(values, str) and values.startswith(GIVEN) else []


def _check_same_model(told: Mapping[str, Any], here: Any, title: str) -> None:
    """A model that is made again, or given again, has the parameters that it had."""
    found = {name: one.shape for name, one in shapes_by_path(here).items()}
    wanted = {name: one.shape for name, one in told.items()}
    if found != wanted:
        name = next(name for name in [*wanted, *found] if found.get(name) != wanted.get(name))
        raise UserError(f"the model is not the one of the run, {title}: '{name}' has the shape {found.get(name)}, and "
                        f"had {wanted.get(name)}")  # fmt: skip
