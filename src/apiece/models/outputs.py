"""Whether a model fits a federation: it takes its examples, and its outputs have the shape that the labels need."""

import jax

from apiece.data.federation import Federation
from apiece.errors import UserError
from apiece.models.model import Model
from apiece.models.objective import Objective
from apiece.protocol import Batch
from apiece.shelf import Shelf

_OUTPUTS = Shelf(most=64)  # shapes of models that were seen before


def check_objective(judge: Objective, model: Model, federation: Federation) -> None:
    """An objective of one's own gives one number to train by, and two of each example: its loss and its error.

    >>> from apiece.data import digits
    >>> from apiece.models import objective, softmax
    >>> model = softmax((64,), 10)
    >>> known = objective(model, "classification")
    >>> three = known._replace(outcomes=lambda params, batch: (*known.outcomes(params, batch), batch.weight))
    >>> try: check_objective(three, model, digits())
    ... except UserError as error: print(error)
    the objective's outcomes of 2 examples have shapes (2,), (2,), (2,); (2,), (2,) are needed, a loss and an error each
    """
    shape = lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), jax.dtypes.canonicalize_dtype(leaf.dtype))
    batch = Batch(shape(federation.train.x), shape(federation.train.y), jax.ShapeDtypeStruct((2,), "float32"))
    params = jax.eval_shape(model.init, jax.random.key(0))
    shapes = lambda found: [leaf.shape for leaf in jax.tree.leaves(found)]
    told = lambda found: ", ".join(map(str, found)) or "none"
    judged = shapes(jax.eval_shape(judge.outcomes, params, batch))
    if judged != [(2,), (2,)]:
        raise UserError(f"the objective's outcomes of 2 examples have shapes {told(judged)}; (2,), (2,) are needed, "
                        "a loss and an error each")  # fmt: skip
    loss = shapes(jax.eval_shape(judge.loss, params, batch, jax.random.key(0)))
    if loss != [()]:
        raise UserError(f"the objective's loss of a batch has shape {told(loss)}; one number is needed, a mean")


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
