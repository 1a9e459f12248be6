"""What work costs, from made-up figures and a clock that the work itself moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from coterie.core.jobs import EvaluateJob, FitJob, Pool, Split, TrainSettings
from coterie.core.loss import cross_entropy
from coterie.core.model import Architecture
from coterie.models import ModelSettings, build
from coterie.planning import work
from coterie.planning.prices import Price, Prices, of_call, shares


class Machine:
    """Does work at so many seconds a unit, and some more each of the first times."""

    def __init__(self, each: float, more: Sequence[float] = ()) -> None:
        self.each, self.more = each, list(more)
        self.now = 0.0
        self.done: list[int] = []  # units, each time

    def do(self, jobs: Sequence[Any]) -> list[Any]:
        self.done.append(sum(map(work.amount, jobs)))
        self.now += self.each * self.done[-1] + (self.more.pop(0) if self.more else 0.0)
        return [0.5] * len(jobs)

    def prices(self, for_all: float = 12.0) -> Prices:
        return Prices(2, for_all, lambda: self.now)


def jobs(count: int, units: int = 10) -> list[Any]:
    """Functions of so many numbers."""
    return [partial(len, np.zeros(units)) for _ in range(count)]


def test_quick_work_is_done_whole() -> None:
    """One job to begin with, two to see that all would take 80 * 0.01 s, and all."""
    machine = Machine(0.01)
    prices = machine.prices()
    price = prices.of("training", "x", 8)
    assert prices.measure(price, jobs(8), machine.do) == [0.5] * 8
    assert machine.done == [10, 20, 80]
    assert price.share is None
    assert price.measured == [(80, pytest.approx(0.8))]
    assert price.each() == pytest.approx(0.01)


def test_slow_work_is_done_in_part() -> None:
    """Two jobs take 2 s: eight of them would take 8 s, longer than anything may."""
    machine = Machine(0.1)
    prices = machine.prices()
    price = prices.of("training", "x", 32)
    assert len(prices.measure(price, jobs(32), machine.do)) == 2
    assert machine.done == [10, 20]
    assert price.share == (2, 1)
    assert price.each() == pytest.approx(0.1)


def test_larger_and_larger_parts() -> None:
    """Two jobs take 0.4 s: all 64 would take 12.8 s, but eight can be tried. They take 1.6 s, four times that is more
    than 2.5 s."""
    machine = Machine(0.02)
    prices = machine.prices()
    price = prices.of("training", "x", 64)
    prices.measure(price, jobs(64), machine.do)
    assert machine.done == [10, 20, 80]
    assert price.share == (8, 1)


def test_the_first_times_are_apart() -> None:
    """Of five times 80 units, the first takes 2 s more and the second 0.5 s."""
    machine = Machine(0.01, more=[0, 0, 2.0, 0.5])
    prices = machine.prices()
    price = prices.of("training", "x", 8)
    for _ in range(10):
        prices.measure(price, jobs(8), machine.do)
    assert machine.done[2:] == [80] * 5
    assert price.each() == pytest.approx(0.01)
    assert price.once() == pytest.approx(2.5)


def test_when_the_time_is_up_little_is_done() -> None:
    machine = Machine(0.01)
    prices = machine.prices(for_all=0.0)
    price = prices.of("training", "x", 8)
    for _ in range(10):
        prices.measure(price, jobs(8), machine.do)
    assert machine.done == [10, 20, 20, 20]
    assert price.each() == pytest.approx(0.01)


def test_lots_of_other_sizes_have_other_prices() -> None:
    prices = Machine(0.01).prices()
    assert prices.of("training", "x", 4) is prices.of("training", "x", 7)
    assert prices.of("training", "x", 4) is not prices.of("training", "x", 8)
    assert prices.of("training", "x", 4) is not prices.of("evaluating", "x", 4)


def test_shares_grow_to_the_whole() -> None:
    assert list(shares(20, 9, 2)) == [(2, 1), (8, 1), (20, 1), (20, 4), (20, 9)]
    assert list(shares(1, 1, 8)) == [(1, 1)]


def test_what_is_computed_at_once() -> None:
    """Prices of 0.01 and 0.1 s a unit, four workers."""
    each = [0.01, 0.1]
    # One lot that keeps all of them busy: 100 * 0.01 s.
    assert of_call(((0, 100, 4),), each, 4) == pytest.approx(1.0)
    # Two such lots, one after the other.
    assert of_call(((0, 100, 4), (1, 20, 4)), each, 4) == pytest.approx(3.0)
    # Each with one worker: side by side, as long as the longer of them.
    assert of_call(((0, 100, 1), (1, 20, 1)), each, 4) == pytest.approx(2.0)
    # (1 s * 4 + 2 s * 2) / 4 workers.
    assert of_call(((0, 100, 4), (1, 20, 2)), each, 4) == pytest.approx(2.0)


def test_a_price_that_was_measured_once() -> None:
    price = Price(0, measured=[(50, 1.0)])
    assert price.each() == pytest.approx(0.02)
    assert price.once() == 0.0


# -- units of work -----------------------------------------------------------------------------


@pytest.fixture
def pool() -> Pool:
    return Pool(torch.zeros(100, 6), torch.zeros(100, dtype=torch.int64))


@pytest.fixture
def architecture() -> Architecture:
    return Architecture("mlp", partial(build, "mlp", (6,), 3, ModelSettings(hidden=(4,))))


def test_units_of_training(pool: Pool, architecture: Architecture) -> None:
    settings = TrainSettings(epochs=3, batch=8)
    job = FitJob(architecture.initial(0), Split(pool, torch.arange(30)), cross_entropy, settings, (0,))
    assert work.amount(job) == 90
    assert work.steps(job) == 4  # 8, 8, 8, 6
    part = work.part(job, 2)
    assert work.amount(part) == 16  # two batches, once
    assert work.kind(part) != work.kind(job)  # one epoch is another kind than three
    other = FitJob(job.model, job.split, job.loss, TrainSettings(epochs=3, batch=8, lr=0.001), (1,))
    assert work.kind(other) == work.kind(job)  # the learning rate costs nothing


def test_units_of_evaluating(pool: Pool, architecture: Architecture) -> None:
    job = EvaluateJob(architecture.initial(0), Split(pool, torch.arange(30)))
    assert (work.amount(job), work.steps(job)) == (30, 1)
    assert work.amount(work.part(job, 1)) == 30


def test_units_of_functions() -> None:
    one = partial(np.add, np.zeros((2, 3)), torch.zeros(4), out=None)
    assert work.amount(one) == 10
    assert work.kind(partial(max, "forest", 1)) == work.kind(partial(max, "forest", 2))
    assert work.kind(partial(max, "forest")) != work.kind(partial(max, "tree"))
    assert work.amount(lambda: 0) == 1
