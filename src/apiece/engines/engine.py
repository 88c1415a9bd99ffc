"""What an engine is: it runs a method on everybody's data, wherever that is, and answers questions about the run.

`fit`, `compare`, tuning and resuming know only this. Vectorized, asynchronous and remote are three engines; a run by
any of them leaves the same record.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece import files
from apiece.engines.contact import Build
from apiece.engines.costs import Costs, visit_costs
from apiece.engines.row_store import RowStore
from apiece.engines.states import commit_rows, look_up_rows, restore_places, row_parts, store_of
from apiece.errors import UserError, suggest
from apiece.protocol import Batch, Message, Params, Personal, Question, Tree
from apiece.wrap import guard_of, rejections

WEIGHTS = ("examples", "uniform")  # how much a reply counts
Outcomes = Callable[[Personal, Batch], tuple]  # (a personal model, examples) -> (loss, error, ...) of each


@dataclasses.dataclass
class RunState:
    """Where a run stands: enough to go on from. `rows` holds every client's committed state, on the host or on disk.

    >>> RunState(seed=0, hyper={"lr": 0.1}, round=3, params=(), server=(), rows=(), known=np.zeros(2, bool)).clock
    0.0
    """

    seed: int
    hyper: dict[str, float]
    round: int
    params: Params
    server: Tree
    rows: Tree
    known: np.ndarray
    clock: float = 0.0  # in the simulated world; a round takes 1 where nothing else is said
    flight: Tree = ()  # work whose fate is open: replies on their way, states that wait to be committed
    refused: int = 0  # replies that were malformed, stale or not finite: they did not count
    fallen: set[int] = dataclasses.field(default_factory=set)  # clients seen with a model that is no number


# What a file holds of a run, by the kind of field. A fresh run of the same seed and options has the rest.
PLAIN = tuple(field.name for field in dataclasses.fields(RunState) if field.type in (int, float))
ROWS = ".rows"  # what the file of states beside a checkpoint is called, behind the checkpoint's own name
TREES = ("server", "flight")  # whole; of `rows` those of known clients only


class Engine(abc.ABC):
    """A method (`build`) on the data of `population` clients that train, and of others that are only known.

    `sizes` are all clients' numbers of training examples; `example` is (x, y) of a row or more, for shapes.

    >>> {"start", "advance", "ask", "outcomes", "onboard"} <= Engine.__abstractmethods__
    True
    """

    build: Build
    population: int
    sizes: np.ndarray
    example: tuple[Tree, Tree]

    @abc.abstractmethod
    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> RunState:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""

    @abc.abstractmethod
    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""

    @abc.abstractmethod
    def ask(
        self, question: Question, message: Message = (), ids: Sequence[int] | None = None, part: str = "train"
    ) -> Tree:
        """The answers of these clients (default: all that train) on a part of their data, pooled as the question says.

        Every client sees the message, its own data, and a key of its own. An engine begins with `check_part`.
        """

    @abc.abstractmethod
    def personal_groups(
        self, run: RunState, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """The models these clients use, some clients after others: (stacked models, who they are)."""

    @abc.abstractmethod
    def outcomes(
        self, run: RunState, ids: np.ndarray, outcomes: Outcomes, parts: Any, most: int | None = None
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Per part of the held-out data: what `outcomes` gives for every example of these clients by their own model.

        `most`: as if nobody had more training examples to make that model from; which ones is chance, since files are
        often sorted, and more include the fewer.
        """

    @abc.abstractmethod
    def onboard(self, run: RunState, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen, from its own training data; the run stays as it is."""

    @abc.abstractmethod
    def model_shapes(self, run: RunState) -> Personal:
        """The shapes of one client's personal model."""

    @abc.abstractmethod
    def visits(self, run: RunState) -> int:
        """How many visits a client has made on average so far (what a newcomer catches up with); at least one."""

    @abc.abstractmethod
    def visited(self, run: RunState) -> np.ndarray:
        """How many visits each client has made so far."""

    @abc.abstractmethod
    def take_in(self, values: Tree) -> Tree:
        """Values from a file where this engine keeps a server's state."""

    def personal(self, run: RunState, ids: np.ndarray, group: int | None = None) -> Personal:
        """The models these clients use, stacked, on the host."""
        parts = [models for models, _ in self.personal_groups(run, ids, group)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def costs(self, run: RunState) -> dict[str, float]:
        """What the run has cost so far, all clients together: bytes, gradient evaluations, visits."""
        visits, sizes = self.visited(run), self.sizes[: self.population]
        per = self.visit_costs(run)
        one = next(iter(per.values()))
        return {
            "rounds": run.round,
            "clock": run.clock,
            "visits": int(visits.sum()),
            "bytes_down": int(visits.sum()) * one.bytes_down,
            "bytes_up": int(visits.sum()) * one.bytes_up,
            "bytes_final": self.population * one.bytes_down,
            "bytes_kept_per_client": one.bytes_kept,
            "gradients": sum(self._gradients(run, visits[sizes == size], c) for size, c in per.items()),
            "gradients_personal": sum(int((sizes == size).sum()) * c.gradients_personal for size, c in per.items()),
            **({"refused": run.refused} if run.refused else {}),
            **(rejections(run.server) if guard_of(run.server) is not None else {}),
        }

    def _gradients(self, run: RunState, visits: np.ndarray, one: Costs) -> float:
        """Of clients that cost the same: their visits, and their enrolling: once or, where they forget, each time."""
        again = getattr(self, "stateless", False) or self.build(run.hyper, run.round).forgets
        enrolled = visits if again else np.minimum(visits, 1)
        return int(visits.sum()) * one.gradients + int(enrolled.sum()) * one.gradients_enroll

    def visit_costs(self, run: RunState) -> dict[int, Costs]:
        """What a visit costs, by client size; traced once for all options where it does not depend on them."""
        known: dict[tuple, Costs] = self.__dict__.setdefault("_visit_costs", {})
        sizes = self.sizes[: self.population]
        return visit_costs(self.build, run.hyper, run.params, self.example, sizes, known)

    def save(self, run: RunState, path: Path, about: dict[str, Any], beside: bool = False) -> None:
        """The run in one file, states of clients that have none left out, with a description.

        `beside`: states that lie on disk need not be in it, but in another file of this name and `ROWS`, which the run
        then goes on writing to. The file and that one are the checkpoint, and it costs what has changed.
        """
        store = store_of(run.rows) if beside else None
        self.write_run(run, path, about, store, path.with_name(path.name + ROWS))
        if store is not None:
            store.protect()

    def write_run(
        self, run: RunState, path: Path, about: dict[str, Any], store: RowStore | None, rows_path: Path
    ) -> None:
        """The file that `save` writes, with states in it or, if they are given as a `store`, in `rows_path`."""
        known = np.flatnonzero(run.known)
        known = known[self.mine(known)]
        arrays = {"known": known}
        for name in TREES:
            arrays |= files.arrays_by_path(name, getattr(run, name))
        about = {**about, "run": {name: getattr(run, name) for name in PLAIN}}
        if store is not None:
            store.keep_beside(rows_path)
            told = {"width": store.width, "rows": rows_path.name}
            files.write_arrays(path, arrays | {"places": store.at[known]}, about | told)
            return
        rows = {
            name: leaf for name, leaf in files.leaves_by_path("rows", run.rows).items() if len(leaf)
        }  # none kept: no rows
        like = {name: jax.ShapeDtypeStruct((len(known), *leaf.shape[1:]), leaf.dtype) for name, leaf in rows.items()}
        with files.write_rows(path, arrays | like, about) as put:
            for name, array in arrays.items():
                put(name, 0, array)
            for name, leaf in rows.items():
                for some in row_parts(leaf, len(known)):
                    put(name, some.start, look_up_rows(leaf, known[some]))

    def mine(self, ids: np.ndarray) -> np.ndarray:
        """Of these clients, whose states are at this process."""
        return np.ones(len(ids), bool)

    def agree(self, wish: bool) -> bool:
        """What all processes of a run do, where it depends on a clock."""
        return wish

    def shards_at(self, path: Path) -> Path:
        """The folder in which the files lie that a checkpoint of several processes names."""
        return path.parent

    def restore(self, path: Path, fresh: RunState) -> tuple[RunState, dict[str, Any]]:
        """(the run in a file, its description); `fresh` is a run of the same seed and options that has not begun.

        The file may be one that names those of several processes, as many as now or not.
        """
        with files.read_rows(path) as (_, _, about):
            shards = about.get("shards")
        places = [path] if shards is None else [self.shards_at(path) / name for name in shards]
        found = [self._restore_one(place, fresh) for place in places]
        return dataclasses.replace(fresh, **found[0][0], **found[0][1].pop("run")), found[0][1]

    def _restore_one(self, path: Path, fresh: RunState) -> tuple[dict[str, Tree], dict[str, Any]]:
        """(trees, description) of one file, whose states of clients that are this process's go into `fresh`."""
        with files.read_rows(path) as (get, names, about):
            known = get("known")
            mine = self.mine(known)
            if "places" in names:
                rows_path = path.with_name(about.pop("rows"))
                restore_places(rows_path, fresh.rows, known, get("places"), about.pop("width"), mine)
            else:
                for name, leaf in files.leaves_by_path("rows", fresh.rows).items():
                    for some in row_parts(leaf, len(known)) if len(leaf) else ():
                        own = mine[some]
                        commit_rows(leaf, known[some][own], get(name, some.start, some.stop)[own])
            fresh.known[known] = True
            arrays = {name: get(name) for name in names if not name.startswith("rows")}
        return {name: self.take_in(files.rebuild_tree(name, getattr(fresh, name), arrays)) for name in TREES}, about


def forget_checkpoint(path: Path) -> None:
    """Remove a file that `Engine.save` wrote, and what lies beside it."""
    path.unlink(missing_ok=True)  # first: without it the others mean nothing
    for file in (path.with_name(path.name + ROWS), *path.parent.glob(f"{path.name}.*of*")):
        file.unlink(missing_ok=True)


def given_weights(weights: Any, population: int) -> np.ndarray | None:
    """How much each client's replies count, if that is given; None: by a word ("examples", "uniform").

    >>> given_weights([1, 0.5], population=2).tolist()
    [1.0, 0.5]
    """
    if isinstance(weights, str):
        check_word("weights", weights, WEIGHTS)
        return None
    found = np.asarray(weights, np.float32)
    if found.shape != (population,):
        raise UserError(f"{len(found)} weights for {population} clients that train; give one for each")
    if not np.all(np.isfinite(found)) or found.min() <= 0:
        raise UserError("every client's weight is finite and above 0; leave out clients that are not to count")
    return found


def check_word(what: str, word: str, known: Sequence[str]) -> None:
    """An option that is one of a few words, or an error that names it."""
    if word not in known:
        raise UserError(f"{what} = '{word}' is unknown: {suggest(word, known)}")


def check_part(part: str, held_out: Iterable[str]) -> None:
    """A part of the clients' data, or an error that names those there are.

    >>> try: check_part("tets", ["validation", "test"])
    ... except UserError as error: print(error)
    part = 'tets' is unknown: did you mean 'test'?
    """
    check_word("part", part, list(dict.fromkeys(["train", *held_out])))


def join_outcomes(found: dict[str, list[tuple[np.ndarray, ...]]]) -> dict[str, tuple[np.ndarray, ...]]:
    """Outcomes of some clients after others, end to end."""
    nothing = (np.zeros(0, np.float32),) * 2  # nobody was asked
    return {
        name: tuple(map(np.concatenate, zip(*parts, strict=True))) if parts else nothing
        for name, parts in found.items()
    }
