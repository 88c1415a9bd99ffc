"""Low-rank adapters: a small part that any model can have, to be trained apart or to stay with the client."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from apiece.errors import UserError
from apiece.models.model import Model, check_counts
from apiece.protocol import Params
from apiece.split import part, path_name, paths


def adapted(model: Model, rank: int = 4, where: str = "") -> Model:
    """The model with W + B A in place of chosen weights W, where A has `rank` rows and B as many columns.

    W is a matrix [outputs, inputs], or the filters [..., inputs, outputs] of a convolution, which are one of
    `outputs` rows and as many columns as a window has inputs.

    The parameters become {"model": ..., "adapter": ...}: the model's own, and A and B beside the path of each W.
    A starts at random and B at zero, so that the adapted model starts as the model itself (Hu et al. 2022).
    `where` names the weights as in `apiece.split` (for example "hidden0, out" or "output"); by default all weights
    with more than `rank` rows and columns.

    >>> from apiece.models import mlp
    >>> small = adapted(mlp((64,), 10, hidden=(32,)), rank=2, where="hidden0")
    >>> jax.tree.map(jnp.shape, jax.eval_shape(small.init, jax.random.key(0)))["adapter"]["hidden0"]["w"]
    {'a': (2, 64), 'b': (32, 2)}
    """
    check_counts("adapted", rank=rank)

    def init(key: Any) -> Params:
        model_key, adapter_key = jax.random.split(key)
        params = model.init(model_key)
        names = paths(params)
        chosen = part(where, names) if where else lambda path: True
        wide = 0 if where else rank
        fits = lambda path, leaf: jnp.ndim(leaf) >= 2 and min(_sides(leaf)) > wide and chosen(path_name(path))
        number = iter(range(len(names)))

        def adapter(path: tuple, leaf: Any) -> Params:
            at = jax.random.fold_in(adapter_key, next(number))
            if not fits(path, leaf):
                return None
            rows, columns = _sides(leaf)
            a = jax.random.normal(at, (rank, columns), leaf.dtype) / math.sqrt(columns)
            return {"a": a, "b": jnp.zeros((rows, rank), leaf.dtype)}

        added = jax.tree_util.tree_map_with_path(adapter, params)
        if not jax.tree.leaves(added):
            raise UserError(
                f"no matrix to adapt under '{where}' at rank {rank}; the parameters are: {', '.join(names)}"
            )
        return {"model": params, "adapter": added}

    def of_merged(function: Callable[[Params, Any], Any]) -> Callable[[Params, Any], Any]:
        return lambda params, x: function(jax.tree.map(_low_rank, params["model"], params["adapter"]), x)

    features = None if model.features is None else of_merged(model.features)
    return Model(init, of_merged(model.apply), f"{model.name} + rank {rank}", features)


def _sides(w: Any) -> tuple[int, int]:
    """(outputs, inputs) of a weight."""
    return w.shape if w.ndim == 2 else (w.shape[-1], math.prod(w.shape[:-1]))


def _low_rank(w: Any, added: Params) -> Any:
    if added is None:
        return w
    change = added["b"] @ added["a"]
    return w + (change if w.ndim == 2 else change.T.reshape(w.shape))
