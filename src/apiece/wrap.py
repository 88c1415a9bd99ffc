"""Method -> Method: variations by composition."""

import optax

from apiece import tree
from apiece.local import descend, toward
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree


def fine_tuned(
    method: Method,
    loss: Loss,
    *,
    steps: Tree = 20,
    epochs: Tree | None = 10,
    lr: Tree = 0.1,
    batch: int = 32,
    lam: Tree = 0.0,
) -> Method:
    """The same training; each client then fine-tunes the model it would have used, on its own training data.

    With `lam` > 0 the fine-tuning minimizes L_i(p) + lam/2 |p - p_0|^2 (ridge): p_0 is the model it starts from.
    Nothing is sent and nothing is kept beyond what `method` sends and keeps.

    >>> from apiece.methods import fed_avg
    >>> loss = lambda params, batch, key: 0.0
    >>> fine_tuned(fed_avg(loss), loss, epochs=5, lam=0.1).personal.__name__
    'personal'
    """

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        start = method.personal(client, message, data, key)
        return descend(loss, start, data, key, steps=steps, epochs=epochs, lr=lr, batch=batch, shift=toward(start, lam))

    return method._replace(personal=personal)


def server_optimized(method: Method, optimizer: optax.GradientTransformation) -> Method:
    """The same clients; the server takes the step it would have taken as (minus) a gradient for any optax optimizer.

    For methods whose server state is the shared model.

    >>> from apiece.methods import fed_avg
    >>> wrapped = server_optimized(fed_avg(lambda params, batch, key: 0.0), optax.sgd(1.0))
    >>> wrapped.message(("model", "memory"), 0)
    'model'
    """

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        x, memory = server
        gradient = tree.sub(x, method.merge(x, replies, cohort, key))
        move, memory = optimizer.update(gradient, memory, x)
        return optax.apply_updates(x, move), memory

    def init(params: Params, key: Tree) -> Server:
        x = method.init(params, key)
        return x, optimizer.init(x)

    return method._replace(init=init, message=lambda server, i: method.message(server[0], i), merge=merge)
