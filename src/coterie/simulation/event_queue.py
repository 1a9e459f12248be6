"""What is to happen, in the order of simulated time."""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import Any

# The order of what happens at one instant.
DELIVER, RESUME, SERVE, EXPIRE, SILENCE = range(5)
TO_ALL = -1  # in the place of a peer
_PEER_AND_ORDER = itemgetter(0, 1)  # of an event


class Agenda:
    """Events by time, phase and peer; of one peer, in the order in which they were put down (or one given)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        # Most events share their time and phase with many others: so there is a list for each, and an order of lists.
        self._lists: dict[tuple[float, int], list[tuple[int, Any, Any]]] = {}
        self._order: list[tuple[float, int]] = []

    def __bool__(self) -> bool:
        return bool(self._order)

    def put(self, time: float, phase: int, peer: int, what: Any, order: Any = None) -> None:
        when = time, phase
        if when not in self._lists:
            self._lists[when] = []
            heapq.heappush(self._order, when)
        self._count += 1
        self._lists[when].append((peer, self._count if order is None else order, what))

    def instant(self) -> tuple[int, list[tuple[int, Any]]]:
        """Everything of the next time and phase: the phase, and whom it concerns with what. It is now that time."""
        when = heapq.heappop(self._order)
        self.now, phase = when
        return phase, [(peer, what) for peer, _, what in sorted(self._lists.pop(when), key=_PEER_AND_ORDER)]

    def has_only_departures(self) -> bool:
        """Whether all that will happen is that peers go away."""
        return all(
            phase == EXPIRE and what is None for (_, phase), events in self._lists.items() for _, _, what in events
        )
