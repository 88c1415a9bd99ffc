"""Four clients with memories in files, joined to a server by a post that can be told to fail."""

import functools

import jax.numpy as jnp
import numpy as np

from apiece.engines.remote.desk import Desk
from apiece.engines.remote.exchange import Exchange, Pace
from apiece.engines.remote.halves import agree, data_of
from apiece.engines.remote.ledger import Ledger
from apiece.engines.remote.letter import Terms
from apiece.engines.remote.networked import Networked
from apiece.engines.remote.post import InProcess
from apiece.engines.remote.station import Station
from apiece.methods.bind import bind
from apiece.models import linear, objective

RNG = np.random.default_rng(0)
SIZES = np.array([3, 5, 4, 6])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
X = RNG.normal(size=(SIZES.sum(), 3)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5]) + RNG.normal(size=len(X))).astype(np.float32)
MODEL = linear((3,), 1)
JUDGE = objective(MODEL, "regression")
TERMS = Terms("0.1", "wards", "abcd")
SMALL = dict(steps=2, lr=0.05, batch=2)


def method(name, **options):
    """(build, hyper) of a method on the small federation."""
    return bind(name, JUDGE.loss, {**SMALL, **options}, None, len(SIZES), MODEL)


@functools.cache
def agreed(name, seed, options):
    build, hyper = method(name, **dict(options))
    return agree(build, MODEL.init, (X[:1], Y[:1]), seed, hyper)


def rows_of(i):
    mine = slice(OFFSETS[i], OFFSETS[i + 1])
    return data_of(X[mine], Y[mine], capacity=int(SIZES.max()))


class Network:
    """Everything of a deployed run but the network; `post` can be replaced by one that fails."""

    def __init__(self, folder, name, post=InProcess, seed=1, pace=None, **options):
        self.folder, self.seed, self.log = folder, seed, []
        self.name, self.options = name, tuple(options.items())
        self.build, self.hyper = method(name, **options)
        self.pace = pace or Pace(deadline=30, again=0.0, patience=5)
        self.post = post({i: (lambda wire, i=i: self.station(i).answer(wire)) for i in range(len(SIZES))})
        self.engine = self.server()

    def tell(self, event, **about):
        self.log.append({"event": event, **about})

    def station(self, i):
        """Client i, as a process that was just started finds itself on its disk."""
        terms = agreed(self.name, self.seed, self.options)
        desk = Desk(terms, i, {"train": rows_of(i), "test": rows_of(i)}, self.folder / f"client-{i}" / "memory",
                    outcomes=JUDGE.outcomes)  # fmt: skip
        return Station(TERMS, i, lambda row: desk, tell=self.tell)

    def server(self):
        """The server, as a process that was just started finds itself on its disk."""
        exchange = Exchange(self.post, TERMS, self.pace, self.tell)
        return Networked(self.build, (X[:1], Y[:1]), SIZES, exchange=exchange, ledger=Ledger(self.folder / "server"),
                         row="mine", parts={"test": SIZES})  # fmt: skip

    def run(self, rounds):
        state = self.engine.start(MODEL.init, self.seed, self.hyper)
        return self.engine.advance(state, rounds)

    def models(self, run):
        """Every client's model, as it stands on its own disk."""
        half = self.engine._server(run)
        found = []
        for i in range(len(SIZES)):
            desk = self.station(i).desk("mine")
            found.append(desk.half.personal(half.message(i), self.engine.visits(run)))
        return found


def flat(models):
    import jax

    return np.stack([np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]) for one in models])


def as_rows(stacked):
    import jax

    return [jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf)[i], stacked) for i in range(len(SIZES))]
