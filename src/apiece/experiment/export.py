"""One client's model for use elsewhere: its arrays as safetensors, a card that says how it predicts, ONNX if asked."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.errors import UserError
from apiece.experiment.opened import OpenedRun
from apiece.experiment.product import ArrayShape, Predictor, ProductMethod, shapes_by_path
from apiece.experiment.record import Entry
from apiece.files import arrays_by_path, as_plain, fill_folder, write_arrays, write_json
from apiece.models import MODELS
from apiece.models.onnx import to_onnx
from apiece.protocol import Personal

FORMAT = 1  # of card.json: raised when a key goes or changes its meaning


class OnnxCard(Entry):
    """How model.onnx is called: with an example as in `examples.x`, and it answers as the model does."""

    file: str
    input: str
    output: str
    batch: int | None
    """How many examples it takes at a time; null: any number."""


class Card(Predictor):
    """What card.json holds: all that one client's model needs to predict, but for its arrays.

    >>> "encoding" in Card.model_fields
    True
    """

    client: str
    method: str
    seed: int
    made_by: ProductMethod
    arrays: dict[str, ArrayShape]
    """What model.safetensors holds, by name."""
    onnx: OnnxCard | None


def export_model(
    run: OpenedRun,
    client: str,
    out: str | Path,
    *,
    method: str | None = None,
    seed: int | None = None,
    onnx: bool = False,
) -> Path:
    """Write a client's model into a new folder: model.safetensors, card.json and, if asked, model.onnx.

    >>> import apiece, tempfile
    >>> fitted = apiece.fit("ditto", federation=apiece.data.digits(clients=4), rounds=1)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = export_model(apiece.open(fitted.save(place + "/run")), "3", place + "/three")
    ...     sorted(file.name for file in made.iterdir())
    ['card.json', 'model.safetensors']
    """
    chosen, number = run.which(method, seed)
    model = jax.tree.map(np.asarray, run.personal(client, method=chosen, seed=number))
    converted = _converted(run, model, chosen) if onnx else None
    product = run.product
    shared = {name: getattr(product, name) for name in Predictor.model_fields if name != "format"}
    card = Card(
        format=FORMAT,
        **shared,
        client=client,
        method=chosen,
        seed=number,
        made_by=product.methods[chosen],
        arrays=shapes_by_path(model),
        onnx=None if converted is None else converted[1],
    )
    named = {name.removeprefix("/"): leaf for name, leaf in arrays_by_path("", model).items()}
    with fill_folder(Path(out)) as temporary:
        write_arrays(temporary / "model.safetensors", named, {"client": client, "method": chosen, "seed": number})
        write_json(temporary / "card.json", as_plain(card.model_dump(mode="json")))
        if converted is not None:
            (temporary / "model.onnx").write_bytes(converted[0])
    return Path(out)


def _converted(run: OpenedRun, model: Personal, method: str) -> tuple[bytes, OnnxCard]:
    product, name = run.product, run.product.model.table.get("name", "auto")
    if name != "auto" and name not in MODELS.own:
        raise UserError(f"ONNX files are written of the models that `apiece models` shows; '{name}' is one's own: "
                        "export it with its own library")  # fmt: skip
    x = product.examples.x
    said: Any = partial(run.maker(method).predict, model)
    made = to_onnx(said, x.shape, x.dtype, product.model.title, product.examples.tokens)
    card = OnnxCard(file="model.onnx", input=made.input, output=made.output, batch=None if made.any_batch else 1)
    return made.file, card
