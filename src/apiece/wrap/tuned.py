"""The same training; each client then fine-tunes the model it would have used."""

from functools import partial

import jax

from apiece.client.descend import descend, toward
from apiece.protocol import Client, Data, Loss, Message, Method, Params, Tree
from apiece.split import Part, given, join, split


def fine_tuned(
    method: Method,
    loss: Loss,
    *,
    steps: Tree = 20,
    epochs: Tree | None = 10,
    lr: Tree = 0.1,
    batch: int = 32,
    lam: Tree = 0.0,
    part: str | Part = "",
) -> Method:
    """The same training; each client then fine-tunes the model it would have used, on its own training data.

    With `lam` > 0 the fine-tuning minimizes L_i(p) + lam/2 |p - p_0|^2 (ridge): p_0 is the model it starts from.
    With a `part` (words or a predicate, see `apiece.split`) only that part of the model is tuned.
    Nothing is sent and nothing is kept beyond what `method` sends and keeps.

    >>> from apiece.methods import fed_avg
    >>> loss = lambda params, batch, key: 0.0
    >>> fine_tuned(fed_avg(loss), loss, epochs=5, lam=0.1).personal.__name__
    'personal'
    """
    tune = partial(descend, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        # A key apart: the tuning spends the first two that this one splits into, and `split(key, 3)` begins with them.
        start = method.personal(client, message, data, jax.random.fold_in(key, 2))
        if not part:
            return tune(loss, start, data, key, shift=toward(start, lam))
        held, own = split(start, part)
        return join(held, tune(given(loss, held), own, data, key, shift=toward(own, lam)))

    return method._replace(personal=personal)
