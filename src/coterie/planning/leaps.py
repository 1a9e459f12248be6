"""Choose the rounds of a long run to rehearse, and how many rounds each of them represents."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

FOR_ROUNDS = 8.0  # seconds for everything except computing
FIRST = 3  # rounds that are always rehearsed
GOLDEN = 0.618  # spreads positions within stretches, so that periodic work is sampled in proportion


class Leaps:
    """Rehearses all rounds while there is time, then one of each stretch of equal length, and the last round.

    A leap ends one round before the round that counts, as a warm-up for peers that depend on the previous round.
    """

    def __init__(self, rounds: int, spent: Callable[[], float], for_rounds: float = FOR_ROUNDS) -> None:
        """`spent` returns the seconds so far."""
        self.rounds, self.spent, self.for_rounds = rounds, spent, for_rounds
        self.stands_for = {0: 1, 1: 1}  # by round; 0 is the set-up
        self._next: dict[int, int] = {}
        self._until = 1  # the last round represented so far
        self._leaps = 0

    @property
    def rehearsed(self) -> int:
        return len(self.stands_for) - 1

    def following(self, round: int) -> int:
        """The next round to rehearse. All participants ask, and get the same answer."""
        if round not in self._next:
            self._next[round] = self._decide(round)
        return self._next[round]

    def _decide(self, round: int) -> int:
        if round + 1 in self.stands_for or round >= self.rounds:
            return round + 1
        length = self._stretch(round)
        counted = self._until + 1 + self._place(length)
        self._until += length
        if counted - 1 > round:
            self.stands_for[counted - 1] = 0
        self.stands_for[counted] = length
        return max(round + 1, counted - 1)

    def _stretch(self, round: int) -> int:
        """The number of rounds that the next counted round represents. The last represents only itself."""
        left, each = self.for_rounds - self.spent(), self.spent() / self.rehearsed
        remaining = self.rounds - 1 - self._until
        if remaining <= 0 or round < FIRST or (remaining + 1) * each <= left:
            return 1
        leaps = max(1, int(left / each) // 2)
        return min(remaining, max(2, ceil(remaining / leaps)))

    def _place(self, length: int) -> int:
        """The position of the counted round within its stretch."""
        if length == 1:
            return 0
        self._leaps += 1
        return int(self._leaps * GOLDEN % 1 * length)
