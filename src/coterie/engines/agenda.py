"""What is to happen, in the order of simulated time."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

# The order of what happens at one instant.
DELIVER, RESUME, SERVE, EXPIRE, SILENCE = range(5)
TO_ALL = -1  # in the place of a peer


class Agenda:
    """Events by time, phase and peer; of one peer, in the order in which they were put down (or one given)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, int, Any, Any]] = []
        self._count = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._events)

    def put(self, time: float, phase: int, peer: int, what: Any, order: Any = None) -> None:
        heapq.heappush(self._events, (time, phase, peer, next(self._count) if order is None else order, what))

    def instant(self) -> tuple[int, list[tuple[int, Any]]]:
        """Everything of the next time and phase: the phase, and whom it concerns with what. It is now that time."""
        events = self._events
        self.now, phase = events[0][:2]
        found = []
        while events and events[0][0] == self.now and events[0][1] == phase:
            _, _, peer, _, what = heapq.heappop(events)
            found.append((peer, what))
        return phase, found

    def has_only_departures(self) -> bool:
        """Whether all that will happen is that peers go away."""
        return all(phase == EXPIRE and what is None for _, phase, _, _, what in self._events)
