"""docs/ref-spec.md, and the spec that `apiece spec` prints: both made of the tables' types, texts and examples."""

import json
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pydantic
from pydantic_core import PydanticUndefined

from apiece.experiment.spec import Spec
from apiece.experiment.spec_tables import SpecTable

HEAD = """# The spec

A spec says everything about a run: `apiece compare --spec FILE`, or `run --spec FILE`. Flags override it, and a run
folder holds the spec that was run, whole (`spec.toml`). `apiece spec` prints one with every key and what it means.
Unknown keys and impossible values are errors that name them.

This page is generated from the types in `src/apiece/experiment/`: `make docs`.
"""
# Keys that exclude others, and what they need beside them, so that every example runs.
APART: dict[str, dict[str, dict[str, Any]]] = {
    "model": {"objective": {}},
    "train": {"probability": {}, "engine": {}, "participation": {}},
    "train.arrivals": {"delays": {}, "clients": {"delays": [0, 3]}, "recorded": {}},
    "train.arrivals.pace": {"times": {"law": "given"}},
    "train.faults.pace": {"times": {"law": "given"}},
    "train.availability": {"given": {"pattern": "given"}},
    "train.attack": {"clients": {"name": "sign_flip"}},
    "train.private": {"noise": {}},
}
NOTES = {
    "methods": """A row may be a variant of a method, search a grid or a range, or go in stages:

```toml
[methods.ditto]
[methods.ditto-weak]
method = "ditto"
lam = 0.01
lr = {grid = [0.01, 0.1, 1.0]}
[methods.ditto-strong]
method = "ditto"
lam = {range = [1.0, 10.0]}
[methods.warm]
fine_tune = {part = "out", epochs = 5}
[[methods.warm.stages]]
method = "fed_avg"
rounds = 50
lr = {grid = [0.1, 0.3]}
[[methods.warm.stages]]
method = "fed_per"
```

With grids alone every combination is tried; with a range, `tune` settings. Options that are not mentioned then keep
their defaults; where nothing is searched by hand, tuning looks where the method says (`apiece methods NAME`). A list or
a matrix may stand in a file: `bias = {file = "bias.csv"}`. The options of stages are options of the whole row,
`stage1_lr`, `stage2_private`, ..., `fine_tune_epochs`, ... in tables and in the record, and tuned as those of any
method.
"""
}


def tables() -> Iterator[tuple[str, type[SpecTable]]]:
    """Every table by its name, the spec itself ("") first."""
    yield "", Spec
    yield from _inner("", Spec)


def _inner(name: str, table: type[SpecTable]) -> Iterator[tuple[str, type[SpecTable]]]:
    for key, field in table.model_fields.items():
        inner = table_type(field.annotation)
        if inner is not None:
            path = f"{name}.{key}".lstrip(".")
            yield path, inner
            yield from _inner(path, inner)


def table_type(annotation: Any) -> type[SpecTable] | None:
    """The table that a key holds, if it is one."""
    kinds = typing.get_args(annotation) or (annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, SpecTable)), None)


def example_of(name: str, table: type[SpecTable]) -> dict[str, Any]:
    """A table with an example of every key that can stand beside the others."""
    fields = {key: field for key, field in table.model_fields.items() if key not in APART.get(name, {})}
    return {key: field.examples[0] for key, field in fields.items() if field.examples}


def examples() -> dict[str, dict[str, Any]]:
    """A whole spec for each table, that has its examples, and for each key that stands apart."""
    found = {}
    for name, table in tables():
        found[name or "the spec"] = _nested(name, example_of(name, table))
        for key in APART.get(name, {}):
            found[f"{name}.{key}"] = _nested(name, _apart(name, table, key))
    return found


def _apart(name: str, table: type[SpecTable], key: str) -> dict[str, Any]:
    """A key that excludes others, with what it needs."""
    return {**APART[name][key], key: (table.model_fields[key].examples or [None])[0]}


def _nested(name: str, values: dict[str, Any]) -> dict[str, Any]:
    for part in reversed(name.split(".") if name else []):
        values = {part: values}
    return values


