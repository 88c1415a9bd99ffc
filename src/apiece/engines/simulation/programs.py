"""What a simulation compiles: clients' visits, what becomes of their states, the models they use."""

import abc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from apiece import tree
from apiece.engines.contact import Build, Visit, is_finite, key_of, model_in_use, settle, visit
from apiece.engines.simulation.division import divided, each
from apiece.engines.simulation.score import Examples
from apiece.protocol import Data, Method, Params, Personal, Tree


class Stage(NamedTuple):
    """What every client of a round is given."""

    server: Tree
    params: Params
    stream: Any
    hyper: dict[str, Any]
    round: Any
    x: Tree
    y: Tree


class Programs:
    """Pure functions of a `Simulation`, to be compiled; what they need of it stands here."""

    build: Build
    mesh: Any
    train: Examples
    population: int
    stateless: bool
    sequential: bool

    @property
    @abc.abstractmethod
    def all_count(self) -> bool:
        """Whether the reply of everybody who works is sure to reach the server in time."""

    def _open_server(self, hyper: dict[str, Any], params: Params, stream: Any) -> Tree:
        return self.build(hyper, 0).init(params, stream)

    def _work(self, who: dict, rows: Tree, known: Any, stage: Stage) -> Visit:
        """The visits of this device's clients; those not `present` are not run."""
        method = self.build(stage.hyper, stage.round)

        def one(c: dict) -> Visit:
            old = tree.take(rows, c["slots"])
            work = visit(method, stage.params, known[c["slots"]], old, *self._contact(method, stage, c))
            if method.merge_counted is None and jax.tree.leaves(work.reply):  # else nobody refuses, or the method does
                work = work._replace(sound=is_finite(work.reply))
            if not self.commits_at_once(method):
                return work
            # That a reply is no number follows from itself: settled here, one state leaves the client and not two.
            settles = not self.stateless and jax.tree.leaves(work.sound)
            after = settle(method, work.sound, True, old, work)[0] if settles else work.after
            return work._replace(after=after, kept=())

        return each(one, who, who["present"], self.sequential)

    def commits_at_once(self, method: Method) -> bool:
        """Whether every reply counts, so that states can be committed at once."""
        return self.stateless or (self.all_count and method.merge_counted is None)

    def _remembered(
        self, method: Method, rows: Tree, known: Any, slots: Any, work: Visit, counted: Any
    ) -> tuple[Tree, Any]:
        """Rows and known after these clients' visits; the last row, for those who are absent, stays unknown."""
        if self.stateless:
            return rows, known
        after, knows = work.after, jnp.ones(len(slots), bool)
        if method.keep is None and jax.tree.leaves(work.sound):
            knows = work.sound | known[slots]
        if not self.commits_at_once(method):
            one = functools.partial(settle, method)
            after, knows = jax.vmap(one)(counted, known[slots], tree.take(rows, slots), work)
        return tree.put(rows, slots, after), known.at[slots].set(knows).at[-1].set(False)

    def _personal_models(self, rows: Tree, who: dict, stage: Stage, visits: Any) -> Personal:
        def work(who: dict, rows: Tree, stage: Stage, visits: Any) -> Personal:
            method = self.build(stage.hyper, stage.round)

            def one(c: tuple) -> Personal:
                who, row = c
                contact = self._contact(method, stage, who)
                return model_in_use(method, stage.params, who["known"], row, *contact, visits)

            return each(one, (who, rows), who["sizes"] > 0, self.sequential)

        return divided(work, self.mesh, rows=2, whole=2)(who, rows, stage, visits)

    def _newcomers_model(self, nothing: Tree, stage: Stage, visits: Any) -> Personal:
        """The model of somebody behind everybody, whose examples are the stage's."""
        method, size = self.build(stage.hyper, stage.round), len(stage.y)
        key = key_of(stage.stream, stage.round, self.population)
        message, data = method.message(stage.server, self.population), Data(stage.x, stage.y, 0, size, size)
        return model_in_use(method, stage.params, False, nothing, message, data, key, visits)

    def _contact(self, method: Method, stage: Stage, c: dict) -> tuple[Tree, Data, Any]:
        """What a client sees: its message, its data, its key."""
        data = Data(stage.x, stage.y, c["starts"], c["sizes"], self.train.capacity)
        key = key_of(stage.stream, stage.round, c["ids"])
        if "wave" in c:  # who starts again from the same version of the server must not repeat its draws
            key = jnp.where(c["wave"] > 0, jax.random.fold_in(key, c["wave"]), key)
        return method.message(stage.server, c["ids"]), data, key
