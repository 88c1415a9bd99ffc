"""Everything that a spec names, made and fitted together before anything is written or trained."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from apiece import tree
from apiece.client.schedule import schedule
from apiece.data import Federation
from apiece.engines.contact import model_shapes
from apiece.errors import UserError
from apiece.experiment.build import (
    Arena,
    federation_of,
    keeps_memories,
    model_and_objective,
    optimizer_of,
    scaled_arena,
    scaling_wanted,
    with_new_clients,
)
from apiece.experiment.criterion import criterion_of, named_metrics
from apiece.experiment.fits import check_disk, check_memory
from apiece.experiment.metric import metrics_of
from apiece.experiment.privacy import check_privacy
from apiece.experiment.secure import check_secure
from apiece.experiment.spec import Spec
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.variant import Variant
from apiece.experiment.world import arrivals_of, participation_of, wrap_method
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.own import raised_in
from apiece.protocol import Cohort, Data, Method, Params, merge_replies
from apiece.testing.same import check_like


def check_spec(spec: Spec, federation: Federation | None = None, tested: bool = True) -> Arena:
    """Everything a spec names (or with a federation at hand), made and fitted together, before anything is written.

    `tested`: whether test examples will be looked at, so that there must be some.
    """
    federation = federation_of(spec.data) if federation is None else with_new_clients(federation, spec.data)
    if tested and not federation.test.rows:
        raise UserError(f"{federation.name} has no test examples to compare methods on; give test a share")
    if not federation.validation.rows and spec.tune > 1:
        raise UserError(
            f"{federation.name} has no validation examples to tune on; give validation a share, or tune = 1"
        )
    if not federation.validation.rows and spec.train.until_rest:
        raise UserError(f"{federation.name} has no validation examples to see on whether a run has come to rest; give "
                        "validation a share, or train.rounds a number")  # fmt: skip
    model, own = model_and_objective(spec.model, federation)
    metrics = metrics_of({**spec.metrics, **named_metrics(spec, federation, own is not None)})
    place = scaled_arena(federation, model, own, metrics, scaling_wanted(spec.data))
    place = place._replace(asked=criterion_of(spec, federation, place.score, metrics, own is not None))
    participation_of(spec.train).places(place.population)
    if spec.train.arrivals is not None:
        arrivals_of(spec.train.arrivals).journal(0, place.population, 1)  # says what does not fit the clients
    schedule(spec.train.schedule, spec.train.rounds, **spec.train.schedule_options)
    for row in spec.rows.values():
        try:
            _check_row(row, spec.train, place)
        except (UserError, KeyboardInterrupt):
            raise
        except Exception as error:  # a method of the user's own
            raise UserError(f"method '{row.name}' fails before its first round: {raised_in(error)}") from error
    place.check_own_objective()
    return place


def _check_row(row: Variant, train: TrainSpec, place: Arena) -> None:
    options = row.options | row.points(1)[0]
    plan = None if train.schedule == "constant" else schedule(train.schedule, train.rounds, **train.schedule_options)
    given = (place.objective.loss, options, plan, place.population, place.model)
    build, hyper = bind(row.method, *given, scheduled=train.scheduled)  # also whether a schedule finds a step size
    unwrapped = build(hyper, 0)
    if isinstance(unwrapped, Method):
        shapes = (place.model.init, place.client_shapes(), place.population)
        check_privacy(CATALOG.name_of(row.method), unwrapped, train, *shapes)
        check_secure(CATALOG.name_of(row.method), unwrapped, train, *shapes)
    method = wrap_method(build, train, place.population, place.client_shapes())(hyper, 0)
    if not isinstance(method, Method):
        raise UserError(f"method '{row.name}': its factory gives no apiece.Method, but {method!r}")
    # A method that does not fit the model or the labels (a split that leaves nothing to share, no single answer to
    # remember) says so when it opens its state, or when a client enrolls.
    params = jax.eval_shape(place.model.init, jax.random.key(0))
    model_shapes(method, params, (place.x, place.y), int(place.sizes("train").max()))
    if row.method not in CATALOG.own:
        _check_shapes(row, method, place)
    check_memory(row.name, method, place, train)
    check_disk(row.name, method, place, train)
    if train.optimizer is not None:
        _check_optimizer(row, options, train, place)


def _check_shapes(row: Variant, method: Method, place: Arena) -> None:
    """A stranger's method, one round of it in the abstract: line 1 of the contract, before anything is trained."""
    key = jax.random.key(0)

    def round_of_two(params: Params, data: Data) -> tuple:
        server = method.init(params, key)
        message = method.message(server, jnp.int32(0))
        client = method.enroll(params, message, data, key)
        after, reply = method.local(client, message, data, key)
        ids, delay = jnp.arange(2, dtype=jnp.int32), jnp.zeros(2, jnp.int32)
        cohort = Cohort(ids, jnp.ones(2), delay, jnp.int32(place.population))
        merged = merge_replies(method, server, tree.stack([reply, reply]), cohort, key)[0]
        return server, merged, client, after

    server, merged, client, after = jax.eval_shape(round_of_two, *_one_client(place))
    try:
        check_like("the server's state after merge", merged, server)
        check_like("a client's state after local", after, client)
    except AssertionError as error:
        raise UserError(f"method '{row.name}' breaks line 1 of the contract, a state comes out as it went in: "
                        f"{error}") from None  # fmt: skip


def _one_client(place: Arena) -> tuple[Params, Data]:
    """The shapes of a model, and of a client's data."""
    return jax.eval_shape(place.model.init, jax.random.key(0)), place.client_shapes()


def _check_optimizer(row: Variant, options: dict[str, Any], train: TrainSpec, place: Arena) -> None:
    """A method that does not train by `descend` would take its own steps, and the optimizer silently do nothing."""
    optimizer, trainings = optimizer_of(train), 0

    def init(params: Params) -> Any:
        nonlocal trainings
        trainings += 1
        return optimizer.init(params)

    counting = optax.GradientTransformation(init, optimizer.update)
    how: dict[str, Any] = dict(optimizer=counting, keep=keeps_memories(train))
    build, hyper = bind(row.method, place.objective.loss, options, None, place.population, place.model, **how)
    method, key = build(hyper, 0), jax.random.key(0)

    def visit(params: Params, data: Data) -> Any:
        message = method.message(method.init(params, key), jnp.int32(0))
        return method.local(method.enroll(params, message, data, key), message, data, key)

    try:
        jax.eval_shape(visit, *_one_client(place))
    except jax.errors.UnexpectedTracerError:
        raise UserError(f"method '{row.name}' trains inside of a loop of its own, so that its clients cannot keep the "
                        "memories of an optimizer; leave train.optimizer.keep out") from None  # fmt: skip
    if not trainings:
        raise UserError(f"method '{row.name}' takes steps of its own, which no optimizer can replace; leave "
                        "train.optimizer or this method out")  # fmt: skip
