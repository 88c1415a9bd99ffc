"""A spec as files have it: things of one's own by their paths, and the hashes that tell whether code has changed."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apiece.client.schedule import SCHEDULES
from apiece.errors import UserError
from apiece.experiment.spec import Spec
from apiece.experiment.stages import Staged
from apiece.methods import CATALOG
from apiece.models import MODELS
from apiece.own import GIVEN, hash_apiece, hash_code, import_thing, path_of


def own_things(spec: Spec) -> dict[str, Any]:
    """What of a spec is not apiece's own, by where it stands ("methods.mine", "model", "metrics.f1").

    >>> own_things(Spec())
    {}
    """
    found: dict[str, Any] = {}
    for row in spec.rows.values():
        parts: Any = row.method.stages if isinstance(row.method, Staged) else [row]
        for at, part in enumerate(parts, 1):
            where = f"methods.{row.name}" + (f".stages.{at}" if part is not row else "")
            found |= {where: part.method} if part.method not in CATALOG.own else {}
    if spec.model.name != "auto" and spec.model.name not in MODELS.own:
        found["model"] = spec.model.name
    if spec.model.objective is not None:
        found["model.objective"] = spec.model.objective
    for name, value in spec.metrics.items():
        found[f"metrics.{name}"] = value["function"] if isinstance(value, Mapping) else value
    if spec.train.schedule not in SCHEDULES.own:
        found["train.schedule"] = spec.train.schedule
    if spec.train.participation is not None:
        found["train.participation"] = spec.train.participation
    if (chosen := spec.train.optimizer) is not None and (not isinstance(chosen.name, str) or ":" in chosen.name):
        found["train.optimizer.name"] = chosen.name
    return found


def written_spec(spec: Spec) -> dict[str, Any]:
    """The spec as plain values: things of one's own by where they are imported from, or as "given:label".

    >>> written_spec(Spec(methods={"mine": {"method": lambda loss: None}}))["methods"]["mine"]
    {'method': 'given:mine'}
    """
    values = spec.model_dump()
    for where, thing in own_things(spec).items():
        *above, last = where.split(".", 1) if where.startswith("methods.") else where.split(".")
        text = _from_anywhere(thing) if isinstance(thing, str) else path_of(thing) or GIVEN + where.split(".", 1)[-1]
        if above == ["methods"]:
            name, stage, at = last.rpartition(".stages.")
            table = values["methods"][name]["stages"][int(at) - 1] if stage else values["methods"][last]
            table["method"] = text
        elif above == ["metrics"] and isinstance(values["metrics"][last], dict):
            values["metrics"][last]["function"] = text
        elif where == "model":
            values["model"]["name"] = text
        else:
            functools.reduce(dict.__getitem__, above, values)[last] = text
    return values


def _from_anywhere(path: str) -> str:
    """A path to a file of one's own, whole: the run can then be continued from any folder."""
    file, colon, name = path.rpartition(":")
    return f"{Path(file).resolve()}{colon}{name}" if file.endswith(".py") else path


def with_given(values: Any, given: Mapping[str, Any]) -> Any:
    """Plain values with objects in place of "given:label", where these are given again.

    >>> with_given({"method": "given:mine", "lam": 1.0}, {"mine": max})["method"] is max
    True
    """
    if isinstance(values, dict):
        return {key: with_given(value, given) for key, value in values.items()}
    if isinstance(values, list):
        return [with_given(value, given) for value in values]
    if isinstance(values, str) and values.startswith(GIVEN) and values.removeprefix(GIVEN) in given:
        return given[values.removeprefix(GIVEN)]
    return values


def code_hashes(spec: Spec) -> dict[str, str]:
    """A hash of the code of everything that a run's numbers depend on."""
    hashes = {"apiece": hash_apiece()}
    for where, thing in own_things(spec).items():
        if isinstance(thing, str):  # a plug-in by its name, or a path
            kind = where.partition(".")[0].rstrip("s")
            plugged = {"method": CATALOG, "model": MODELS, "train": SCHEDULES}.get(kind)
            thing = plugged.find(thing) if plugged is not None and thing in plugged else import_thing(thing, kind)
        hashes[where] = hash_code(getattr(thing, "apply", thing))  # of a model that is an object, what it computes
    return hashes


def refuse_changed_code(folder: Any, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """A `UserError` that names the first thing whose code is not what it was when the run began."""
    for where, code in now.items():
        if begun.get(where) != code:
            what = "apiece itself" if where == "apiece" else f"the code of {where}"
            raise UserError(f"{what} changed since the run in '{folder}' began, and one record must not hold numbers "
                            "of two versions; put the old code back, or start a new run")  # fmt: skip
