"""What a finished trial leaves on disk: its outcome, and every client's model. (A run on its way: `Engine.save`.)"""

import math
from pathlib import Path

import jax
import numpy as np

from apiece import files, tree
from apiece.engines.engine import Engine, RunState
from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome
from apiece.protocol import Personal


def save_outcome(path: Path, outcome: Outcome) -> None:
    """A finished trial, in one file."""
    about = {"curve": outcome.curve, "costs": outcome.costs, "note": outcome.note}
    files.write_arrays(path, {"judged": outcome.judged, **outcome.arrays}, about)


def load_outcome(path: Path) -> Outcome:
    """A trial finished earlier."""
    arrays, about = files.read_arrays(path)
    return Outcome(arrays.pop("judged"), arrays, about["curve"], about["costs"], about["note"])


def save_end(path: Path, engine: Engine, run: RunState, outcome: Outcome, most: float) -> None:
    """The run after its last round, so that it can go on later; not if that takes more than `most` GB."""
    rows = [leaf for leaf in jax.tree.leaves(run.rows) if len(leaf)]
    known = sum(leaf.nbytes / len(leaf) for leaf in rows) * int(run.known.sum())
    size = tree.size_in_bytes((run.server, run.flight)) + known
    if size <= most * 1e9:
        engine.save(run, path, {"curve": outcome.curve, "seconds": outcome.costs["seconds"]})


def save_models(path: Path, engine: Engine, place: Arena, run: RunState, most: float) -> str | None:
    """The personal models, stacked in the order of `clients`, and the server's state; what was left out, or None.

    At most `most` GB of them. The server's state, the initial model and the description are all that a newcomer needs.
    """
    arrays = files.arrays_by_path("server", run.server) | files.arrays_by_path("initial", run.params)
    about = {"clients": place.ids.tolist(), "round": run.round, "seed": run.seed, "visits": engine.visits(run)}
    count = len(place.ids)
    one = engine.model_shapes(run)
    size = tree.size_in_bytes(one) * count / 1e9
    if size > most:
        files.write_arrays(path, arrays, about | {"clients": []})
        return (f"personal models not written: {size:.1f} GB are more than train.models_gb = {most:g}; "
                f"to keep them: models_gb = {math.ceil(size)} under [train] in a spec")  # fmt: skip
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), one)
    stacked = files.leaves_by_path("personal", like)
    with files.write_rows(path, arrays | stacked, about) as put:
        for name, array in arrays.items():
            put(name, 0, array)
        for models, who in engine.personal_groups(run, np.arange(count)):
            for name, rows in files.arrays_by_path("personal", models).items():
                put(name, int(who[0]), rows)
    return None


def load_personal(path: Path, client: str, like: Personal) -> Personal | None:
    """One client's model of a file that `save_models` wrote, as the tree that `like` is; None: it is not there."""
    with files.read_rows(path) as (get, names, about):
        if client not in about["clients"]:
            return None
        row = about["clients"].index(client)
        mine = {name: np.asarray(get(name, row, row + 1)[0]) for name in names if name.split("/")[0] == "personal"}
    return files.rebuild_tree("personal", like, mine)
