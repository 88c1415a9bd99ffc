"""What is spent, counted by the judge: every round and every question of every engine, in passes over the data.

A *pass* is the arithmetic of one gradient over everybody's training rows. The work of a visit or a question is read off
its traced program (products of matrices, loops multiplied out), so that no advisor has to be believed: full batches,
small ones, exact solutions and forward passes are all counted in the same unit.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from apiece.data import Federation
from apiece.engines.engine import Engine, RunState
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.experiment import train
from apiece.experiment.build import model_and_objective
from apiece.experiment.spec_tables import ModelSpec
from apiece.models import objective
from apiece.protocol import Batch, Data, Question

ENGINES = (Vectorized, Remote, Asynchronous)
UNKNOWN_LOOP = 10  # times that a loop is counted whose length only the run tells


class BudgetSpent(RuntimeError):
    """More was spent than was allowed; no advice is worth more.

    >>> issubclass(BudgetSpent, RuntimeError)
    True
    """


class Meter:
    """Passes spent so far; above `limit` it raises."""

    def __init__(self, unit: float, limit: float = math.inf) -> None:
        self.unit, self.limit, self._work = max(unit, 1.0), limit, 0.0
        self._known: dict[Any, float] = {}
        self._held: list[Any] = []

    @property
    def passes(self) -> float:
        """What was spent, in passes."""
        return self._work / self.unit

    def add(self, work: float) -> None:
        """So much work more."""
        self._work += work
        if self.passes > self.limit:
            raise BudgetSpent(f"{self.passes:,.0f} passes over the data were spent, and {self.limit:,.0f} are allowed")

    def visits(self, engine: Engine, run: RunState, rounds: int) -> None:
        """So many rounds of an engine; who has no memory enrolls first: once or, if nothing is kept, always."""
        visits = rounds * (engine.places if isinstance(engine, Vectorized) else engine.population)
        forgets = engine.build(run.hyper, 0).forgets
        enrolled = visits if forgets else engine.population if run.round == 0 else 0
        self.add(visits * self._of_visit(engine, run, "local") + enrolled * self._of_visit(engine, run, "enroll"))

    def looks(self, engine: Engine, run: RunState, clients: int) -> None:
        """So many clients make the model that they use."""
        self.add(clients * self._of_visit(engine, run, "personal"))

    def question(self, engine: Engine, question: Question, message: Any, clients: int) -> None:
        """A question to so many clients."""
        key = (id(engine), question.answer, str(jax.tree.map(np.shape, message)))
        if key not in self._known:
            self._held.append(engine)
            data = _typical(engine)
            made = jax.make_jaxpr(lambda message, x, y, key: question.answer(message, data(x, y), key))
            self._known[key] = work_in(made(message, *_shapes(engine), jax.random.key(0)))
        self.add(clients * self._known[key])

    def _of_visit(self, engine: Engine, run: RunState, part: str) -> float:
        """The work of one part of a visit: "enroll", "local" or "personal"."""
        key = (id(engine), part)
        if key not in self._known:
            self._held.append(engine)  # so that no other engine gets its number
            data, method, random = _typical(engine), engine.build(run.hyper, 0), jax.random.key(0)

            def arrive(params: Any, x: Any, y: Any) -> Any:
                message = method.message(method.init(params, random), np.int32(0))
                return message, method.enroll(params, message, data(x, y), random)

            def visit(client: Any, message: Any, x: Any, y: Any) -> Any:
                return (method.personal if part == "personal" else method.local)(client, message, data(x, y), random)

            given = (run.params, *_shapes(engine))
            if part == "enroll":
                self._known[key] = work_in(jax.make_jaxpr(arrive)(*given))
            else:
                message, client = jax.eval_shape(arrive, *given)
                self._known[key] = work_in(jax.make_jaxpr(visit)(client, message, *given[1:]))
        return self._known[key]


def _typical(engine: Engine) -> Any:
    size = max(1, round(float(np.mean(engine.sizes[: engine.population]))))
    return lambda x, y: Data(x, y, 0, size, size)


def _shapes(engine: Engine) -> tuple[Any, Any]:
    x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), engine.example)
    return x, y


def work_in(closed: Any) -> float:
    """Multiplications in products of matrices of a traced program, loops multiplied out, of branches the dearest.

    >>> import jax.numpy as jnp
    >>> twice = lambda a: jax.lax.scan(lambda b, _: (a @ b, None), a, None, length=2)[0]
    >>> work_in(jax.make_jaxpr(twice)(jnp.zeros((3, 3))))
    54.0
    """
    total = 0.0
    for equation in getattr(closed, "jaxpr", closed).eqns:
        name, parameters = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
            continue
        if name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(kernel[1:])
            continue
        inner = [value for value in parameters.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
        count = sum(map(work_in, inner))
        if name == "cond":
            count = max(map(work_in, parameters["branches"]))
        elif name == "scan":
            count *= parameters["length"]
        elif name == "while":
            count *= UNKNOWN_LOOP
        total += count
    return total


def unit_of(federation: Federation, model: Any = None) -> float:
    """The work of one gradient over everybody's training rows."""
    made, own = model_and_objective(ModelSpec(name="auto" if model is None else model), federation)
    loss = (own or objective(made, federation.task)).loss
    rows, train = federation.train.rows, federation.train
    shape = lambda array: jax.ShapeDtypeStruct((rows, *array.shape[1:]), jax.dtypes.canonicalize_dtype(array.dtype))
    params = jax.eval_shape(made.init, jax.random.key(0))
    of = lambda params, x, y: loss(params, Batch(x, y, np.ones(rows, np.float32)), jax.random.key(0))
    return max(work_in(jax.make_jaxpr(jax.grad(of))(params, shape(train.x), shape(train.y))), 1.0)


