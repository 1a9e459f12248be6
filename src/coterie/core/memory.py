"""How much memory this process has needed so far, and how often it looks for garbage."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_OBJECTS = 50_000  # between two searches for garbage, instead of Python's 700


def peak() -> int:
    """Bytes, of this process alone. (On Linux, `getrusage` would count its parent's memory at the start, too.)"""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def seldom_searched() -> Iterator[None]:
    """Python looks for cycles of garbage again and again: a tenth of the time of a round of small models."""
    usual = gc.get_threshold()
    gc.set_threshold(max(NEW_OBJECTS, usual[0]) if usual[0] else 0, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
