"""How much of the machine this process may use."""

import os


def n_cores() -> int:
    """Fewer than the machine has, in a container or under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