@contextlib.contextmanager
def metered(federation: Federation, model: Any = None, limit: float = math.inf) -> Iterator[Meter]:
    """All that engines do inside of the block is counted; above `limit` passes it raises `BudgetSpent`."""
    meter = Meter(unit_of(federation, model), limit)
    kept: list[tuple[Any, str, Any]] = []

    def replace(place: Any, name: str, make: Any) -> None:
        kept.append((place, name, place.__dict__[name]))
        setattr(place, name, make(getattr(place, name)))

    def advanced(original: Any) -> Any:
        def advance(self: Engine, run: RunState, rounds: int) -> RunState:
            meter.visits(self, run, rounds)
            return original(self, run, rounds)

        return advance

    def together(original: Any) -> Any:
        def advance(engine: Vectorized, runs: Sequence[RunState], rounds: int, width: int) -> Any:
            for run in runs:
                meter.visits(engine, run, rounds)
            return original(engine, runs, rounds, width)

        return advance

    def asked(original: Any) -> Any:
        def ask(self: Engine, question: Question, message: Any = (), ids: Any = None, part: str = "train") -> Any:
            meter.question(self, question, message, self.population if ids is None else len(ids))
            return original(self, question, message, ids, part)

        return ask

    def judged(original: Any) -> Any:
        def outcomes(self: Engine, run: RunState, ids: Any, *rest: Any, **more: Any) -> Any:
            meter.looks(self, run, len(ids))
            return original(self, run, ids, *rest, **more)

        return outcomes

    try:
        for kind in ENGINES:
            replace(kind, "advance", advanced)
        for name, make in (("ask", asked), ("outcomes", judged)):
            homes = [next(each for each in kind.__mro__ if name in each.__dict__) for kind in ENGINES]
            for home in dict.fromkeys(homes):
                replace(home, name, make)
        replace(train, "advance_together", together)
        yield meter
    finally:
        for place, name, original in reversed(kept):
            setattr(place, name, original)
