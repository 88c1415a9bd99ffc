"""The protocol: a method is six pure functions, cut where the network cuts.

Read aloud: the server opens a state (`init`); shows each client its view (`message`); a client without memory
enrolls (`enroll`); it works and answers (`local`); the server merges the answers (`merge`); and at any time a client
can say which model it uses (`personal`). Engines run these functions: in one compiled program, client by client over
bytes, or across machines. A method never knows which.

The contract. Each line is a test that every method of the catalog passes on every engine (`apiece.testing`):

1. Pure functions of pytrees of arrays; a state comes out with the structure, shapes and dtypes it went in with.
   Hyper-parameters are keyword-only arguments of the factory and may be traced.
2. A client function sees its own state, one message and its own data; a server function sees no data and no client
   state. Message and reply are the only channel. What an option `private` names stays with the client.
3. The server's randomness is spent in `init` and `merge`. A client's key comes from who and when
   (`fold_in(fold_in(key, round), i)`), never from order. A key is used once.
4. A reply is an update (a difference, a gradient) of all that is shared, where it can be, so that it still means
   something when late. A method whose reply cannot be one says so in its docstring, in a line that begins with `Late:`.
5. Rows beyond a client's size are never read; replies of weight 0 never matter.
6. Permuting the cohort changes nothing but rounding.
7. Forgetting is legal: an engine may re-enroll a client each round. What is kept from visit to visit is of use: replies
   or models depend on it.
8. `params` in `enroll` is the initial model, which every party builds from the spec and the seed; it is never sent.
9. A client's state is committed when its reply counted. A reply that was late, lost or refused leaves the client as it
   was before (without memory, if it had none), so that server and client never have different pasts. What is the
   client's own progress, and nobody else's, a method may keep all the same: `keep(before, after)`.

Four more functions are optional. `predict(apply, personal, x)` says how a client predicts, where its personal model is
more than the parameters of one model (a mixture, a memory beside a model); what it needs, traced hyper-parameters too,
is in the personal model, which is all that is saved. `keep` is in line 9. `merge_counted` is `merge` for a method, or a
wrapper, that refuses replies: it tells as well whose replies counted. `report(server)` gives numbers by name that say
what the method does (the strength of a pull, weights of others): they are kept, look by look. And a word: `forgets`
says that `enroll` reads the initial model alone and that work leaves what it gives as it is; engines then keep nothing
of a client, and enroll it whenever they need it.

The smallest complete method, one gradient step averaged, run by hand for one round of two clients:

>>> import jax, jax.numpy as jnp
>>> from apiece.protocol import Cohort, Data, Method
>>> def gradient_averaging(lr=0.5):
...     def local(client, x, data, key):
...         return client, x - data.y[data.start]               # the gradient of |x - y|^2 / 2
...     def merge(x, replies, cohort, key):
...         share = cohort.weight / cohort.weight.sum()
...         return x - lr * share @ replies
...     return Method(init=lambda params, key: params, message=lambda x, i: x, merge=merge,
...                   enroll=lambda params, x, data, key: (), local=local,
...                   personal=lambda client, x, data, key: x)
>>> method, key = gradient_averaging(), jax.random.key(0)
>>> y = jnp.array([1.0, 3.0])
>>> server = method.init(jnp.array(0.0), key)
>>> replies = jnp.stack([method.local((), method.message(server, i), Data(y, y, i, 1), key)[1] for i in (0, 1)])
>>> cohort = Cohort(ids=jnp.array([0, 1]), weight=jnp.ones(2), delay=jnp.zeros(2, int), population=2)
>>> float(method.merge(server, replies, cohort, key))
1.0
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

# fmt: off
__all__ = [
    "Method", "Data", "Batch", "Cohort", "Question",
    "Tree", "Params", "Server", "Message", "Client", "Reply", "Personal", "Apply", "Loss",
    "apply_model", "keep_work", "merge_replies", "trained_as", "with_merge",
]
# fmt: on

Tree = Any  # a pytree of arrays; a type checker can know no more
Params = Tree
Server = Tree
Message = Tree
Client = Tree
Reply = Tree
Personal = Tree  # what `personal` gives: the parameters of a model, unless the method has its own `predict`
Apply = Callable[[Params, Tree], Tree]  # (params, x) -> outputs: the model


@partial(jax.tree_util.register_dataclass, data_fields=["x", "y", "start", "size"], meta_fields=["capacity"])
@dataclasses.dataclass(frozen=True)
class Data:
    """One client's examples: a view into the flat arrays of everybody's.

    `x` and `y` are pytrees of arrays with all clients' examples along axis 0; this client owns the `size` rows from
    `start` on. `capacity` (static) is the size of the largest client, which bounds a full-batch view; None: unknown.

    >>> import numpy as np
    >>> mine = Data(x=np.arange(10.0), y=np.arange(10), start=4, size=3)
    >>> mine.y[mine.start : mine.start + mine.size].tolist()
    [4, 5, 6]
    """

    x: Tree
    y: Tree
    start: Any
    size: Any
    capacity: int | None = None


class Batch(NamedTuple):
    """What a loss sees: examples, and their weights (0 = not there; the weights of a batch sum to its true size).

    >>> import numpy as np
    >>> batch = Batch(x=np.ones((2, 3)), y=np.array([1.0, 5.0]), weight=np.array([1.0, 0.0]))
    >>> float((batch.weight * batch.y).sum() / batch.weight.sum())
    1.0
    """

    x: Tree
    y: Tree
    weight: Any


Loss = Callable[[Params, Batch, Any], Any]  # (params, batch, key) -> the weighted mean loss over the batch


class Cohort(NamedTuple):
    """Who answered. `weight` 0 means: ignore this row; `delay` is in server versions.

    >>> import numpy as np
    >>> cohort = Cohort(np.array([3, 7]), weight=np.array([20.0, 0.0]), delay=np.zeros(2, int), population=10)
    >>> cohort.ids[cohort.weight > 0].tolist()
    [3]
    """

    ids: Any
    weight: Any
    delay: Any
    population: Any


class Question(NamedTuple):
    """A pooled query: what is asked of clients beside a method (scales, fills, curvature, losses of candidates, ...).

    `answer(message, data, key)` is a pure client function that gives a small tree. Answers come back summed over the
    clients or, if `stacked`, one row a client: sums tell less about each.

    >>> import numpy as np
    >>> how_many = Question(lambda message, data, key: np.int32(data.size))
    >>> how_many.stacked
    False
    """

    answer: Callable[[Message, Data, Any], Tree]
    stacked: bool = False


def apply_model(apply: Apply, personal: Personal, x: Tree) -> Tree:
    """How a client predicts, if its method says nothing else: the personal model is the model's parameters.

    >>> apply_model(lambda params, x: params * x, 2.0, 3.0)
    6.0
    """
    return apply(personal, x)


def keep_work(before: Client, after: Client) -> Client:
    """What a client keeps of work whose reply did not count, where its state is its own progress: all of it.

    >>> keep_work("before", "after")
    'after'
    """
    return after


def trained_as(loss: Loss, other: Loss) -> Loss:
    """Another loss, made of this one, trained in the same way: through the client's optimizer, if there is one.

    >>> loss = lambda params, batch, key: params**2
    >>> trained_as(loss, lambda params, batch, key: loss(params, batch, key) + 1)(2.0, None, None)
    5.0
    """
    over = getattr(loss, "over", None)
    return other if over is None else over(other)


class Method(NamedTuple):
    """Six pure functions, four that are optional, and a word; the contract is in this module's text.

    >>> Method._fields[:6]
    ('init', 'message', 'merge', 'enroll', 'local', 'personal')
    """

    init: Callable[[Params, Any], Server]
    message: Callable[[Server, Any], Message]
    merge: Callable[[Server, Reply, Cohort, Any], Server]
    enroll: Callable[[Params, Message, Data, Any], Client]
    local: Callable[[Client, Message, Data, Any], tuple[Client, Reply]]
    personal: Callable[[Client, Message, Data, Any], Personal]
    predict: Callable[[Apply, Personal, Tree], Tree] = apply_model
    keep: Callable[[Client, Client], Client] | None = None
    merge_counted: Callable[[Server, Reply, Cohort, Any], tuple[Server, Any]] | None = None
    report: Callable[[Server], dict[str, Any]] | None = None
    forgets: bool = False


def merge_replies(method: Method, server: Server, replies: Reply, cohort: Cohort, key: Any) -> tuple[Server, Any]:
    """(server after the merge, whose replies counted): what engines and wrappers call.

    >>> import numpy as np
    >>> method = Method(*[None] * 2, lambda x, replies, cohort, key: x + replies.sum(), *[None] * 3)
    >>> cohort = Cohort(np.arange(2), weight=np.array([1.0, 0.0]), delay=np.zeros(2, int), population=2)
    >>> merge_replies(method, 1.0, np.array([2.0, 0.0]), cohort, None)[1].tolist()
    [True, False]
    """
    if method.merge_counted is not None:
        return method.merge_counted(server, replies, cohort, key)
    return method.merge(server, replies, cohort, key), cohort.weight > 0


def with_merge(
    method: Method, merge: Callable[..., tuple[Server, Any]], *, refuses: bool = False, **others: Any
) -> Method:
    """The method with another merge, one that tells whose replies counted; and other functions, if any.

    `refuses`: it refuses replies itself; else whoever has weight counts, unless the method's own merge refuses some.

    >>> refusing = with_merge(Method(*[None] * 6), lambda x, replies, cohort, key: (x, replies < 9), refuses=True)
    >>> refusing.merge("as it was", 3, None, None), refusing.merge_counted("as it was", 3, None, None)[1]
    ('as it was', True)
    """
    tells = merge if refuses or method.merge_counted is not None else None
    if "init" in others and method.report is not None:  # the server's state is another now
        others.setdefault("report", None)
    return method._replace(merge=lambda *given: merge(*given)[0], merge_counted=tells, **others)
