"""How many compilers may run at once. `MAX_JOBS` overrides."""

import os
import re
from pathlib import Path

from . import fail

# nvcc's peak on a file of CUTLASS 3.x kernels, measured; a machine that swaps is slower than one
# that compiles in turn.
BYTES_PER_JOB = 7_500_000_000


def choose_jobs() -> int:
    text = os.environ.get("MAX_JOBS", "")
    if text:
        if not re.fullmatch(r"[1-9]\d*", text):
            fail(
                f"MAX_JOBS holds {text!r}, which is no positive integer",
                "set it to one or unset it",
            )
        return int(text)
    return bound_jobs(len(os.sched_getaffinity(0)), read_available_memory())


def bound_jobs(cores: int, memory: int) -> int:
    return max(1, min(cores, memory // BYTES_PER_JOB))


def read_available_memory() -> int:
    """Bytes that may be used: the machine's free memory, or the container's limit if smaller."""
    meminfo = Path("/proc/meminfo").read_text()
    available = int(re.search(r"MemAvailable:\s+(\d+) kB", meminfo)[1]) * 1024
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            available = min(available, int(Path(limit).read_text()))
        except (OSError, ValueError):  # no such controller, or "max"
            pass
    return available
