"""A logarithmic axis of bytes with an extra position for 0: `local` sends nothing, and log 0 is undefined."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from coterie.core.formatting import size
from coterie.report.svg import BOTTOM, Plot, number

MAX_TICKS = 7  # that fit with their labels
GAP = 0.14  # between 0 and the first bytes, as a share of the axis
STEPS = (1, 2, 5)  # round numbers in a power of ten


class ByteAxis:
    """From the fewest bytes to the most, with 0 left of a break."""

    def __init__(self, amounts: Iterable[float]) -> None:
        values = list(amounts)
        some = [amount for amount in values if amount > 0]
        self.has_nothing = len(some) < len(values)
        low, high = min(some, default=1.0), max(some, default=1.0)
        around = _round_numbers(low, high)
        self._named = [amount for amount in around if low <= amount <= high]
        if len(self._named) < 2:  # the range is too narrow for two labels
            self._named, low, high = around, around[0], around[-1]
        self._low, self._high = math.log10(low), math.log10(high)

    @cached_property
    def nothing(self) -> float:
        """The position of 0 bytes."""
        return self._low - GAP * (self._high - self._low)

    @property
    def ends(self) -> tuple[float, float]:
        return (self.nothing if self.has_nothing else self._low), self._high

    def at(self, amount: float) -> float:
        return math.log10(amount) if amount > 0 else self.nothing

    def draw(self, plot: Plot, label: str, y_label: str, y_tick: Callable[[float], str]) -> None:
        """Draw the axes of a plot with this as its x axis."""
        ticks = [math.log10(amount) for amount in _thinned(self._named)]
        places = [self.nothing, *ticks] if self.has_nothing else ticks
        plot.axes(label, y_label, y_tick, x_tick=self._name, x_at=places)
        plot.facts += f' data-bytes="{self._low:.10g}"'  # for the page's script: below this is 0
        if self.has_nothing:
            plot.parts += _break(plot, (self.nothing + self._low) / 2)

    def _name(self, place: float) -> str:
        return "0" if place < self._low - 1e-9 else size(round(10**place))


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from the last not above `low` to the first not below `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [step * 10.0**power for power in range(first, last + 1) for step in STEPS]
    start = max(i for i, v in enumerate(every) if v <= low * (1 + 1e-9))
    stop = min(i for i, v in enumerate(every) if v >= high * (1 - 1e-9))
    return every[start : max(stop, start + 1) + 1]


def _thinned(numbers: Sequence[float]) -> list[float]:
    """Few enough numbers to label: all, or powers of ten, or some of these."""
    if len(numbers) <= MAX_TICKS:
        return list(numbers)
    powers = [v for v in numbers if math.isclose(math.log10(v), round(math.log10(v)), abs_tol=1e-6)]
    return powers[:: math.ceil(len(powers) / MAX_TICKS)]


def _break(plot: Plot, place: float) -> list[str]:
    """The break: two strokes across the axis."""
    x, _ = plot.at(place, plot.y[0])
    y = plot.height - BOTTOM
    return [f'<path class="axis" d="M{number(x + dx - 2)} {number(y + 4)}l4 -8"/>' for dx in (-2, 2)]
