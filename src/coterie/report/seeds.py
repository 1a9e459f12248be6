"""Runs of one variant under several seeds: curves of their mean with a confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.report.gains import gains, same_peers
from coterie.report.interval import estimate
from coterie.report.matrix import Floats
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.run import Run, open_run
from coterie.report.timing import Curve

TIMES = 150  # points of a curve over simulated time


@dataclass(frozen=True)
class Band:
    """A curve of means with the half-width of the 95% interval (0 with a single seed)."""

    xs: list[float]
    means: list[float]
    reach: list[float]


class Seeds:
    """One label of a comparison: its runs, one for each seed."""

    def __init__(self, label: str, folders: Sequence[Path]) -> None:
        self.label = label
        self.folders = list(folders)
        self.runs: list[Run] = [open_run(folder) for folder in folders]

    @property
    def metrics(self) -> tuple[MeasuredMetric, ...]:
        """The metrics of its runs, the main one first."""
        return self.runs[0].start.measured if self.runs else ()

    def over_rounds(self, metric: str, split: str) -> Band:
        """The mean over peers, in the rounds measured under all seeds."""
        by_round = [{p.round: p.mean for p in run.points(metric, split)} for run in self.runs]
        rounds = self._common_rounds(metric, split)
        values = np.array([[line[r] for r in rounds] for line in by_round])
        return band([float(r) for r in rounds], values)

    def over_bytes(self, metric: str, split: str) -> Band:
        """The same against the bytes exchanged so far, averaged over seeds."""
        over_rounds, rounds = self.over_rounds(metric, split), self._common_rounds(metric, split)
        by_round = [{p.round: p.bytes for p in run.points(metric, split)} for run in self.runs]
        xs = [float(np.mean([line[r] for line in by_round])) for r in rounds]
        return Band(xs, over_rounds.means, over_rounds.reach)

    def over_time(self, metric: str, split: str) -> Band:
        """The mean over peers against simulated time, where every seed has a curve."""
        curves = [run.curve(metric, split) for run in self.runs]
        if not all(curves):
            return Band([], [], [])
        first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
        if last < first:
            return Band([], [], [])
        times = np.linspace(first, last, TIMES if last > first else 1)
        return band(times.tolist(), np.array([values_at(curve, times) for curve in curves]))

    def final(self, metric: str, split: str) -> dict[int, float]:
        """The mean over peers in their last measured rounds, by seed."""
        by_seed = {run.start.seed: run.final(metric, split) for run in self.runs}
        return {seed: value for seed, value in by_seed.items() if value is not None}

    def per_peer(self, metric: str) -> list[float]:
        """The test value of every peer under every seed, at its round selected by validation."""
        every = (run.summary.of(metric).selected.per_peer for run in self.runs if run.summary.measures(metric))
        return [value for values in every for value in values if value is not None]

    def gains_against(self, other: Seeds, at: str, metric: MeasuredMetric) -> list[float]:
        """Each peer's gain under each seed against the same peer in the other variant's run of that seed."""
        gained: list[float] = []
        for run in self.runs:
            twin = next((r for r in other.runs if same_peers(run.start, r.start)), None)
            if twin is not None:
                gained += gains(run.summary, twin.summary, at, metric).values()
        return gained

    def _common_rounds(self, metric: str, split: str) -> list[int]:
        measured = [{p.round for p in run.points(metric, split)} for run in self.runs]
        return spread_out(sorted(set.intersection(*measured)), MAX_POINTS) if measured else []


Measure = Callable[[Seeds], Band]


def metrics_of(variants: Sequence[Seeds]) -> tuple[MeasuredMetric, ...]:
    """Every metric that some variant measured, the main one first."""
    return tuple({metric.name: metric for seeds in variants for metric in seeds.metrics}.values()) or (ACCURACY,)


def figure_name(metric: MeasuredMetric, variants: Sequence[Seeds], name: str) -> str:
    """The name of a figure: that of a metric other than the main one begins with it."""
    return name if metric == metrics_of(variants)[0] else f"{metric.name}-{name}"


def band(xs: list[float], values: Floats) -> Band:
    """The band of values indexed by seed and point."""
    if not xs:
        return Band([], [], [])
    estimates = [estimate(column.tolist()) for column in values.T]
    return Band(xs, [e.mean for e in estimates], [e.half or 0.0 for e in estimates])


def values_at(curve: Curve, times: Floats) -> Floats:
    """The values of a step curve at these times: at each, the last value before."""
    at = np.searchsorted([time for time, _ in curve], times, side="right") - 1
    values: Floats = np.array([value for _, value in curve])[np.maximum(at, 0)]
    return values
