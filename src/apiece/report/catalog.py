"""The catalog and the sources, described from their own signatures and docstrings."""

import inspect
from typing import Any

import jax

from apiece.data import SOURCES
from apiece.engines.costs import Costs, costs
from apiece.errors import UserError
from apiece.experiment.build import federation_of, model_of
from apiece.experiment.spec import make_spec
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.models import Model, objective
from apiece.protocol import Loss, Params


def catalog(values: dict[str, Any] | None = None, only: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """(a row per method, or of one, and the model's name): what it is, keeps and sends, for a spec's model and data.

    Of a method that does not fit them, `unfit` says why, and its costs are none.

    >>> rows, model = catalog()
    >>> model, rows[1]["name"], rows[1]["bytes_up"]
    ('softmax 64-10', 'fed_avg', 2600)
    """
    chosen = {name: CATALOG.defaults(name) for name in (CATALOG if only is None else [only])}
    spec = make_spec({**(values or {}), "methods": {}})
    federation = federation_of(spec.data)
    model = model_of(spec.model, federation)
    loss = objective(model, federation.task).loss
    params = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), params)
    example = (federation.train.x[:1], federation.train.y[:1])
    size = int(federation.train.sizes.max())
    rows = []
    for name, options in chosen.items():
        text = inspect.getdoc(CATALOG.find(name)) or ""
        try:
            spent = _costs(name, {}, federation.clients, model, loss, params, example, size)._asdict() | {"unfit": None}
        except UserError as error:
            spent = dict.fromkeys(Costs._fields) | {"unfit": str(error)}
        rows.append({"name": name, "summary": text.partition("\n")[0], "text": text.split(">>>")[0].strip(),
                     "options": options, **facts(text), **spent})  # fmt: skip
    return rows, model.name


def _costs(
    name: str, given: dict[str, Any], clients: int, model: Model, loss: Loss, params: Params, example: Any, size: int
) -> Costs:
    build, hyper = bind(name, loss, given, population=clients, model=model)
    try:
        return costs(build(hyper, 0), params, example, size)
    except UserError:
        # A split that needs a deeper model than this one: with the biases private, it fits any.
        if "private" not in CATALOG.options(name) or given:
            raise
        return _costs(name, {"private": "b"}, clients, model, loss, params, example, size)


FACTS = ("Solves", "Sent", "Kept", "Forgetting", "Guarantee", "Reference")
LABELS = (*FACTS, "Late")  # what a late reply is worth: said by methods whose replies are not updates


def facts(text: str) -> dict[str, str]:
    """The labelled lines of a method's docstring; a line that is indented goes on with the one before.

    >>> facts("A method.\\n\\nSolves: min f\\n  over x.\\nSent: nothing.\\n\\nAnd more.")
    {'Solves': 'min f over x.', 'Sent': 'nothing.'}
    """
    found: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        name, colon, rest = line.partition(": ")
        if colon and name in LABELS:
            label, found[name] = name, rest.strip()
        elif label and line.startswith("  ") and line.strip():
            found[label] += " " + line.strip()
        else:
            label = ""
    return found


def sources() -> list[dict[str, Any]]:
    """A row per data source: name, one line, options with defaults.

    >>> sources()[0]["name"]
    'digits'
    """
    return SOURCES.rows()