def type_words(annotation: Any) -> str:
    """A type in a reader's words.

    >>> type_words(list[int] | None), type_words(Literal["a", "b"])
    ('list of whole numbers', '"a" or "b"')
    """
    if typing.get_origin(annotation) is typing.Annotated:
        return type_words(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(type_words(kind) for kind in typing.get_args(annotation) if kind is not type(None))
    if typing.get_origin(annotation) is Literal:
        return " or ".join(f'"{word}"' for word in typing.get_args(annotation))
    if typing.get_origin(annotation) is list:
        return f"list of {type_words(typing.get_args(annotation)[0])}s"
    if typing.get_origin(annotation) is dict or table_type(annotation) is not None:
        return "table"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(annotation, "text or object")


def default_of(field: Any) -> Any:
    """The default of a key, as plain values; None: it has none."""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return None
    return value.model_dump() if isinstance(value, pydantic.BaseModel) else value


def page() -> str:
    """The page.

    >>> page().startswith("# The spec")
    True
    """
    parts = [HEAD]
    for name, table in tables():
        parts.append(
            f"## {f'`[{name}]`' if name else 'The top of the file'}\n\n{_text(table.__doc__).partition(' >>>')[0]}\n"
        )
        rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for key, field in table.model_fields.items():
            rows.append(
                f"| `{key}` | {type_words(field.annotation)} | {_default(field)} | {_text(field.description)} |"
            )
        parts.append("\n".join(rows) + "\n")
        if shown := example_of(name, table):
            parts.append(f"```toml\n{_toml(name, shown)}```\n")
        for key in APART.get(name, {}):
            parts.append(f"`{key}`, apart:\n\n```toml\n{_toml(name, _apart(name, table, key))}```\n")
        for key in table.model_fields:
            if not name and key in NOTES:
                parts.append(f"### `[{key}]`\n\n{NOTES[key]}")
    return "\n".join(parts)


def commented() -> str:
    """A spec with every key: the top and its tables with their defaults, tables that may be absent as comments.

    >>> "# rounds: Rounds of training" in commented()
    True
    """
    lines = ["# An apiece spec: apiece compare --spec THIS_FILE. What is left out has the value shown.", ""]
    lines += _lines(Spec, comment="")
    for name, table in tables():
        if name:
            optional = _may_be_absent(name)
            lines += ["", *_comment(_text(table.__doc__)), f"{'# ' if optional else ''}[{name}]"]
            lines += _lines(table, comment="# " if optional else "")
    lines += ["", "# A table for each method, e.g.:", "# [methods.ditto]", "# lam = 1.0"]
    return "\n".join(lines) + "\n"


def _lines(table: type[SpecTable], comment: str) -> list[str]:
    lines = []
    for key, field in table.model_fields.items():
        if table_type(field.annotation) is not None:
            continue
        lines += _comment(f"{key}: {_text(field.description)}")
        value = default_of(field)
        absent = value is None or value == {}  # nothing to write: a comment with an example
        shown = (field.examples or [None])[0] if absent else value
        if shown is not None and shown != {}:
            lines.append(f"{'# ' if absent else comment}{key} = {_inline(shown)}")
    return lines


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def _may_be_absent(name: str) -> bool:
    part: Any = Spec
    for key in name.split("."):
        field = part.model_fields[key]
        if default_of(field) is None:
            return True
        part = table_type(field.annotation)
    return False


def _default(field: Any) -> str:
    value = default_of(field)
    if value is None:
        return "" if field.is_required() else "none"
    if table_type(field.annotation) is not None:
        return "its own"
    return f"`{_inline(value)}`"


def _toml(name: str, values: dict[str, Any]) -> str:
    """A table under its name, each key on a line of its own."""
    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{key} = {_inline(value)}\n" for key, value in values.items())


def _inline(value: Any) -> str:
    """A value as TOML has it, on one line.

    >>> _inline({"lam": [0.1, 1], "keep": True})
    '{lam = [0.1, 1], keep = true}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)  # texts, numbers, true and false are the same in both


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
