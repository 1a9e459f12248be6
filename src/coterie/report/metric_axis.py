"""The axis of a metric: where it ends, and how its ticks are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from coterie.core.measured_metric import MeasuredMetric
from coterie.report.svg import short_tick, tick, with_margin

Ends = tuple[float, float]


def ends_around(metric: MeasuredMetric, values: Sequence[float]) -> Ends:
    """The ends of an axis: whole tenths around shares, and a margin around other numbers."""
    if metric.is_share:
        return tenths_around(values or [0.0, 1.0])
    low, high = with_margin(values or [0.0, 1.0])
    return (max(0.0, low), high) if min(values, default=0.0) >= 0 else (low, high)


def tenths_around(values: Sequence[float]) -> Ends:
    """The ends of an axis: whole tenths around all values."""
    low, high = math.floor(min(values) * 10 + 1e-6) / 10, math.ceil(max(values) * 10 - 1e-6) / 10
    return (low, high) if high > low else (max(0.0, low - 0.1), min(1.0, high + 0.1))


def interval(metric: MeasuredMetric, mean: float, reach: float) -> Ends:
    """The ends of an interval, clipped to the range of a share, and of an error that is never negative."""
    low, high = mean - reach, mean + reach
    if metric.is_share:
        return max(0.0, low), min(1.0, high)
    return (max(0.0, low), high) if mean >= 0 and not metric.higher_is_better else (low, high)


def tick_of(metric: MeasuredMetric) -> Callable[[float], str]:
    return tick if metric.is_share else short_tick


def direction(metric: MeasuredMetric) -> str:
    """A sentence for a caption, for metrics that are not read as a score."""
    return "" if metric.higher_is_better else " Lower is better."
