"""How much memory this process has needed so far."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak() -> int:
    """Bytes, of this process alone. (On Linux, `getrusage` would count its parent's memory at the start, too.)"""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
