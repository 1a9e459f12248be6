"""The peak memory of this process, and the frequency of its garbage collection."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_OBJECTS = 50_000  # between two garbage collections, instead of Python's 700


def peak() -> int:
    """Peak memory of this process in bytes. (On Linux, `getrusage` would include its parent's memory at the start.)"""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often: by default it takes a tenth of the time of a round of small models."""
    before = gc.get_threshold()
    gc.set_threshold(max(NEW_OBJECTS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
