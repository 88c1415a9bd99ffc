"""docs/ref-api.md, generated from `apiece.__all__` and the `__all__` of its modules: `make docs`."""

import ast
import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import pydantic

from apiece.registry import Registry

ABOUT = """\
What the library promises to keep: the names in `apiece.__all__` and in the `__all__` of its modules. Everything else
may move. `help(apiece.fit)` shows a text in full, with its arguments and an example. The options of methods and models
are told on pages of their own, [the methods](ref-methods.md) and [the models](ref-models.md); formulas in
[theory](ref-theory.md). What the modules have to do with each other: [a walk through one
comparison](explanation-architecture.md)."""
LONGEST = 110  # characters of a class with its fields; beyond, the name will do


def page() -> str:
    """The page.

    >>> page().splitlines()[0]
    '# The interface from Python'
    """
    # Looked at, not used: this page is about what stands above it.
    house = importlib.import_module("apiece")
    inside = {name: value for name in house.__all__ if isinstance(value := getattr(house, name), ModuleType)}
    lines = ["# The interface from Python", "", "Generated from the code by `make docs`; do not edit.", "", ABOUT, ""]
    lines += ["| module | what it is |", "| --- | --- |"]
    lines += [f"| [`apiece.{name}`](#apiece{name}) | {_first(module)} |" for name, module in inside.items()]
    lines += ["", "## apiece", "", *_table(house, [name for name in house.__all__ if name not in inside])]
    for name, module in inside.items():
        lines += ["", f"## apiece.{name}", "", _paragraph(module), "", *_table(module, module.__all__)]
    return "\n".join(lines) + "\n"


def _table(module: ModuleType, names: list[str]) -> list[str]:
    return ["| name | what it is |", "| --- | --- |", *(_row(module, name) for name in names)]


def _row(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return f"| `{name}` | {_first(value)} |"
    if isinstance(value, Registry):
        return f"| `{name}` | a `Registry` (kind: {value.kind}) of {len(value.own)} names; plug-ins: `{value.group}` |"
    if getattr(value, "__module__", "").startswith("apiece") and callable(value):
        return f"| `{name}{_signature(value)}` | {_first(value)} |"
    code, comment = _assigned(module, name)
    return f"| `{name}` | `{code}`{': ' if comment else ''}{comment} |"


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, pydantic.BaseModel | Exception):
        return ""
    plain = lambda p: p.replace(annotation=p.empty, default=p.default if p.default is p.empty else _Written(p.default))
    found = str(inspect.Signature([plain(p) for p in inspect.signature(value).parameters.values()]))
    return "" if inspect.isclass(value) and (found == "()" or len(found) > LONGEST) else found


class _Written:
    """A default as a signature shows it: a function, which has no text that is always the same, as dots."""

    def __init__(self, value: Any) -> None:
        self.text = "..." if callable(value) or " at 0x" in repr(value) else repr(value)

    def __repr__(self) -> str:
        return self.text


def _first(value: Any) -> str:
    """The first sentence of a text; a dot within one ("et al. 2018") does not end it."""
    return re.split(r"\. (?=[A-Z`])", _paragraph(value).replace("\n", " "))[0].rstrip(".").replace("|", "\\|")


def _paragraph(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0]


def _assigned(module: ModuleType, name: str) -> tuple[str, str]:
    """What a name that is no function is bound to where it is defined, as written there, and the comment behind it."""
    source = inspect.getsource(module)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return _assigned(importlib.import_module(node.module or ""), name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and [getattr(one, "id", "") for one in targets] == [name]:
            _, _, comment = source.splitlines()[(node.end_lineno or 1) - 1].partition("  # ")
            return ast.unparse(node.annotation if isinstance(node, ast.AnnAssign) else node.value), comment
    raise LookupError(f"{module.__name__} has no text for {name}")


if __name__ == "__main__":
    print(page(), end="")
