"""Functions that peers asked to have computed: side by side in threads where that helps, else one after the other.

Threads help what torch or NumPy do in long strides. What Python does itself it does for one thread at a time, and the
threads take the turn away from each other: a search over ensembles took longer in two threads than in one.
Which of the two a function is shows when it is tried.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

Function = Callable[[], Any]
TRIES = 3  # of each way, of which the best counts: the first call of a function may have something to set up
LONG = 0.05  # seconds: of what takes longer, one try tells enough


class Caller:
    """Calls functions in the faster of two ways, which it finds out for each kind as it goes."""

    def __init__(self, pool: Executor, workers: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.pool, self.workers, self.clock = pool, workers, clock
        self._alone: dict[str, list[float]] = defaultdict(list)  # seconds a call, by kind
        self._together: dict[str, list[float]] = defaultdict(list)

    def call(self, functions: Sequence[Function]) -> list[Any]:
        """What these return."""
        results: list[Any] = [None] * len(functions)
        by_kind: dict[str, list[int]] = defaultdict(list)
        for place, function in enumerate(functions):
            by_kind[_kind(function)].append(place)
        for kind, places in by_kind.items():
            while places:
                many = self._at_once(kind, len(places))
                now, places = places[:many], places[many:]
                for place, result in zip(now, self._timed(kind, [functions[i] for i in now]), strict=True):
                    results[place] = result
        return results

    def _at_once(self, kind: str, left: int) -> int:
        """How many to call now, of so many that are left."""
        alone, together = self._alone[kind], self._together[kind]
        if self.workers == 1 or left == 1 or (not _enough(alone) and len(alone) <= len(together)):
            return 1
        if not _enough(together):
            return self.workers
        return left if min(together) < min(alone) else 1

    def _timed(self, kind: str, functions: Sequence[Function]) -> list[Any]:
        began = self.clock()
        if len(functions) == 1:
            tried, results = self._alone[kind], [functions[0]()]
        else:
            tried = self._together[kind]
            results = [future.result() for future in [self.pool.submit(function) for function in functions]]
        if not _enough(tried):
            tried.append((self.clock() - began) / len(functions))
        return results


def _enough(tried: Sequence[float]) -> bool:
    return len(tried) == TRIES or sum(tried) > LONG


def _kind(function: Function) -> str:
    """What is called, whatever with."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", type(inner)))
