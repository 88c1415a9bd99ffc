"""The lines of the contract, checked on a method as the engines run it."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.protocol import Data, Params, Tree
from apiece.testing.case import Case, Ending
from apiece.testing.clients import FIRST_EVERYBODY, POPULATION, SIZES
from apiece.testing.line import check_line
from apiece.testing.same import ROUNDING, check_finite, check_like, check_outcomes, check_same


def check_models(what: str, outcome: Ending) -> None:
    """Every client's own model is a number: an engine would give it another one, and so nobody would see."""
    assert not len(outcome.fallen), f"{what} is not finite, that of client {outcome.fallen[0]}"
    check_finite(what, outcome.models)


@check_line(1)
def engines_return_states_as_they_were(case: Case, engine: str) -> None:
    """A whole run keeps the structure, shapes and dtypes of server and clients, and every number finite."""
    shapes, outcome = case.usual, case.run(engine)
    check_like("the server's state", outcome.server, shapes.server)
    check_like("a client's state", tree.take(outcome.clients, 0), shapes.client)
    check_like("a personal model", tree.take(outcome.models, 0), shapes.personal)
    check_finite("the server", outcome.server)
    check_finite("a client's state", outcome.clients)
    of_round = tree.take(outcome.models, np.arange(POPULATION))
    check_models(
        "a personal model", outcome._replace(models=of_round, fallen=outcome.fallen[outcome.fallen < POPULATION])
    )


@check_line(1)
def the_same_run_twice_is_the_same(case: Case, engine: str) -> None:
    """The six functions are pure: the same run gives the same numbers, bit for bit."""
    check_same("a second run", case.rerun(engine), case.run(engine))


@check_line(5)
def rows_of_others_are_never_read(case: Case, engine: str) -> None:
    """Rows beyond a client's size are never read: they may hold what is not a number."""
    for i in range(POPULATION):
        clean, spoiled = (case.run(engine, ((i,), (i,)), owners=owners) for owners in (None, (i,)))
        check_finite(f"the reply of client {i} of size {SIZES[i]}", tree.take(spoiled.replies, i))
        check_same("the server", spoiled.server, clean.server)
        for part in ("replies", "clients", "models"):
            here, now = (tree.take(getattr(outcome, part), i) for outcome in (clean, spoiled))
            check_same(f"of {part}, that of client {i} of size {SIZES[i]}", now, here)


@check_line(2)
def who_does_not_take_part_is_not_seen(case: Case, engine: str) -> None:
    """Nothing depends on the data of clients that do not take part."""
    schedule = ((3, 1), (3,))
    clean = case.run(engine, schedule)
    spoiled = case.run(engine, schedule, owners=(3, 1))
    check_same("the server", spoiled.server, clean.server)
    for i in (3, 1):
        check_same(f"client {i}'s state", tree.take(spoiled.clients, i), tree.take(clean.clients, i))
        check_same(f"client {i}'s model", tree.take(spoiled.models, i), tree.take(clean.models, i))


@check_line(6)
def the_order_of_a_cohort_is_rounding(case: Case, engine: str) -> None:
    """Permuting the cohort changes nothing but rounding."""
    turned = tuple(cohort[::-1] for cohort in FIRST_EVERYBODY)
    mixed = ((2, 0, 3, 1), (3, 1), (3, 0, 2))
    for schedule in (turned, mixed):
        check_outcomes("when the cohort is permuted", case.run(engine, schedule), case.run(engine))


@check_line(3)
def a_reply_depends_on_who_and_when_alone(case: Case, engine: str) -> None:
    """A client's randomness comes from who and when: not from who else takes part, nor from its place among them."""
    everybody = case.run(engine, ((0, 1, 2, 3),))
    for others in (((2, 3, 1),), ((3,),)):
        there = case.run(engine, others)
        for part in ("replies", "clients", "enrolled_with"):
            here, now = (tree.take(getattr(outcome, part), 3) for outcome in (everybody, there))
            check_same(f"of {part}, client 3's among clients {others[0]}", now, here, ROUNDING)


