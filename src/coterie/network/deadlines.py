"""How long to wait for others: learned from how long they took of late, so that nobody has to guess it."""

from __future__ import annotations

import statistics
from collections import deque

RECENT = 20  # fetches that are remembered
FACTOR = 3.0  # a round may take three times as long as the slow ones of late
LEAST = 2.0  # seconds


class Deadline:
    def __init__(self, fixed: float, first: float) -> None:
        """`fixed` is used as it is, if it is not 0; else `first` until something was learned, and never more."""
        self.fixed, self.first = fixed, first
        self.recent: deque[float] = deque(maxlen=RECENT)

    @property
    def seconds(self) -> float:
        if self.fixed:
            return self.fixed
        if not self.recent:
            return self.first
        # The longest but one: what happened once (a first round, a cable that was mended) is no reason to expect it.
        slow = sorted(self.recent)[-2:][0]
        return min(self.first, max(LEAST, FACTOR * slow))

    def learn(self, seconds: float) -> None:
        """Those who answered took so long. (Who did not answer teaches nothing: the dead would raise it for ever.)"""
        self.recent.append(seconds)


class Pace:
    """How long a round of one's own takes, without the waiting for others: so a peer that is behind can say whether
    it will have something in time."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=RECENT)

    def learn(self, seconds: float) -> None:
        self.recent.append(seconds)

    def of_rounds(self, count: int) -> float:
        """Seconds that so many rounds will take, as far as one knows."""
        return count * statistics.median(self.recent) if self.recent else 0.0
