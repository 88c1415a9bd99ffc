"""Where an experiment ran: versions, devices, the revision of the working folder."""

import platform
import subprocess
from importlib.metadata import version

import jax

from apiece.experiment.record import Environment


def environment() -> Environment:
    """Versions, platform, devices.

    >>> sorted(environment().packages)
    ['apiece', 'jax', 'jaxlib', 'numpy', 'optax', 'scipy']
    """
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        packages={name: version(name) for name in ("apiece", "jax", "jaxlib", "numpy", "optax", "scipy")},
        devices=[f"{d.platform}:{d.device_kind}" for d in jax.devices()],
    )


def revision() -> str | None:
    """The git revision of the working folder, if it is one."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
