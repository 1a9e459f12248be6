"""Runs the functions that peers pass to `me.compute`: in parallel threads if that is faster, else one by one.

Threads speed up long torch or NumPy operations. Pure Python runs one thread at a time (the GIL), and switching costs
time: a search over ensembles took longer in two threads than in one. Timing both ways decides for each function.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

Function = Callable[[], Any]
TRIES = 3  # timings of each way, of which the best counts: the first call of a function may do extra setup
LONG = 0.05  # seconds: for slower functions one timing is enough


class Caller:
    """Calls functions in the faster of two ways, which it determines for each kind by timing."""

    def __init__(self, pool: Executor, workers: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.pool, self.workers, self.clock = pool, workers, clock
        self._alone: dict[str, list[float]] = defaultdict(list)  # seconds per call, by kind
        self._together: dict[str, list[float]] = defaultdict(list)

    def call(self, functions: Sequence[Function]) -> list[Any]:
        """The return values of these functions, in order."""
        results: list[Any] = [None] * len(functions)
        by_kind: dict[str, list[int]] = defaultdict(list)
        for index, function in enumerate(functions):
            by_kind[_kind(function)].append(index)
        for kind, pending in by_kind.items():
            while pending:
                many = self._at_once(kind, len(pending))
                now, pending = pending[:many], pending[many:]
                for index, result in zip(now, self._timed(kind, [functions[i] for i in now]), strict=True):
                    results[index] = result
        return results

    def _at_once(self, kind: str, left: int) -> int:
        """How many of the remaining functions to call now."""
        alone, together = self._alone[kind], self._together[kind]
        if self.workers == 1 or left == 1 or (not _enough(alone) and len(alone) <= len(together)):
            return 1
        if not _enough(together):
            return self.workers
        return left if min(together) < min(alone) else 1

    def _timed(self, kind: str, functions: Sequence[Function]) -> list[Any]:
        start = self.clock()
        if len(functions) == 1:
            timings, results = self._alone[kind], [functions[0]()]
        else:
            timings = self._together[kind]
            results = [future.result() for future in [self.pool.submit(function) for function in functions]]
        if not _enough(timings):
            timings.append((self.clock() - start) / len(functions))
        return results


def _enough(timings: Sequence[float]) -> bool:
    return len(timings) == TRIES or sum(timings) > LONG


def _kind(function: Function) -> str:
    """The name of the function, whatever its arguments."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", type(inner)))
