"""The number of cores that this process may use: all of the machine's, or a share if other runs are beside it."""

from __future__ import annotations

import os

_given = 0


def machine_cores() -> int:
    return os.cpu_count() or 1


def given_cores() -> int:
    """The share of the cores that this process was given; 0 if it was given none, and may use all."""
    return _given


def usable_cores() -> int:
    return _given or machine_cores()


def give_cores(share: int) -> None:
    """Let this process use so many cores from now on; 0: all."""
    global _given
    _given = share
