"""Deadlines for other peers, learned from recent response times."""

from __future__ import annotations

import statistics
from collections import deque

RECENT = 20  # samples kept
FACTOR = 3.0  # the deadline, in multiples of the recent slow fetches
LEAST = 2.0  # seconds


class Deadline:
    def __init__(self, fixed: float, first: float) -> None:
        """`fixed` is the deadline unless it is 0. Otherwise `first` is the initial deadline and the maximum."""
        self.fixed, self.first = fixed, first
        self.recent: deque[float] = deque(maxlen=RECENT)

    @property
    def seconds(self) -> float:
        if self.fixed:
            return self.fixed
        if not self.recent:
            return self.first
        # The second longest: ignores a single outlier such as the first round or a network outage.
        slow = sorted(self.recent)[-2:][0]
        return min(self.first, max(LEAST, FACTOR * slow))

    def learn(self, seconds: float) -> None:
        """Record how long the answers took. Timeouts are not counted: dead peers would raise the deadline forever."""
        self.recent.append(seconds)


class Pace:
    """How long this peer's own rounds take, without waiting for others: tells a peer that is behind whether it will
    have an artifact in time."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=RECENT)

    def learn(self, seconds: float) -> None:
        self.recent.append(seconds)

    def of_rounds(self, count: int) -> float:
        """Estimated seconds for this number of rounds."""
        return count * statistics.median(self.recent) if self.recent else 0.0
