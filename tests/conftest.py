"""What holds for every test: types checked, two devices, one compile cache, fixed examples."""

import ast
import os
import sys
from pathlib import Path

# In the environment, not in jax.config: the command-line processes that tests start share the cache.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Programs of tests run once each: most of their time is the compiler's. Its optimizations double that, and so does its
# newer way to write out fusions. Both are what users run: whoever names them decides (the slow tests of `.ci/run` have
# them as users do), and a test whose rounds are many asks for the first with the mark `optimized`. A program in parts,
# for several cores to write at once, takes a third more of them all, which the other worker could have used.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
if "codegen_split" not in os.environ["XLA_FLAGS"]:
    os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"

import hypothesis
import jax
import jaxtyping
import pytest
from jaxtyping import _import_hook

jax.config.update("jax_num_cpu_devices", 2)  # before any array exists: even one core can test the division of work

assert "apiece" not in sys.modules, "the import hook below must come before the first import of apiece"


def decorate_without_descending(transformer, node):
    """Of a function, the outermost alone: a factory's inner functions would be decorated anew at every call, which
    took a third of the time of all tests; mypy reads them. By the checker itself where a file has no shapes to compare:
    jaxtyping's wrapper binds the arguments of every call by `inspect`, which took a quarter of a remote run."""
    wrapped = transformer._typechecker.get_ast()
    imports = (child for child in transformer._parents[0].body if isinstance(child, ast.ImportFrom))
    shapes = any(child.module == "jaxtyping" for child in imports)
    checker = wrapped if shapes else wrapped.keywords[0].value
    node.decorator_list.append(ast.copy_location(checker, node))
    return node


_import_hook.JaxtypingTransformer.visit_FunctionDef = decorate_without_descending
# With the numeric tower an int is a float, as for every static checker.
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True)  )"
jaxtyping.install_import_hook("apiece", CHECKER)  # the blanks tell its compiled files from those decorated otherwise

hypothesis.settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,  # the first example pays for the compilation
    max_examples=25,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,  # x64 below is the same for every example
    ],
)
hypothesis.settings.load_profile("fixed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """With the mark `optimized` (or slow), a test and the fixtures that are made for it are compiled as for users."""
    hasty = jax.config.read("jax_disable_most_optimizations")
    if item.get_closest_marker("optimized") or item.get_closest_marker("slow"):
        jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", hasty)


@pytest.fixture
def x64():
    """Float64 within one test; everywhere else arrays are float32, as users have them."""
    with jax.enable_x64(True):
        yield
