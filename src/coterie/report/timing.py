"""A metric over simulated time, and the share of time that peers spent waiting for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from coterie.core.events import PeerRound
from coterie.core.measured_metric import ACCURACY, MeasuredMetric

Curve = list[tuple[float, float]]  # time, and the mean from then on
MOST_POINTS = 200
ROUNDING = 1e-9


def mean_over_time(
    measured: Sequence[PeerRound], peers: int, metric: str = ACCURACY.name, split: str = "test"
) -> Curve:
    """The mean of a metric over peers, each with its latest value on one split, from the time when all have been
    measured. Peers for which it is always undefined do not count."""
    records = sorted(measured, key=lambda r: (r.time, r.round, r.peer))
    if len({r.peer for r in records}) < peers:
        return []
    valued = [(r, value) for r in records if (value := r.value(metric, split)) is not None]
    first: dict[int, float] = {}
    for record, _ in valued:
        first.setdefault(record.peer, record.time)
    all_measured = max(first.values(), default=0.0)
    kept = set(_some(sorted({r.time for r, _ in valued if r.time >= all_measured})))
    now: dict[int, float] = {}
    curve: Curve = []
    for time, group in groupby(valued, key=lambda pair: pair[0].time):
        now.update({record.peer: value for record, value in group})
        if time in kept:
            curve.append((time, sum(now[peer] for peer in sorted(now)) / len(first)))
    return curve


def _some(times: Sequence[float]) -> Sequence[float]:
    if len(times) <= MOST_POINTS:
        return times
    return [times[round(i * (len(times) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def time_to(curve: Sequence[Sequence[float]], target: float, metric: MeasuredMetric = ACCURACY) -> float | None:
    """The time at which the mean first was as good as the target (up to rounding)."""
    return next((time for time, reached in curve if metric.gain(reached, target) >= -ROUNDING), None)


def idle_shares(rounds: Sequence[PeerRound], peers: int) -> list[float]:
    """The share of each peer's time (until its last round ended) that it waited for other peers."""
    waited: dict[int, float] = defaultdict(float)
    ended: dict[int, float] = defaultdict(float)
    for record in rounds:
        waited[record.peer] += float(record.notes.get("waited", 0.0))
        ended[record.peer] = max(ended[record.peer], record.time)
    return [waited[peer] / ended[peer] if ended[peer] else 0.0 for peer in range(peers)]
