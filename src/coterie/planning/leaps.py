"""Which rounds of a long run are rehearsed, and for how many each of them stands."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

FOR_ROUNDS = 8.0  # seconds for all that is not computing
FIRST = 3  # rounds that are always rehearsed
GOLDEN = 0.618  # spreads where in its stretch a round is: what is done in every tenth is met as often as it should be


class Leaps:
    """All rounds while there is time for that, then one of each stretch of equal length; and the last.

    A leap ends one round before the one that counts: who follows others' steps has to find in again.
    """

    def __init__(self, rounds: int, spent: Callable[[], float], for_rounds: float = FOR_ROUNDS) -> None:
        """`spent` tells the seconds so far."""
        self.rounds, self.spent, self.for_rounds = rounds, spent, for_rounds
        self.stands_for = {0: 1, 1: 1}  # by round; 0 is the set-up
        self._next: dict[int, int] = {}
        self._until = 1  # the last round that is stood for
        self._leaps = 0

    @property
    def rehearsed(self) -> int:
        return len(self.stands_for) - 1

    def following(self, round: int) -> int:
        """The round to go on to. All participants ask, and get the same answer."""
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
        """For how many rounds the next one that counts stands. The last stands for itself."""
        left, each = self.for_rounds - self.spent(), self.spent() / self.rehearsed
        to_do = self.rounds - 1 - self._until
        if to_do <= 0 or round < FIRST or (to_do + 1) * each <= left:
            return 1
        leaps = max(1, int(left / each) // 2)
        return min(to_do, max(2, ceil(to_do / leaps)))

    def _place(self, length: int) -> int:
        """Where in its stretch the round is that counts."""
        if length == 1:
            return 0
        self._leaps += 1
        return int(self._leaps * GOLDEN % 1 * length)
