"""Whether a model fits a federation: it takes its examples, and its outputs have the shape that the labels need."""

import jax

from apiece.data.federation import Federation
from apiece.errors import UserError
from apiece.models.model import Model
from apiece.shelf import Shelf

_OUTPUTS = Shelf(most=64)  # shapes of models that were seen before


def check_outputs(model: Model, federation: Federation) -> None:
    """Outputs of another shape than the labels would be broadcast, and the loss be silently wrong.

    >>> from apiece.data import digits
    >>> from apiece.models import softmax
    >>> try: check_outputs(softmax((64,), 3), digits())
    ... except UserError as error: print(error)
    softmax 64-3 gives outputs of shape (3,) an example; this classification needs (10,)
    """
    if federation.task == "custom":
        return
    example = jax.ShapeDtypeStruct((2, *federation.train.x.shape[1:]), federation.train.x.dtype)
    shape = lambda: jax.eval_shape(lambda x: model.apply(model.init(jax.random.key(0)), x), example).shape[1:]
    try:
        given = _OUTPUTS.take((model, example), shape)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{model.name} does not take examples of shape {example.shape[1:]}: {error}") from None
    classes = (len(federation.classes),) if federation.classes else ()
    targets = (*federation.train.y.shape[1:], *classes)
    if given != targets:
        raise UserError(
            f"{model.name} gives outputs of shape {given} an example; this {federation.task} needs {targets}"
        )
