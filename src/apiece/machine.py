"""What the machine has: cores and memory, on every system. What a system does not tell is assumed or left unknown."""

import math
import os
import sys
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
ASSUMED = 4 << 30  # bytes, where the system does not tell: what is larger goes to disk early, and nothing else changes


def count_cores() -> int:
    """How many cores this process may use; where the system does not tell, how many there are.

    >>> count_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # Linux: a container or a batch system may have given us few of them
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int:
    """Bytes of memory that this process may use: the machine's, or fewer if a container has a limit.

    >>> memory() > 0
    True
    """
    most = _physical_memory()
    for name in LIMITS:
        limit = Path(name)
        if limit.is_file() and (text := limit.read_text("utf-8").strip()).isdigit():
            most = min(most, int(text))
    return most


def peak_memory_mb() -> float:
    """The most memory this process has held so far, in megabytes; not a number where the system does not tell.

    >>> peak = peak_memory_mb()
    >>> peak > 0 or math.isnan(peak)
    True
    """
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux kilobytes


def _physical_memory() -> int:
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        return os.sysconf("SC_PAGE_SIZE") * pages if pages > 0 else ASSUMED
    except (AttributeError, ValueError, OSError):  # no sysconf (Windows), or one that does not know the name
        return ASSUMED
