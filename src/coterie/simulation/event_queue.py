"""The simulation's event queue, ordered by simulated time."""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import Any

# The phases of one instant, in order.
DELIVER, RESUME, SERVE, EXPIRE, SILENCE = range(5)
TO_ALL = -1  # in place of a peer
_PEER_AND_ORDER = itemgetter(0, 1)  # of an event


class EventQueue:
    """Events by time, phase and peer; those of one peer in the order in which they were put (or a given one)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        # Many events share their time and phase: one list for each of these, and a heap of the keys.
        self._lists: dict[tuple[float, int], list[tuple[int, Any, Any]]] = {}
        self._heap: list[tuple[float, int]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def put(self, time: float, phase: int, peer: int, what: Any, order: Any = None) -> None:
        when = time, phase
        if when not in self._lists:
            self._lists[when] = []
            heapq.heappush(self._heap, when)
        self._count += 1
        self._lists[when].append((peer, self._count if order is None else order, what))

    def pop(self) -> tuple[int, list[tuple[int, Any]]]:
        """Remove the events of the next time and phase; returns the phase, and (peer, what) pairs. Sets `now`."""
        when = heapq.heappop(self._heap)
        self.now, phase = when
        return phase, [(peer, what) for peer, _, what in sorted(self._lists.pop(when), key=_PEER_AND_ORDER)]

    def has_only_departures(self) -> bool:
        """Whether all remaining events are departures of peers."""
        return all(
            phase == EXPIRE and what is None for (_, phase), events in self._lists.items() for _, _, what in events
        )
