"""The API reference: a page per module of `apiece.__all__`, with every public name in full."""

import inspect
from types import ModuleType
from typing import Any

import apiece


def api_pages() -> dict[str, str]:
    """Every page by its path in the book.

    >>> "::: apiece.experiment.fit.fit" in api_pages()["api/index.md"]
    True
    """
    inside = {name: value for name in apiece.__all__ if isinstance(value := getattr(apiece, name), ModuleType)}
    top = [name for name in apiece.__all__ if name not in inside]
    about = "Every public name in full, with its example; [the same on one page, a line each](../ref-api.md)."
    lines = ["# API", "", about, "", *(f"- [`apiece.{name}`]({name}.md)" for name in inside), ""]  # fmt: skip
    pages = {"api/index.md": "\n".join([*lines, *_entries("apiece", apiece, top)])}
    for name, module in inside.items():
        head = [f"# apiece.{name}", "", (inspect.getdoc(module) or "").partition("\n\n")[0], ""]
        pages[f"api/{name}.md"] = "\n".join([*head, *_entries(f"apiece.{name}", module, module.__all__)])
    return pages


def _entries(path: str, module: ModuleType, names: list[str]) -> list[str]:
    shown = [name for name in names if _is_ours(getattr(module, name))]
    missing = [name for name in shown if not inspect.getdoc(getattr(module, name))]
    if missing:
        raise SystemExit(f"no docstring: {path}.{missing[0]}")
    others = ", ".join(f"`{name}`" for name in names if name not in shown)
    rest = [f"And {others}: [what they are](../ref-api.md#{path.replace('.', '')}).", ""] if others else []
    return rest + [line for name in shown for line in (f"::: {_home(getattr(module, name))}", "")]


def _is_ours(value: Any) -> bool:
    """A function or class of the house, and no alias of a type."""
    return callable(value) and getattr(value, "__module__", "").startswith("apiece")


def _home(value: Any) -> str:
    """Where it is defined: a function may have the name of its file, which would be found first."""
    return f"{value.__module__}.{value.__qualname__}"
