"""A model as an ONNX file: for programs that know neither Python nor JAX. Checked against the model itself."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.errors import UserError

CLOSE = 1e-5  # beside the largest output, or 1: how far apart both may be
TRIED = 3  # examples that both are asked for


class Onnx(NamedTuple):
    """The bytes of the file, the names of what goes in and out, and whether it takes batches of any size, or of one."""

    file: bytes
    input: str
    output: str
    any_batch: bool


def to_onnx(predict: Callable[[Any], Any], shape: Sequence[int], dtype: str, title: str, tokens: int = 0) -> Onnx:
    """The ONNX file of `predict(batch of examples)`; a `UserError` if the exporter cannot do it, or does it wrong.

    It takes batches of any size where the exporter can say so, and else one example at a time.

    >>> import pytest
    >>> _ = pytest.importorskip("jax2onnx")
    >>> to_onnx(lambda x: 2 * x, (3,), "float32", "twice").any_batch
    True
    """
    try:
        import jax2onnx
        import onnxruntime
    except ModuleNotFoundError as error:
        raise UserError(f"the package '{error.name}' is not installed: pip install 'apiece[onnx]'") from None
    refused = ""
    for batch in ("B", 1):
        try:
            with _quiet():
                made = jax2onnx.to_onnx(predict, [jax.ShapeDtypeStruct((batch, *shape), np.dtype(dtype))])
                session = onnxruntime.InferenceSession(made.SerializeToString())
        except Exception as error:  # whatever the exporter stumbles over
            refused = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        names = session.get_inputs()[0].name, session.get_outputs()[0].name
        apart = _apart(predict, lambda x: session.run(None, {names[0]: x})[0], shape, dtype, tokens, batch == "B")  # noqa: B023 (used at once)
        if apart > CLOSE:
            refused = f"the file's answers are {apart:.1e} from the model's"
            continue
        return Onnx(made.SerializeToString(), *names, batch == "B")
    raise UserError(f"{title} cannot be written as ONNX: {refused}; take the safetensors file and its card instead")


def _apart(
    predict: Callable[[Any], Any],
    run: Callable[[Any], Any],
    shape: Sequence[int],
    dtype: str,
    tokens: int,
    any_batch: bool,
) -> float:
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        x = rng.normal(size=(TRIED, *shape)).astype(dtype)
    else:
        x = rng.integers(0, tokens or 256, (TRIED, *shape)).astype(dtype)
    theirs = run(x) if any_batch else np.concatenate([run(one[None]) for one in x])
    ours = np.asarray(predict(jnp.asarray(x)))
    if theirs.shape != ours.shape:
        return float("inf")
    return float(np.abs(theirs - ours).max() / max(1.0, np.abs(ours).max()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells much about its own work that nobody can act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
