"""Several runs of one variant, which differ in their seed: curves of their mean, with an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.report.gains import gains, same_peers
from coterie.report.interval import estimate
from coterie.report.matrix import Floats
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.run import Run, open_run
from coterie.report.timing import Curve

TIMES = 150  # points of a curve over simulated time


@dataclass(frozen=True)
class Band:
    """A curve of means, and how far the 95% interval reaches to both sides (nothing, of one seed)."""

    xs: list[float]
    means: list[float]
    reach: list[float]


class Seeds:
    """One label of a comparison: its runs, one for each seed."""

    def __init__(self, label: str, folders: Sequence[Path]) -> None:
        self.label = label
        self.folders = list(folders)
        self.runs: list[Run] = [open_run(folder) for folder in folders]

    def over_rounds(self, split: str) -> Band:
        """The mean over peers, in the rounds that all seeds have measured."""
        by_round = [{p.round: float(getattr(p, split)) for p in run.points} for run in self.runs]
        rounds = self._common_rounds()
        values = np.array([[line[r] for r in rounds] for line in by_round])
        return band([float(r) for r in rounds], values)

    def over_bytes(self, split: str) -> Band:
        """The same, against the bytes that were exchanged by then, in the mean over seeds."""
        over_rounds, rounds = self.over_rounds(split), self._common_rounds()
        by_round = [{p.round: p.bytes for p in run.points} for run in self.runs]
        xs = [float(np.mean([line[r] for line in by_round])) for r in rounds]
        return Band(xs, over_rounds.means, over_rounds.reach)

    def over_time(self, split: str) -> Band:
        """Against simulated time, while every seed has a curve."""
        curves = [run.curves[split] for run in self.runs]
        if not all(curves):
            return Band([], [], [])
        first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
        if last < first:
            return Band([], [], [])
        times = np.linspace(first, last, TIMES if last > first else 1)
        return band(times.tolist(), np.array([held(curve, times) for curve in curves]))

    def per_peer(self) -> list[float]:
        """The test accuracy of every peer of every seed, at its round of best validation."""
        found = (run.summary["accuracy"]["selected"]["per_peer"] for run in self.runs)
        return [value for values in found for value in values if value is not None]

    def gains_against(self, alone: Seeds, at: str) -> list[float]:
        """What each peer of each seed gains against the same peer in the other's run of that seed."""
        found: list[float] = []
        for run in self.runs:
            twin = next((other for other in alone.runs if same_peers(run.start, other.start)), None)
            if twin is not None:
                found += gains(run.summary, twin.summary, at).values()
        return found

    def _common_rounds(self) -> list[int]:
        measured = [{p.round for p in run.points} for run in self.runs]
        return spread_out(sorted(set.intersection(*measured)), MAX_POINTS) if measured else []


Measure = Callable[[Seeds], Band]


def band(xs: list[float], values: Floats) -> Band:
    """Of values by seed and place."""
    if not xs:
        return Band([], [], [])
    found = [estimate(column.tolist()) for column in values.T]
    return Band(xs, [e.mean for e in found], [e.half or 0.0 for e in found])


def held(curve: Curve, times: Floats) -> Floats:
    """The value of a curve at these times: the last one before."""
    at = np.searchsorted([time for time, _ in curve], times, side="right") - 1
    found: Floats = np.array([value for _, value in curve])[np.maximum(at, 0)]
    return found
