"""The command line as a process of its own, and how long to wait for it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
from typer.testing import CliRunner, Result

from apiece.cli import app

PATIENCE = 300  # seconds; a busy machine is slow
# Where Ctrl-C is ignored by whoever started the tests, it would be ignored here as well.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from apiece.cli import main; main()"
SPEC = """
seeds = [0, 1]
tune = 2
[data.options]
clients = 12
partition = "dirichlet_per_class"
alpha = 1.0
[train]
rounds = 3
cohort = 5
evaluate_every = 1
"""


def environment() -> dict[str, str]:
    """Eighty columns, and as many devices as this process has: sums are then the same to the last bit."""
    chosen = {"COLUMNS": "80", "NO_COLOR": "1", "JAX_NUM_CPU_DEVICES": str(len(jax.devices()))}
    return {**os.environ, **chosen}


def start(*arguments, cwd: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", START, *map(str, arguments)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return subprocess.Popen(command, cwd=cwd, env=environment(), text=True, **pipes)


def apiece(*arguments, cwd: Path) -> subprocess.CompletedProcess:
    """Run to the end. Whatever happens, the user sees no traceback and no warning."""
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err and "Warning" not in err, err
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def stop_when(process: subprocess.Popen, path: Path, signal: int) -> tuple[str, str]:
    """Send the signal as soon as the file is there."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, f"ended too early: {process.stderr.read()}"
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.002)
    process.send_signal(signal)
    return process.communicate(timeout=PATIENCE)


def call(*arguments, code: int = 0) -> Result:
    """The same in this process: an exception that is no exit would be a traceback for the user."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result
