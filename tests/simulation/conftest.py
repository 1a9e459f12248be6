"""Ends tests that take longer than a minute, with a traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 60


@pytest.fixture(autouse=True)
def never_a_hang() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise TimeoutError(f"the test hung for {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