@check_line(7)
def forgetting_is_legal(case: Case, engine: str) -> None:
    """Forgetting is legal: a run whose clients enroll anew each round works, and is the same on every engine."""
    forgot, once = case.run(engine, stateless=True), ((0, 1, 2, 3),)
    check_finite("the server", forgot.server)
    check_finite("a reply", forgot.replies)
    check_models("a personal model", forgot)
    first, usual = case.run(engine, once, stateless=True), case.run(engine, once)
    check_same(
        "the server after a first round, before anything can be forgotten,", first.server, usual.server, ROUNDING
    )
    if case.build(case.hyper, 0).forgets:
        for outcome in (usual, case.run(engine)):
            for i in range(POPULATION):
                mine = tree.take(outcome.clients, i)
                check_same("a state that the method says it forgets", mine, tree.take(usual.clients, 0), ROUNDING)
    for other in case.engines:
        there = case.run(other, stateless=True)
        for part in ("server", "replies", "models"):
            check_same(
                f"of {part}, what it is on the {other} engine", getattr(there, part), getattr(forgot, part), ROUNDING
            )


@check_line(7)
def a_newcomer_has_a_model(case: Case, engine: str) -> None:
    """A client that never took part can enroll at any time and has a model."""
    for schedule in (FIRST_EVERYBODY, ((1,), (1,))):
        check_models("the model of a client that never took part", case.run(engine, schedule))


@check_line(9)
def states_are_committed_when_replies_counted(case: Case, engine: str) -> None:
    """A client whose reply did not count is as it was before, but for what is its own progress."""
    if not jax.tree.leaves(case.usual.client):
        return
    method = case.build(case.hyper, 0)
    everybody = (0, 1, 2, 3)
    # The server refuses client 3 from the second round on; who is refused each time ends where it was after the first.
    refused = case.run(engine, (everybody, everybody, everybody), aside=True, refusing=True, models=False)
    once = case.run(engine, (everybody,), models=False)
    mine = lambda outcome: tree.take(outcome.clients, 3)
    if method.keep is None:
        check_same("client 3's state after its replies were refused", mine(refused), mine(once))
    heard = case.run(engine, (everybody, (0, 1, 2), (0, 1, 2)), models=False)
    check_same("the server, which refused client 3,", refused.server, heard.server, ROUNDING)
    for other in case.engines:
        there = case.run(other, (everybody, everybody, everybody), aside=True, refusing=True, models=False)
        check_same(f"client 3's state on the {other} engine", mine(there), mine(refused), ROUNDING)


@check_line(8)
def enroll_is_given_the_initial_model(case: Case, engine: str) -> None:
    """`params` in `enroll` is the initial model, whenever a client enrolls; it is never sent."""
    late = case.run(engine, ((1,), (3, 1), (0, 2)))
    for i in range(POPULATION):
        check_same(f"what client {i} enrolled with", tree.take(late.enrolled_with, i), case.params)


@check_line(5)
def one_client_is_enough(case: Case, engine: str) -> None:
    """A round with a single client works: the other places have weight 0."""
    for i in (0, 3):
        check_finite(f"the server after a round with client {i} alone", case.run(engine, ((i,), (i,))).server)


@check_line(3)
def engines_agree(case: Case, engine: str) -> None:
    """A vectorized, a remote and an asynchronous run without delays are the same run."""
    for other in case.engines:
        for schedule in (FIRST_EVERYBODY, ((1,), (3, 0))):
            check_outcomes(f"on the {other} engine", case.run(other, schedule), case.run(engine, schedule))


@check_line(6, ("vectorized",))
def how_clients_are_run_is_rounding(case: Case, engine: str) -> None:
    """Divided over the devices or all on one, one by one or all at once (vmap): nothing changes but rounding."""
    there = case.run(engine, aside=True, models=False)
    check_outcomes("on one device in the other mode", there, case.run(engine)._replace(models=()))


@check_line(1, ("functions",))
def a_grid_runs_in_one_compile(case: Case, engine: str) -> None:
    """Hyper-parameters may be traced: a grid of them runs under vmap, and gives what each gives alone."""
    if not case.hyper:
        return

    def work(hyper: dict[str, Any], params: Params, data: Data, key: Tree) -> tuple:
        method = case.build(hyper, 0)
        message = method.message(method.init(params, key), jnp.int32(3))
        return method.local(method.enroll(params, message, data, key), message, data, key)

    given = (case.params, case.data(3), jax.random.key(1))  # not constants of the program: XLA would fold them
    halved = {name: value / 2 for name, value in case.hyper.items()}
    grid = {name: jnp.array([value, halved[name]]) for name, value in case.hyper.items()}
    together = jax.jit(jax.vmap(work, in_axes=(0, None, None, None)))(grid, *given)
    alone = jax.jit(functools.partial(work, halved))(*given)
    check_same("a client's work as one of a grid", tree.take(together, 1), alone, ROUNDING)
