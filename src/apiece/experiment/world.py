"""A spec's world: who takes part, when replies arrive, who forges or breaks them, and what the server does about it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from apiece.aggregate import rule
from apiece.client.optimize import make_optimizer
from apiece.engines.contact import Build, visit_shapes
from apiece.engines.world.arrivals import Arrivals, Delays, Recorded, Speeds
from apiece.engines.world.cohort import Availability, Participation
from apiece.engines.world.pace import Pace
from apiece.errors import UserError
from apiece.experiment.privacy import noised_by
from apiece.experiment.spec_tables import ArrivalsSpec, PaceSpec, ServerSpec, TrainSpec
from apiece.own import import_thing
from apiece.protocol import Data, Method, Params, Reply
from apiece.wrap import attacked, attackers, compressed, corrupted, guarded, robust, server_optimized
from apiece.wrap.attacks import attack as attack_named

Like = Callable[[Params], Reply] | None  # what a reply looks like, from the initial model


def participation_of(train: TrainSpec) -> Participation:
    """Who takes part, and when.

    >>> participation_of(TrainSpec(cohort=3)).size
    3
    """
    own = train.participation
    chosen = import_thing(own, "participation") if isinstance(own, str) else own
    if chosen is not None and not callable(chosen):
        raise UserError(f"train.participation is a function of (seed, round, number of clients), not {chosen!r}")
    said = train.availability.model_dump() if train.availability else {}
    there = Availability(**said | {"given": tuple(map(tuple, said.get("given", ())))})
    return Participation(train.cohort, train.probability, there, chosen, exact=train.private is not None)


def arrivals_of(spec: ArrivalsSpec) -> Arrivals:
    """When replies arrive: by clients' speeds, by given delays, or as they were recorded.

    >>> arrivals_of(ArrivalsSpec(delays=[0, 3])).in_flight()
    4
    """
    if spec.delays and spec.recorded:
        raise UserError("train.arrivals.delays and train.arrivals.recorded exclude each other; give one")
    if spec.delays:
        return Delays(tuple(spec.delays), tuple(spec.clients), spec.buffer)
    if spec.recorded:
        columns = read_columns(Path(spec.recorded), ("client", "began", "ended"))
        client = tuple(int(i) for i in columns["client"])
        return Recorded(client, tuple(columns["began"]), tuple(columns["ended"]), spec.buffer)
    return Speeds(spec.active, spec.buffer, spec.policy, pace_of(spec.pace))


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[float]]:
    """Columns of numbers of a .csv or .parquet file; a `UserError` names the file, or the column that is missing."""
    if not path.is_file():
        raise UserError(f"there is no file '{path}'")
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
        if lost := [name for name in names if name not in table.column_names]:
            raise UserError(f"'{path}' has no column '{lost[0]}'; it has {', '.join(table.column_names)}")
        return {name: [float(value) for value in table[name].to_pylist()] for name in names}
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read as columns of numbers: {error}") from None


def pace_of(spec: PaceSpec) -> Pace:
    """How long clients take."""
    return Pace(spec.law, spec.spread, tuple(spec.times), spec.jitter)


def wrap_method(build: Build, train: TrainSpec, population: int, client: Data | None = None) -> Build:
    """The method as the spec's world treats it: attacked, its replies broken, and defended.

    `client`, the shapes of a client's data, tells what replies look like: some attacks and rules remember them.

    >>> build = lambda hyper, round: None
    >>> wrap_method(build, TrainSpec(), 10) is build
    True
    """
    attack, defence, faults = train.attack, train.defence, train.faults
    wraps: list[Callable[[Method, Like], Method]] = []  # from the inside out
    if defence is not None and defence.rule is not None:
        chosen = rule(defence.rule, **defence.options)
        wraps.append(lambda method, reply: robust(method, chosen, reply=reply))
    if defence is not None and defence.most is not None:
        most = defence.most
        wraps.append(lambda method, reply: guarded(method, most=most))
    if train.server is not None:
        chosen_by, where = server_optimizer(train.server), train.server.model
        wraps.insert(0, lambda method, reply: server_optimized(method, chosen_by, where))
    if faults is not None and faults.corrupt:
        share, kind = faults.corrupt, faults.corruption
        wraps.append(lambda method, reply: corrupted(method, share=share, kind=kind))
    if attack is not None:
        forge = attack_named(attack.name, **attack.options)
        who = attackers(attack.clients, attack.share, population)
        if who and who[-1] >= population:
            raise UserError(f"train.attack.clients names client {who[-1]}, but {population} clients train")
        whom: dict[str, Any] = dict(clients=attack.clients, share=attack.share, population=population)
        wraps.append(lambda method, reply: attacked(method, forge, reply=reply, **whom))
    if train.private is not None:
        wraps.insert(1 if train.server is not None else 0, noised_by(train, population))
    if train.compress is not None:  # outermost: whatever looks at replies looks at what came through
        shorter = train.compress
        wraps.append(lambda method, reply: compressed(method, shorter.kind, share=shorter.share))
    if not wraps:
        return build
    check_buffer(train)

    def wrapped(hyper: dict[str, Any], round: Any) -> Method:
        method = build(hyper, round)
        reply = None if client is None else partial(_blank_reply, method, client)
        for wrap in wraps:
            method = wrap(method, reply)
        return method

    return wrapped


def _blank_reply(method: Method, client: Data, params: Params) -> Reply:
    _, found = visit_shapes(method, params, (client.x, client.y), client.capacity or 1)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), found)


def check_buffer(train: TrainSpec) -> None:
    """A merge of a single reply leaves a rule nothing to choose from, and an attacker nobody to look at.

    >>> alone = {"arrivals": {"active": 4}, "defence": {"rule": "median"}}
    >>> try: check_buffer(TrainSpec.model_validate(alone))
    ... except UserError as error: print(str(error)[:78])
    train.defence.rule = 'median' is void with train.arrivals.buffer = 1: of a sin
    """
    attack, defence = train.attack, train.defence
    if train.arrivals is None or train.arrivals.buffer > 1:
        return
    void, raise_it = "is void with train.arrivals.buffer = 1", "raise the buffer (f liars need more than 2f replies)"
    named = defence.rule if defence is not None and defence.rule not in ("mean", "plain_mean") else None
    if defence is not None and named is not None and not rule(named, **defence.options).remembers:
        raise UserError(
            f"train.defence.rule = '{named}' {void}: of a single reply every rule gives that reply; "
            f"{raise_it}, or take 'centered_clipping', which looks at its last answer"
        )
    if defence is not None and defence.most is not None and np.isfinite(defence.most):
        raise UserError(
            f"train.defence.most = {defence.most:g} {void}: a single reply is as long as the usual one; {raise_it}, or "
            "take most = inf, which refuses what is not finite"
        )
    if attack is not None and attack_named(attack.name, **attack.options).omniscient:
        raise UserError(
            f"train.attack.name = '{attack.name}' {void}: it is made of what the honest send into the same merge, and "
            "nobody else is there; raise the buffer, or take an attack that needs nobody, as sign_flip or noise"
        )


def server_optimizer(spec: ServerSpec) -> Any:
    """The optax optimizer of the server.

    >>> rule, x = server_optimizer(ServerSpec(lr=0.5)), jnp.array(1.0)
    >>> float(rule.update(x, rule.init(x))[0])
    -0.5
    """
    direction = make_optimizer(spec.optimizer, spec.options)
    return optax.chain(direction, optax.scale(-spec.lr))
