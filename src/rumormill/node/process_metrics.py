"""What the process costs, under the names that every exporter has for it.

Where there is no `/proc`, what only that knows is left out.
"""

import os
import resource
import time
from typing import Final

_PAGE: Final = resource.getpagesize()


def process_values() -> dict[str, float]:
    """Each figure by its name."""
    found = {
        "process_cpu_seconds": time.process_time(),
        "process_max_fds": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    }
    try:
        with open("/proc/self/statm") as file:
            virtual, resident = file.read().split()[:2]
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        open_files = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
    except OSError:
        return found
    return found | {
        "process_virtual_memory_bytes": float(virtual) * _PAGE,
        "process_resident_memory_bytes": float(resident) * _PAGE,
        "process_start_time_seconds": (
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + started
        ),
        "process_open_fds": float(open_files),
    }
