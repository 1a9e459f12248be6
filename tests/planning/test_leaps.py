"""Which rounds are rehearsed: all where there is time, and else some that stand for the others."""

from __future__ import annotations

import math

import pytest

from coterie.planning.leaps import FIRST, Leaps


def visited(leaps: Leaps) -> list[int]:
    rounds = [1]
    while rounds[-1] <= leaps.rounds:
        rounds.append(leaps.following(rounds[-1]))
    return rounds[:-1]


def test_all_rounds_while_there_is_time() -> None:
    leaps = Leaps(40, lambda: 1.0, math.inf)
    assert visited(leaps) == list(range(1, 41))
    assert leaps.stands_for == dict.fromkeys(range(41), 1)


def test_leaps_by_hand() -> None:
    """A second a round, and nine seconds for twenty rounds.

    After round 3 six seconds are left, for three stretches of two rehearsed rounds each. 16 rounds are left but for the
    last: the first stretch has 6, from 4 to 9. At 0.618 of it, int(3.7) rounds on, is 7, entered in 6. Then five rounds
    have been rehearsed, four seconds and 10 rounds are left: the second stretch is 10 to 14, and at 0.236 of it is 11.
    Then two seconds and 5 rounds: at 0.854 of 15 to 19 is 19. Then the last.
    """
    leaps = Leaps(20, lambda: float(leaps.rehearsed), 9.0)
    assert visited(leaps) == [1, 2, 3, 6, 7, 10, 11, 18, 19, 20]
    assert leaps.stands_for == {0: 1, 1: 1, 2: 1, 3: 1, 6: 0, 7: 6, 10: 0, 11: 5, 18: 0, 19: 5, 20: 1}


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 6, 7, 100, 1000])
@pytest.mark.parametrize("seconds", [0.0, 1.0, 10.0, 100.0])
def test_whatever_the_time_all_rounds_are_stood_for(rounds: int, seconds: float) -> None:
    leaps = Leaps(rounds, lambda: float(leaps.rehearsed), seconds)
    found = visited(leaps)
    assert found[-1] == rounds
    assert found[: min(rounds, FIRST)] == list(range(1, min(rounds, FIRST) + 1))
    assert sum(leaps.stands_for[round] for round in found) == rounds
    assert leaps.stands_for[rounds] == 1
    assert leaps.rehearsed == len(found)


def test_what_happens_in_every_tenth_round_is_met_about_as_often() -> None:
    leaps = Leaps(1000, lambda: float(leaps.rehearsed), 103.0)
    tenth = sum(leaps.stands_for[round] for round in visited(leaps) if round % 10 == 0)
    assert 70 <= tenth <= 130  # 100 of them


def test_participants_who_ask_later_get_the_same_answer() -> None:
    seconds = [0.0]
    leaps = Leaps(100, lambda: seconds[0], 10.0)
    first = [leaps.following(round) for round in (1, 2, 3, 4)]
    seconds[0] = 9.99
    assert [leaps.following(round) for round in (1, 2, 3, 4)] == first == [2, 3, 4, 5]
    assert leaps.following(5) > 6
