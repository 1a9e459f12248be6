"""Measure the cost of each kind of work on this machine by doing it a few times, in part if it is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from coterie.planning import work

FOR_ONE = 2.5  # seconds for one measurement; slower work is done in part
TOO_LONG = 10.0  # seconds after which work is not repeated, even if only its first time was slow
FOR_ALL = 12.0  # seconds for all measurements
TIMES = 5  # measurements of each kind
UNUSUAL = 2  # the first measurements, which record operations and allocate memory
GROWTH = 4  # factor from one tried part to the next

Do = Callable[[Sequence[Any]], list[Any]]
Measured = tuple[float, float]  # units of work, and seconds
Call = tuple[tuple[int, int, int], ...]  # for each lot: index of its price, units of work, workers that share it


@dataclass
class Price:
    """The price of one kind of work, in lots of about the same size."""

    number: int  # index among all prices
    share: tuple[int, int] | None = None  # jobs of a lot to do, and steps of each; None: all
    known: bool = False  # whether `share` has been determined
    measured: list[Measured] = field(default_factory=list)
    example: Any = None  # the result of the last job done

    def each(self) -> float:
        """Seconds per unit of work."""
        usual = self.measured[UNUSUAL:] or self.measured[-1:]
        return median(seconds / max(units, 1) for units, seconds in usual)

    def once(self) -> float:
        """Extra seconds that the first times took."""
        if self.share is not None or len(self.measured) <= UNUSUAL:
            return 0.0
        return sum(max(0.0, seconds - units * self.each()) for units, seconds in self.measured[:UNUSUAL])


class Prices:
    """All measurements so far, and the time left for more."""

    def __init__(self, workers: int, for_all: float = FOR_ALL, clock: Callable[[], float] = time.perf_counter) -> None:
        self.workers, self.left, self.clock = workers, for_all, clock
        self.by_kind: dict[Hashable, Price] = {}

    def of(self, purpose: str, kind: Hashable, jobs: int) -> Price:
        """The price of a kind of work, separately for lots of half or twice the size: larger stacks are cheaper."""
        return self.by_kind.setdefault((purpose, kind, jobs.bit_length()), Price(len(self.by_kind)))

    def measure(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        """Do some of these jobs if the price is not known well enough. Returns their results."""
        if not price.known:
            return self._find_share(price, jobs, do)
        if len(price.measured) >= (TIMES if self.left > 0 else UNUSUAL + 1) or price.measured[-1][1] > TOO_LONG:
            return []
        return self.timed(price, cut(jobs, price.share), do)

    def _find_share(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        """Try growing parts until the whole lot is known to be fast enough, or the next part is too slow."""
        price.known = True
        self.timed(price, cut(jobs, (1, 1)), do)  # warm-up
        price.measured.clear()
        whole = sum(map(work.amount, jobs))
        for share in shares(len(jobs), max(map(work.steps, jobs)), self.workers):
            results = self.timed(price, cut(jobs, share), do)
            units, seconds = price.measured[-1]
            limit = min(FOR_ONE, self.left)
            if units >= whole:
                return results
            if seconds * whole / max(units, 1) <= limit:
                break
            if seconds * GROWTH > limit:
                price.share = share
                return results
            price.measured.clear()
        price.measured.clear()
        return self.timed(price, jobs, do)

    def timed(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        began = self.clock()
        results = do(jobs)
        seconds = self.clock() - began
        self.left -= seconds
        price.measured.append((sum(map(work.amount, jobs)), seconds))
        price.example = results[-1]
        return results


def shares(jobs: int, steps: int, workers: int) -> Iterator[tuple[int, int]]:
    """Growing parts of a lot: first more jobs, then more steps of each."""
    some, count = min(jobs, workers), 1
    yield some, count
    while some < jobs:
        some = min(jobs, GROWTH * some)
        yield some, count
    while count < steps:
        count = min(steps, GROWTH * count)
        yield some, count


def cut(jobs: Sequence[Any], share: tuple[int, int] | None) -> list[Any]:
    return list(jobs) if share is None else [work.part(job, share[1]) for job in jobs[: share[0]]]


def of_call(call: Call, each: Sequence[float], workers: int) -> float:
    """Seconds for lots computed at the same time: lots that leave workers idle overlap with others."""
    lots = [(each[number] * units, share) for number, units, share in call]
    return max(max(seconds for seconds, _ in lots), sum(seconds * share for seconds, share in lots) / workers)
