"""One method on one federation, from Python: `fit(...)`, then `personal`, `predict`, `onboard`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece.data import Federation
from apiece.data.labels import check_newcomer
from apiece.engines.engine import Engine, RunState
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment import measure
from apiece.experiment.bench import Bench
from apiece.experiment.judge import Outcome, judge
from apiece.experiment.metric import metrics_of
from apiece.experiment.spec import make_spec
from apiece.experiment.train import Curve, spent, train
from apiece.protocol import Method, Personal


class Fit:
    """A trained method: every client's model, what it cost, and room for new clients.

    >>> from apiece.data import digits
    >>> result = fit("fed_avg", federation=digits(clients=4), rounds=1)
    >>> result.costs["rounds"], result.predict("3", np.zeros((2, 64), np.uint8)).shape
    (1, (2, 10))
    """

    def __init__(self, engine: Engine, bench: Bench, run: RunState, curve: Curve, costs: dict[str, float]) -> None:
        self.engine, self.place, self.run, self.curve, self.costs = engine, bench.place, run, curve, costs
        self._predict = bench.predict

    def personal(self, client_id: str) -> Personal:
        """The model of one client, by its id (also of a new client in the federation)."""
        stacked = self.engine.personal(self.run, np.array([self._number(client_id)]))
        return jax.tree.map(lambda leaf: leaf[0], stacked)

    def predict(self, client: str | Personal, x: np.ndarray) -> np.ndarray:
        """What a client's model (by its id, or the model itself) says of a batch: class scores, or predicted values."""
        batch, like = jnp.asarray(x), self.place.x.shape[1:]
        if batch.shape[1:] != like:
            raise UserError(f"a batch of examples of shape {like} is needed; got x {batch.shape}")
        model = self.personal(client) if isinstance(client, str) else client
        return np.asarray(self._predict(model, batch))

    def onboard(self, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen: it enrolls with its own training data; the server is unchanged.

        Labels are the numbers of classes, or their names.
        """
        return self.engine.onboard(self.run, *check_newcomer(self.place.federation, x, y))

    def evaluate(self) -> dict[str, Any]:
        """The metrics of training clients on validation and test, and of new clients on test."""
        judged, arrays = judge(self.engine, self.place, self.run)
        return measure.metrics(self.place, Outcome(judged, arrays, self.curve, self.costs))

    def _number(self, client_id: str) -> int:
        found = np.flatnonzero(self.place.ids == str(client_id))
        return int(found[0]) if len(found) else self.place.federation.index_of(client_id)


def fit(
    method: str | Callable[..., Method],
    model: Any = None,
    federation: Federation | None = None,
    *,
    rounds: int = 100,
    seed: int = 0,
    objective: Any = None,
    metrics: Mapping[str, Any] | None = None,
    watch: Callable[[int], None] = lambda rounds: None,
    options: dict[str, Any] | None = None,
    **how: Any,
) -> Fit:
    """Train a method (a name of the catalog, or a factory of your own) on a federation.

    Args:
        method: the method. options: its options, e.g. {"lam": 1.0}.
        model: a model or its name, anything with init and apply, or a function of (shape, outputs) that makes one;
            default: softmax or linear regression.
        federation: default: the embedded handwritten digits.
        rounds, seed: how long, and from which seed. how: engine, cohort, probability, weights, stateless, schedule, ...
        objective: what to train and judge by, an `Objective` or a function of the model that makes one; default: by
            the federation's task. metrics: {"f1": function of a client's outputs and labels, ...}.
        watch: called with rounds done.

    >>> from apiece.data import digits
    >>> result = fit("ditto", federation=digits(clients=8), rounds=2, options={"lam": 0.5})
    >>> result.personal("3")["w"].shape
    (10, 64)
    >>> result.onboard(np.zeros((4, 64), np.uint8), np.array([1, 2, 1, 2]))["b"].shape
    (10,)
    """
    bench = open_bench(method, model, federation, rounds, [seed], objective, metrics, options or {}, how)
    bench.check_memory()
    engine, hyper = bench.engine({})
    run, curve, seconds = train(engine, bench.place, hyper, seed, bench.plan, tick=watch)
    return Fit(engine, bench, run, curve, {**spent(engine, run, curve), "seconds": seconds})


def open_bench(
    method: str | Callable[..., Method],
    model: Any,
    federation: Federation | None,
    rounds: int,
    seeds: list[int],
    objective: Any,
    metrics: Mapping[str, Any] | None,
    options: dict[str, Any],
    how: dict[str, Any],
) -> Bench:
    """What `fit` and `sweep` work on, from what they are given; whatever is wrong with it is said here."""
    if federation is not None and not isinstance(federation, Federation):
        raise UserError(f"fit needs a Federation, not {federation!r}; apiece.data.source(name) or load(path) makes one")
    federation = federation or setup.federation_of(make_spec({}).data)
    wanted = {"name": "auto" if model is None else model, "objective": objective}
    given = {"model": wanted, "train": {"rounds": rounds, **how}, "seeds": seeds, "metrics": dict(metrics or {})}
    spec = make_spec(given, "fit")
    made = setup.model_and_objective(spec.model, federation)
    return Bench(setup.arena(federation, *made, metrics=metrics_of(spec.metrics)), method, options, spec.train)
