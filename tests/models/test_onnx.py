"""Models as ONNX files: what another program computes with them is what the model says."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import apiece
from apiece.errors import UserError
from apiece.experiment.export import export_model
from apiece.models import MODELS
from apiece.models.catalog import named_model
from apiece.models.onnx import CLOSE, to_onnx

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("jax2onnx")

# task, shape, outputs, tokens, every, options, dtype, and whether the file takes batches of any size
CASES = {
    "linear": ("regression", (5,), 1, 0, False, {}, "float32", True),
    "softmax": ("classification", (4, 4), 3, 0, False, {}, "uint8", True),
    "mlp": ("classification", (6,), 3, 0, False, {"hidden": [4]}, "float32", True),
    "cnn2": ("classification", (8, 8), 3, 0, False, {"width": 2, "hidden": [4]}, "uint8", False),
    "cnn2_valid": ("classification", (16, 16), 3, 0, False, {"width": 2, "hidden": [4]}, "uint8", False),
    "cnn3": ("classification", (8, 8, 3), 3, 0, False, {"width": 2, "hidden": [4]}, "uint8", False),
    "cnn5": ("classification", (32, 32, 3), 3, 0, False, {"width": 2, "hidden": [4]}, "uint8", False),
    "resnet18": ("classification", (8, 8, 3), 3, 0, False, {"width": 4, "blocks": [1, 1]}, "uint8", False),
    "sensor_cnn": ("classification", (32, 2), 3, 0, False, {"width": 2, "hidden": [4]}, "float32", False),
    "char_lstm": ("next_character", (5,), 7, 7, True, {"embed": 2, "width": 3, "layers": 1}, "int32", True),
    "text_lstm": ("classification", (5,), 2, 7, False, {"embed": 2, "width": 3, "layers": 1}, "int32", True),
    "transformer": (
        "classification",
        (5,),
        2,
        7,
        False,
        {"width": 8, "inner": 8, "heads": 2, "blocks": 1},
        "int32",
        True,
    ),
}


def test_every_model_that_answers_examples_is_tried():
    assert set(CASES) == set(MODELS.own) - {"quadratic"}


@pytest.mark.parametrize("name", CASES)
def test_the_file_computes_what_the_model_says(name):
    task, shape, outputs, tokens, every, options, dtype, any_batch = CASES[name]
    model = named_model(name, task, shape, outputs, tokens, every, options)
    moved = lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(1), leaf.shape)
    params = jax.tree.map(moved, model.init(jax.random.key(0)))
    made = to_onnx(lambda x: model.apply(params, x), shape, dtype, model.name, tokens)
    assert made.any_batch == any_batch
    x = np.random.default_rng(5).integers(0, tokens or 200, (2, *shape)).astype(dtype)
    session = onnxruntime.InferenceSession(made.file)
    ask = lambda x: session.run([made.output], {made.input: x})[0]
    theirs = ask(x) if any_batch else np.concatenate([ask(one[None]) for one in x])
    ours = np.asarray(model.apply(params, jnp.asarray(x)))
    np.testing.assert_allclose(theirs, ours, atol=CLOSE * max(1.0, np.abs(ours).max()))


def test_a_clients_model_is_exported_and_another_program_predicts_with_it(tmp_path):
    fitted = apiece.fit("ditto", federation=apiece.data.digits(clients=3), rounds=1, options={"steps": 2})
    run = apiece.open(fitted.save(tmp_path / "run"))
    folder = export_model(run, "2", tmp_path / "two", onnx=True)
    card = json.loads((folder / "card.json").read_text())["onnx"]
    session = onnxruntime.InferenceSession(folder / card["file"])
    x = np.random.default_rng(0).integers(0, 17, (5, 64)).astype(np.uint8)
    np.testing.assert_allclose(session.run([card["output"]], {card["input"]: x})[0], fitted.predict("2", x), atol=1e-5)
    assert card["batch"] is None


def test_what_the_exporter_cannot_do_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(UserError, match="a callback cannot be written as ONNX"):
        to_onnx(lambda x: jax.pure_callback(np.sin, x, x), (2,), "float32", "a callback")
    model = apiece.models.softmax((64,), 10)
    fitted = apiece.fit("fed_avg", model, apiece.data.digits(clients=3), rounds=1, options={"steps": 1})
    run = apiece.open(fitted.save(tmp_path / "run"), model=model)
    with pytest.raises(UserError, match="'given:model' is one's own"):
        export_model(run, "2", tmp_path / "two", onnx=True)
    assert not (tmp_path / "two").exists()
