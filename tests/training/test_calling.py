"""Which functions are computed in parallel, with a clock that the functions themselves advance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby

import pytest

from coterie.training.calling import LONG, TRIES, Caller


class Play:
    """Functions that take so long alone, and so long (for each of them) side by side."""

    def __init__(self, alone: float, together: float, workers: int = 2) -> None:
        self.times = {True: alone, False: together}
        self.now, self.lock = 0.0, threading.Lock()
        self.ways: list[bool] = []  # for each call: whether it ran alone, in the caller's thread
        self.pool = ThreadPoolExecutor(workers)
        self.caller = Caller(self.pool, workers, lambda: self.now)

    def function(self, number: int) -> int:
        alone = threading.current_thread() is threading.main_thread()
        with self.lock:
            self.ways.append(alone)
            self.now += self.times[alone]
        return 10 * number

    def call(self, count: int) -> list[int]:
        return self.caller.call([partial(self.function, i) for i in range(count)])

    @property
    def spans(self) -> list[tuple[bool, int]]:
        return [(alone, len(list(some))) for alone, some in groupby(self.ways)]


QUICK = LONG / 100
IN_TURNS = [(True, 1), (False, 2)] * TRIES  # one alone, and two side by side


def test_each_way_is_tried_and_the_faster_one_kept() -> None:
    slower_together = Play(alone=QUICK, together=2 * QUICK)
    assert slower_together.call(20) == [10 * i for i in range(20)]
    assert slower_together.spans == [*IN_TURNS, (True, 20 - 3 * TRIES)]
    faster_together = Play(alone=QUICK, together=0.6 * QUICK)
    assert faster_together.call(20) == [10 * i for i in range(20)]
    assert faster_together.spans == [*IN_TURNS[:-1], (False, 2 + 20 - 3 * TRIES)]


def test_what_takes_long_is_tried_once() -> None:
    play = Play(alone=2 * LONG, together=3 * LONG)
    play.call(10)
    assert play.spans == [(True, 1), (False, 2), (True, 7)]


def test_what_was_found_out_holds_for_later_calls_and_for_that_function_alone() -> None:
    play = Play(alone=2 * LONG, together=LONG)
    play.call(3)
    play.ways.clear()
    play.call(5)
    assert play.spans == [(False, 5)]
    play.ways.clear()

    def another() -> bool:
        return play.function(0) == 0

    play.caller.call([another] * 3)
    assert play.spans == [(True, 1), (False, 2)]


@pytest.mark.parametrize(("workers", "count"), [(1, 6), (2, 1)])
def test_where_there_is_no_choice_nothing_is_tried(workers: int, count: int) -> None:
    play = Play(alone=QUICK, together=0.0, workers=workers)
    for _ in range(3):
        play.call(count)
    assert play.spans == [(True, 3 * count)]


@pytest.mark.parametrize("alone", [QUICK, 3 * QUICK])
def test_several_kinds_come_back_in_their_order(alone: float) -> None:
    play = Play(alone, 2 * QUICK)
    functions: list[Callable[[], int]] = [(lambda: -1) if i % 3 else partial(play.function, i) for i in range(30)]
    assert play.caller.call(functions) == [-1 if i % 3 else 10 * i for i in range(30)]


def test_an_error_is_raised() -> None:
    def wrong() -> None:
        raise ZeroDivisionError

    play = Play(QUICK, QUICK)
    for count in (1, 2, 9):
        with pytest.raises(ZeroDivisionError):
            play.caller.call([wrong] * count)
