"""One method on one federation, from Python: `fit(...)`, then `personal`, `predict`, `onboard`, `advance`, `save`."""

import html
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece.client.schedule import ENDLESS
from apiece.data import Federation
from apiece.data.labels import check_newcomer
from apiece.engines.engine import Engine, RunState
from apiece.engines.simulation.division import on_host
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment import measure
from apiece.experiment.bench import Bench
from apiece.experiment.checkpoint import save_models
from apiece.experiment.folder import RunFolder
from apiece.experiment.judge import Outcome, judge
from apiece.experiment.metric import metrics_of
from apiece.experiment.partners import Partners, find_partners
from apiece.experiment.privacy import privacy_notes, privacy_of
from apiece.experiment.product import describe_product, write_product
from apiece.experiment.record import PrivacyRecord
from apiece.experiment.spec import Spec, make_spec
from apiece.experiment.steps import shorten_steps
from apiece.experiment.train import Curve, spent, train
from apiece.files import fill_folder
from apiece.methods import CATALOG
from apiece.protocol import Method, Personal


class Fit:
    """A trained method: every client's model, what it cost, and room for new clients.

    >>> from apiece.data import digits
    >>> result = fit("fed_avg", federation=digits(clients=4), rounds=1)
    >>> result.costs["rounds"], result.predict("3", np.zeros((2, 64), np.uint8)).shape
    (1, (2, 10))
    """

    def __init__(
        self, engine: Engine, bench: Bench, spec: Spec, run: RunState, curve: Curve, costs: dict[str, float]
    ) -> None:
        self.engine, self.place, self.run, self.curve, self.costs = engine, bench.place, run, curve, costs
        self._bench, self._spec, self._predict = bench, spec, bench.predict

    @property
    def notes(self) -> list[str]:
        """What a reader of results should know: how examples were scaled, which defaults were too long."""
        return [*self.place.federation.notes, *self._bench.notes, *privacy_notes(self.privacy)]

    @property
    def privacy(self) -> PrivacyRecord | None:
        """The promise of differential privacy that this run keeps, after all its rounds; None: none was asked for."""
        plan = self._bench.plan
        return privacy_of(plan.model_copy(update={"rounds": max(plan.rounds, self.run.round)}), self.place.population)

    def _repr_html_(self) -> str:
        """What a notebook shows: who trained, how far validation came, and what it cost."""
        last, spent = self.curve[-1] if self.curve else {}, self.costs
        sent = (spent.get("bytes_up", 0) + spent.get("bytes_down", 0)) / 1e6
        told = {
            "method": CATALOG.name_of(self._bench.method),
            "federation": f"{self.place.federation.name}, {self.place.population:,} clients",
            "model": self.place.model.name,
            "rounds": f"{self.run.round:,}",
            "validation loss": f"{last['validation_loss']:.4g}" if last else "–",
            "sent, MB": f"{sent:,.2f}",
            "gradients": f"{spent.get('gradients', 0):,.0f}",
        }
        rows = "".join(f"<tr><th>{key}</th><td>{html.escape(str(value))}</td></tr>" for key, value in told.items())
        return f"<table><tbody>{rows}</tbody></table>"

    def personal(self, client_id: str) -> Personal:
        """The model of one client, by its id (also of a new client in the federation)."""
        stacked = self.engine.personal(self.run, np.array([self._number(client_id)]))
        return jax.tree.map(lambda leaf: leaf[0], stacked)

    def predict(self, client: str | Personal, x: np.ndarray) -> np.ndarray:
        """What a client's model (by its id, or the model itself) says of a batch: class scores, or predicted values.

        Examples and values are in the units of the federation that `fit` was given.
        """
        x, given, like = np.asarray(x), self.place.given, self.place.x.shape[1:]
        if x.shape[1:] != like:
            raise UserError(f"a batch of examples of shape {like} is needed; got x {x.shape}")
        batch = jnp.asarray(x) if given is None else jnp.asarray(given.inputs(x), self.place.x.dtype)
        model = self.personal(client) if isinstance(client, str) else client
        said = np.asarray(self._predict(model, batch))
        return said if given is None or not given.of_targets else given.in_own_units(said)

    def partners(self) -> Partners:
        """Who learns from whom, of a method that says so: `of(client)`, `rows`, `groups`, `weights`, `bias`.

        >>> from apiece.data import digits
        >>> found = fit("all_for_all", federation=digits(clients=4), rounds=1, options={"clusters": [0, 1, 0, 1]})
        >>> print(found.partners())
        group 1, 2: 0, 2
        group 2, 2: 1, 3
        """
        report = self.engine.build(self.run.hyper, self.run.round).report
        told = {} if report is None else {name: on_host(value) for name, value in report(self.run.server).items()}
        found = find_partners(self.place.ids[: self.place.population].tolist(), told)
        if found is None:
            name = CATALOG.name_of(self._bench.method)
            raise UserError(f"method '{name}' does not say who learns from whom; 'all_for_all' does")
        return found

    def onboard(self, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen: it enrolls with its own training data; the server is unchanged.

        Labels are the numbers of classes, or their names.
        """
        x, y = check_newcomer(self.place.federation, x, y)
        if (given := self.place.given) is not None:
            x, y = given.inputs(x), given.targets(y) if given.of_targets else y
        return self.engine.onboard(self.run, x, y)

    def evaluate(self) -> dict[str, Any]:
        """The metrics of training clients on validation and test, and of new clients on test."""
        judged, arrays = judge(self.engine, self.place, self.run)
        return measure.metrics(self.place, Outcome(judged, arrays, self.curve, self.costs))

    def advance(self, rounds: int, watch: Callable[[int], None] = lambda rounds: None) -> "Fit":
        """The same, so many rounds later: 5 rounds and 5 more are 10, to the last digit.

        >>> from apiece.data import digits
        >>> fit("fed_avg", federation=digits(clients=4), rounds=1).advance(1).costs["rounds"]
        2
        """
        plan = self._bench.plan
        if rounds < 1:
            raise UserError(f"advance by {rounds} rounds: at least one is needed")
        if plan.stop is not None:
            raise UserError("a run with early stopping ends at its best round, from which it cannot go on; fit it anew")
        if plan.schedule not in ENDLESS:
            raise UserError(f"the step sizes of this run were planned for {plan.rounds} rounds by the schedule "
                            f"'{plan.schedule}', and there is none for more; fit it anew with all rounds")  # fmt: skip
        if plan.private is not None and plan.private.epsilon is not None:
            raise UserError(f"this run has spent its epsilon = {plan.private.epsilon:g} in {plan.rounds} rounds, whose "
                            "noise was made for that number; fit it anew with all rounds")  # fmt: skip
        longer = plan.model_copy(update={"rounds": self.run.round + rounds})
        given = (self.engine, self.place, self.run.hyper, self.run.seed, longer)
        self.run, later, seconds = train(*given, begun=self.run, tick=watch)
        before = self.costs["seconds"]
        self.curve = [*self.curve, *({**look, "seconds": before + look["seconds"]} for look in later)]
        self.costs = {**spent(self.engine, self.run, self.curve), "seconds": before + seconds}
        return self

    def save(self, folder: str | Path) -> Path:
        """Every client's model and all it needs to predict, in a new folder, for `apiece.open`; the data are not in it.

        >>> import tempfile
        >>> from apiece.data import digits
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = fit("fed_avg", federation=digits(clients=4), rounds=1).save(place + "/mine")
        ...     sorted(file.name for file in (folder / "models").iterdir())
        ['fed_avg-0.safetensors', 'product.json']
        """
        name, table = _row_of(self._bench.method, self._bench.options)
        given = {key: getattr(self._spec, key) for key in ("model", "train", "seeds")}
        spec = make_spec({**given, "methods": {name: table}, "baselines": False}, "save")
        product = describe_product(spec, self.place, {name: {}}, name)
        with fill_folder(Path(folder)) as temporary:
            run = RunFolder(temporary)
            write_product(run.product, product)
            save_models(run.models(name, self.run.seed), self.engine, self.place, self.run, math.inf)
        return Path(folder)

    def _number(self, client_id: str) -> int:
        found = np.flatnonzero(self.place.ids == str(client_id))
        return int(found[0]) if len(found) else self.place.federation.index_of(client_id)


def fit(
    method: str | Callable[..., Method],
    model: Any = None,
    federation: Federation | None = None,
    *,
    rounds: int | str = 100,
    seed: int = 0,
    objective: Any = None,
    metrics: Mapping[str, Any] | None = None,
    watch: Callable[[int], None] = lambda rounds: None,
    options: dict[str, Any] | None = None,
    standardize: bool | None = None,
    **how: Any,
) -> Fit:
    """Train a method (a name of the catalog, or a factory of your own) on a federation.

    Args:
        method: the method. options: its options, e.g. {"lam": 1.0}.
        model: a model or its name, anything with init and apply, or a function of (shape, outputs) that makes one;
            default: softmax or linear regression.
        federation: default: the embedded handwritten digits.
        rounds, seed: how long ("auto": until validation rests), and from which seed. how: engine, cohort, probability,
            weights, stateless, schedule, ...
        objective: what to train and judge by, an `Objective` or a function of the model that makes one; default: by
            the federation's task. metrics: {"f1": function of a client's outputs and labels, ...}.
        watch: called with rounds done. standardize: whether examples are brought to unit scale for training; default:
            if they are far from it (`apiece.data.unit_scale`).

    >>> from apiece.data import digits
    >>> result = fit("ditto", federation=digits(clients=8), rounds=2, options={"lam": 0.5})
    >>> result.personal("3")["w"].shape
    (10, 64)
    >>> result.onboard(np.zeros((4, 64), np.uint8), np.array([1, 2, 1, 2]))["b"].shape
    (10,)
    """
    spec = spec_of(model, rounds, [seed], objective, metrics, how)
    bench = open_bench(method, federation, spec, options or {}, standardize)
    bench.check_memory()
    engine, hyper = bench.engine({})
    run, curve, seconds = train(engine, bench.place, hyper, seed, bench.plan, tick=watch)
    return Fit(engine, bench, spec, run, curve, {**spent(engine, run, curve), "seconds": seconds})


def open_bench(
    method: str | Callable[..., Method],
    federation: Federation | None,
    spec: Spec,
    options: dict[str, Any],
    standardize: bool | None = None,
    searched: Collection[str] = (),
) -> Bench:
    """What `fit` and `sweep` work on, from what they are given, as `spec_of` puts it; what is wrong with it is said.

    Step sizes that are not given, nor `searched`, and too long for the clients' curvature by default, are shortened.
    """
    if federation is not None and not isinstance(federation, Federation):
        raise UserError(f"fit needs a Federation, not {federation!r}; apiece.data.source(name) or load(path) makes one")
    federation = federation or setup.federation_of(make_spec({}).data)
    made = setup.model_and_objective(spec.model, federation)
    place = setup.scaled_arena(federation, *made, metrics_of(spec.metrics), standardize)
    bench = Bench(place, method, options, spec.train)
    shorter = shorten_steps(bench, {*options, *searched}, spec.seeds[0])
    if not shorter:
        return bench
    told = ", ".join(f"{name} = {value:g}" for name, value in shorter.items())
    notes = (f"{told} instead of the default, which is too long for the curvature of the clients' rows",)
    return Bench(place, method, {**options, **shorter}, spec.train, notes)


def spec_of(
    model: Any,
    rounds: int | str,
    seeds: list[int],
    objective: Any,
    metrics: Mapping[str, Any] | None,
    how: dict[str, Any],
) -> Spec:
    """The spec of what was given, but for the method and the data."""
    wanted = {"name": "auto" if model is None else model, "objective": objective}
    given = {"model": wanted, "train": {"rounds": rounds, **how}, "seeds": seeds, "metrics": dict(metrics or {})}
    return make_spec(given, "fit")


def _row_of(method: str | Callable[..., Method], options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(name, table) of a method as the row of a spec; one's own with a name of the catalog has another."""
    name = CATALOG.name_of(method).rpartition(":")[2]
    if name in CATALOG and CATALOG.find(method) is CATALOG[name]:
        return name, dict(options)
    return (f"own-{name}" if name in CATALOG else name), {"method": method, **options}
