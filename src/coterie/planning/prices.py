"""What work costs on this machine: each kind of it is done for real a few times, whole where that is quick enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from coterie.planning import work

FOR_ONE = 2.5  # seconds that doing some work once may take; what takes longer is done in part
TOO_LONG = 10.0  # seconds after which it is not done again, even if it may have been slow for being the first time
FOR_ALL = 12.0  # seconds for everything that is done for real
TIMES = 5  # that a kind is done for real
UNUSUAL = 2  # of them: the first ones, in which operations are recorded, and memory is got
GROWTH = 4  # from one part that is tried to the next

Do = Callable[[Sequence[Any]], list[Any]]
Measured = tuple[float, float]  # units of work, and seconds
Call = tuple[tuple[int, int, int], ...]  # of each lot: the number of its price, units of work, workers that share it


@dataclass
class Price:
    """Of one kind of work, in lots of about one size."""

    number: int  # which of all prices
    share: tuple[int, int] | None = None  # how many jobs of a lot are done, how many steps of each; None: all
    known: bool = False  # whether that has been found out
    measured: list[Measured] = field(default_factory=list)
    example: Any = None  # what the last job that was done gave

    def each(self) -> float:
        """Seconds for a unit of work."""
        usual = self.measured[UNUSUAL:] or self.measured[-1:]
        return median(seconds / max(units, 1) for units, seconds in usual)

    def once(self) -> float:
        """Seconds that the first times took longer."""
        if self.share is not None or len(self.measured) <= UNUSUAL:
            return 0.0
        return sum(max(0.0, seconds - units * self.each()) for units, seconds in self.measured[:UNUSUAL])


class Prices:
    """All that has been measured so far, and what may still be spent on it."""

    def __init__(self, workers: int, for_all: float = FOR_ALL, clock: Callable[[], float] = time.perf_counter) -> None:
        self.workers, self.left, self.clock = workers, for_all, clock
        self.by_kind: dict[Hashable, Price] = {}

    def of(self, what: str, kind: Hashable, jobs: int) -> Price:
        """Lots of half and of twice the size have prices of their own: stacked models are cheaper by the dozen."""
        return self.by_kind.setdefault((what, kind, jobs.bit_length()), Price(len(self.by_kind)))

    def measure(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        """Do some of these jobs for real, if the price is not known well enough; returns what they gave."""
        if not price.known:
            return self._find_share(price, jobs, do)
        if len(price.measured) >= (TIMES if self.left > 0 else UNUSUAL + 1) or price.measured[-1][1] > TOO_LONG:
            return []
        return self.timed(price, cut(jobs, price.share), do)

    def _find_share(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        """Larger and larger parts, until one can tell that the whole is quick enough, or the next is too slow."""
        price.known = True
        self.timed(price, cut(jobs, (1, 1)), do)  # the very first time tells nothing
        price.measured.clear()
        whole = sum(map(work.amount, jobs))
        for share in shares(len(jobs), max(map(work.steps, jobs)), self.workers):
            found = self.timed(price, cut(jobs, share), do)
            units, seconds = price.measured[-1]
            limit = min(FOR_ONE, self.left)
            if units >= whole:
                return found
            if seconds * whole / max(units, 1) <= limit:
                break
            if seconds * GROWTH > limit:
                price.share = share
                return found
            price.measured.clear()
        price.measured.clear()
        return self.timed(price, jobs, do)

    def timed(self, price: Price, jobs: Sequence[Any], do: Do) -> list[Any]:
        began = self.clock()
        found = do(jobs)
        seconds = self.clock() - began
        self.left -= seconds
        price.measured.append((sum(map(work.amount, jobs)), seconds))
        price.example = found[-1]
        return found


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
    """Seconds for lots that are computed at once: those that leave workers idle go along with others."""
    lots = [(each[number] * units, share) for number, units, share in call]
    return max(max(seconds for seconds, _ in lots), sum(seconds * share for seconds, share in lots) / workers)
