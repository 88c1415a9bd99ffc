"""Things of one's own: where a function can be imported from, and whether its code is still the same.

A file never holds an object. It says where it is imported from, "package.module:name" or "folder/file.py:name", and
what the code's hash was; or "given:label", for what cannot be imported and is given again by whoever reads the file.
"""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from apiece.errors import UserError

GIVEN = "given:"
IGNORED = {"report", "cli"}  # rooms of apiece itself that change no number


def import_thing(path: str, kind: str = "thing") -> Any:
    """What is at "package.module:name" or "folder/file.py:name".

    >>> import_thing("math:sqrt")(9.0)
    3.0
    >>> try: import_thing("maths:sqrt", "method")
    ... except UserError as error: print(str(error).partition(" (")[0])
    method 'maths:sqrt': there is no module 'maths' to import
    """
    where, _, name = path.rpartition(":")
    if where == GIVEN.rstrip(":"):
        raise UserError(f"the {kind} '{name}' was given as an object, which no file can hold; give it again: "
                        f"apiece.resume(folder, given={{'{name}': ...}})")  # fmt: skip
    try:
        module = _file_module(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except UserError as error:
        raise UserError(f"{kind} '{path}': {error}") from None
    except (ImportError, ValueError) as error:
        raise UserError(f"{kind} '{path}': there is no module '{where}' to import ({error}); "
                        "is its folder on PYTHONPATH?") from None  # fmt: skip
    except Exception as error:  # the user's own code, as it is imported
        raise UserError(f"{kind} '{path}': importing it failed: {raised_in(error)}") from error
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        raise UserError(f"{kind} '{path}': the module '{where}' has no '{name}'") from None


def _file_module(path: Path) -> ModuleType:
    """A file as a module: imported once, with its own folder on the path, as Python does with a script."""
    path = path.resolve()
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    name = f"apiece_own_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # of a file that is there
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def path_of(thing: Any) -> str | None:
    """Where a thing can be imported from, so that another process finds the same one; None: it cannot.

    >>> path_of(Path), path_of(lambda: None)
    ('pathlib:Path', None)
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__" or module not in sys.modules:
        return None
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except AttributeError:
        return None
    if found is not thing:
        return None
    if module.startswith("apiece_own_"):
        return f"{sys.modules[module].__file__}:{name}"
    return f"{module}:{name}"


def hash_code(thing: Any) -> str:
    """A hash of the source that a thing is written in: its module's file, or all files of its package.

    >>> hash_code(path_of) == hash_code(hash_code), len(hash_code(path_of))
    (True, 16)
    """
    while isinstance(thing, functools.partial):
        thing = thing.func
    thing = thing if hasattr(thing, "__module__") else type(thing)
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        try:
            return _digest([inspect.getsource(thing).encode()])
        except (OSError, TypeError):
            return ""  # nothing to read: typed into a shell
    top = sys.modules.get(module.__name__.partition(".")[0])
    inside = getattr(top, "__path__", None)  # a package: what it imports of itself counts
    return hash_files(sorted(Path(next(iter(inside))).rglob("*.py")) if inside else [Path(file)])


def hash_files(files: Iterable[Path]) -> str:
    """A hash of what the files hold, in their order."""
    return _digest(file.read_bytes() for file in files)


@functools.cache
def hash_apiece() -> str:
    """A hash of the code of apiece itself, but for what changes no number."""
    root = Path(__file__).parent
    return hash_files(f for f in sorted(root.rglob("*.py")) if f.relative_to(root).parts[0] not in IGNORED)


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:16]


def raised_in(error: BaseException) -> str:
    """What a stranger's code raised, and in which line of which file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})" if trace is not None else ""
    return f"{type(error).__name__}: {error}{place}"
