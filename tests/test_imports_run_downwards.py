"""The layers of the package, read off its source: a module imports only what stands below it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

SRC = Path(__file__).parents[1] / "src"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.glob("apiece/**/*.py"))

# Bottom to top, a layer a line; within a line, left to right. A part of the package (a module, or a folder as a whole)
# may import itself and what stands before it, nothing after it. `__init__` is the package's own: its public names.
ORDER = [
    *("errors", "machine", "jax_private", "own", "registry", "shelf", "protocol", "tree", "split", "files"),
    *("theory", "aggregate", "client", "estimate", "wrap", "methods"),
    *("data", "models", "engines", "evaluate", "testing"),
    *("experiment", "advise", "report", "deploy", "reproduce"),
    *("__init__", "cli", "__main__"),
]

ONLY_IN = {"flwr": ("apiece/engines/remote/flower.py", "apiece/deploy/")}
PRIVATE = ("jax._src", "jax.core", "jax.extend", "jax.interpreters", "jaxlib")  # which JAX moves when it pleases
PRIVATE_ONLY_IN = "apiece/jax_private.py"
NOWHERE = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve"}  # loading such a file runs its code


def imports(file: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, at the top or inside a function, and of private parts of JAX."""
    package = PurePosixPath(file).parent.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += (node.module,) if node.module else ()
            yield from ((node.lineno, ".".join((*base, alias.name))) for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in PRIVATE:  # `jax.core.f`, without an import
            yield node.lineno, ast.unparse(node)


def part(names: list[str]) -> str:
    """The entry of ORDER that ["apiece", "methods", "ditto"] belongs to."""
    return names[1] if len(names) > 1 and names[1] in ORDER else "__init__"


def violations(file: str, source: str) -> list[str]:
    """What is wrong with the imports of a file, given by its path below src/."""
    here = part(file.removesuffix(".py").split("/"))
    found = []
    for line, name in imports(file, source):
        top, *_ = names = name.split(".")
        if top == "apiece" and ORDER.index(part(names)) > ORDER.index(here):
            found.append(f"{file}:{line}: {here} imports {name}, which stands above it")
        if top in NOWHERE:
            found.append(f"{file}:{line}: {name} is imported nowhere")
        if file != PRIVATE_ONLY_IN and any(f"{name}.".startswith(f"{private}.") for private in PRIVATE):
            found.append(f"{file}:{line}: only {PRIVATE_ONLY_IN} has {name}, which JAX does not promise to keep")
        if top in ONLY_IN and not file.startswith(ONLY_IN[top]):
            found.append(f"{file}:{line}: only {' and '.join(ONLY_IN[top])} import {top}")
    return found


@pytest.mark.parametrize("file", FILES)
def test_imports_run_downwards(file):
    assert not violations(file, (SRC / file).read_text(encoding="utf-8"))


def test_every_module_has_its_place_in_the_order():
    parts = {file.removesuffix(".py").split("/")[1] for file in FILES}
    assert parts, f"no modules found below {SRC}"
    assert parts <= set(ORDER)


def test_the_map_for_contributors_has_every_room_in_this_order():
    text = (SRC.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"\]\(src/apiece/(\w+)(?:\.py)?\)", text.partition("## The house")[2].partition("\n## ")[0])
    assert rooms == [room for room in ORDER if not room.startswith("__")]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("apiece/tree.py", "from apiece.client.descend import descend"),
        ("apiece/methods/ditto.py", "from apiece.engines import vectorized"),
        ("apiece/methods/ditto.py", "def f():\n    import apiece.engines.simulation.vectorized"),
        ("apiece/methods/ditto.py", "from ..engines.vectorized import run"),
        ("apiece/methods/__init__.py", "from .. import engines"),
        ("apiece/wrap/tuned.py", "from apiece import methods"),
        ("apiece/engines/remote/halves.py", "from apiece import fit"),
        ("apiece/report/page.py", "import apiece"),
        ("apiece/__init__.py", "from apiece.cli import main"),
        ("apiece/engines/remote/halves.py", "import flwr.server"),
        ("apiece/cli/runs.py", "def f():\n    from flwr.client import ClientApp"),
        ("apiece/experiment.py", "if True:\n    import pickle"),
        ("apiece/engines/remote/halves.py", "from pickle import loads"),
        ("apiece/tree.py", "from jax._src.core import Tracer"),
        ("apiece/models/swap.py", "from jax import extend"),
        ("apiece/models/swap.py", "import jax\n\ndef f(x):\n    return isinstance(x, jax.core.Tracer)"),
    ],
)
def test_a_bad_import_is_found(file, source):
    assert len(violations(file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("apiece/methods/ditto.py", "from apiece import tree\nfrom apiece.methods.fed_avg import fed_avg"),
        ("apiece/methods/ditto.py", "from .. import tree\nfrom . import fed_avg\nfrom .fed_avg import fed_avg"),
        ("apiece/methods/__init__.py", "from .ditto import ditto\nfrom ..wrap import fine_tuned"),
        ("apiece/engines/remote/flower.py", "import flwr\nfrom apiece.engines.remote import halves"),
        ("apiece/__init__.py", "from apiece.experiment import compare"),
        ("apiece/cli/runs.py", "import apiece\nimport jax, numpy as np"),
        ("apiece/jax_private.py", "from jax._src.callback import _callback_op_sharding"),
        ("apiece/client/descend.py", "from jax.ad_checkpoint import checkpoint_name\nimport jax.extended"),
    ],
)
def test_a_good_import_passes(file, source):
    assert not violations(file, source)
