"""How a simulation's programs are compiled: for long runs, or for a few seconds of work."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from apiece.client.draw import write_out_loops


def compiled(program: Callable, brief: bool = False, **how: Any) -> Any:
    """`jax.jit` with what was measured to be the better bargain on a CPU (docs/ref-benchmarks.md).

    The compiler's second and third level of optimization take an eighth of its time, and programs are no faster by it.
    `brief`: without its newer way to write out fusions it takes half of its time, and programs run up to a quarter
    slower. Who has told JAX to optimize little, as our tests do, is obeyed, and so is another kind of device.

    >>> compiled(lambda x: x + 1, brief=True)(2).item()
    3
    """
    if jax.config.read("jax_disable_most_optimizations") or jax.default_backend() != "cpu":
        return jax.jit(program, **how)
    options: dict[str, Any] = {"xla_backend_optimization_level": 1}
    if not brief:
        return jax.jit(program, compiler_options=options, **how)

    @functools.wraps(program)
    def written_out(*args: Any, **named: Any) -> Any:
        with write_out_loops():
            return program(*args, **named)

    return jax.jit(written_out, compiler_options=options | {"xla_cpu_use_fusion_emitters": False}, **how)
