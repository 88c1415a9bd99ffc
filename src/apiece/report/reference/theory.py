"""docs/ref-theory.md, generated from the docstrings: `make docs`."""

import importlib
import inspect
from types import ModuleType
from typing import Any

from apiece.theory.spectrum import IDENTITY

TITLES = {
    "asymptotics": "Asymptotic risks",
    "risk": "A risk",
    "crossovers": "Who beats whom",
    "finite": "Finitely many clients",
    "spectrum": "Covariances and their limits",
    "printed": "The formulas as printed",
    "linear": "Linear regression in closed form",
    "clup": "FedCLUP",
    "complexities": "FedCLUP and its rivals by order",
    "self_fl": "Self-FL",
    "all_for_all": "All-for-one and All-for-all",
    "all_for_all_rates": "How fast All-for-all converges",
    "ffgg": "FFGG",
    "robust": "Robust means",
}


def page() -> str:
    """Every public function of every line of theory, with its equation, its assumptions and an example.

    >>> page().splitlines()[0]
    '# Theory'
    """
    lines = [
        "# Theory",
        "",
        "Generated from the code by `make docs`; do not edit.",
        "",
        "Functions of NumPy numbers or arrays, in double precision; arguments broadcast. A value outside an assumption "
        "is an error that names the assumption. Formulas are the published ones, corrected where they are misprinted "
        "([the errata](explanation-errata.md)). `apiece theory` shows the most useful of them as tables and figures; "
        "[how much to personalize](explanation-how-much-to-personalize.md) puts them together.",
        "",
        "| line of theory | module | functions |",
        "| --- | --- | --- |",
    ]
    modules = {name: importlib.import_module(f"apiece.theory.{name}") for name in TITLES}
    for name, module in modules.items():
        names = ", ".join(f"`{function}`" for function, _ in _public(module))
        lines.append(f"| [{TITLES[name]}](#{_anchor(TITLES[name])}) | `apiece.theory.{name}` | {names} |")
    for name, module in modules.items():
        lines += ["", f"## {TITLES[name]}", "", _text(module)]
        for function, value in _public(module):
            lines += ["", f"### {function}", "", "```text", f"{function}{_signature(value)}", "```", "", _text(value)]
    return "\n".join(lines) + "\n"


def _public(module: ModuleType) -> list[tuple[str, Any]]:
    """Functions and types that the module itself defines, in the order of the file."""
    mine = lambda value: getattr(value, "__module__", None) == module.__name__
    named = [(name, value) for name, value in vars(module).items() if not name.startswith("_") and mine(value)]
    return [(name, value) for name, value in named if inspect.isfunction(value) or inspect.isclass(value)]


def _signature(value: Any) -> str:
    parameters = inspect.signature(value).parameters.values()
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain)).replace(str(IDENTITY), "IDENTITY")


def _text(value: Any) -> str:
    """The docstring, its examples in a block of code."""
    text = inspect.getdoc(value) or ""
    about, arrow, example = text.partition(">>>")
    return f"{about.strip()}\n\n```python\n{arrow}{example.rstrip()}\n```" if arrow else about.strip()


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


if __name__ == "__main__":
    print(page(), end="")
