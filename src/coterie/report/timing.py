"""Accuracy over simulated time, and the share of time that peers spent waiting for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from coterie.core.events import PeerRound

Curve = list[tuple[float, float]]  # time, and the mean accuracy from then on
MOST_POINTS = 200
ROUNDING = 1e-9


def accuracy_over_time(measured: Sequence[PeerRound], peers: int, split: str = "test") -> Curve:
    """The mean over all peers of their latest accuracy on one split, from the time when all have been measured."""
    records = sorted(measured, key=lambda r: (r.time, r.round, r.peer))
    first: dict[int, float] = {}
    for record in records:
        first.setdefault(record.peer, record.time)
    if len(first) < peers:
        return []
    all_measured = max(first.values())
    kept = set(_some(sorted({r.time for r in records if r.time >= all_measured})))
    now: dict[int, float] = {}
    curve: Curve = []
    for time, group in groupby(records, key=lambda r: r.time):
        now.update({record.peer: getattr(record, split) for record in group})
        if time in kept:
            curve.append((time, sum(now[peer] for peer in sorted(now)) / peers))
    return curve


def _some(times: Sequence[float]) -> Sequence[float]:
    if len(times) <= MOST_POINTS:
        return times
    return [times[round(i * (len(times) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def time_to(curve: Sequence[Sequence[float]], accuracy: float) -> float | None:
    """The time at which the mean accuracy first reached this value (up to rounding)."""
    return next((time for time, reached in curve if reached >= accuracy - ROUNDING), None)


def idle_shares(rounds: Sequence[PeerRound], peers: int) -> list[float]:
    """The share of each peer's time (until its last round ended) that it waited for other peers."""
    waited: dict[int, float] = defaultdict(float)
    ended: dict[int, float] = defaultdict(float)
    for record in rounds:
        waited[record.peer] += float(record.notes.get("waited", 0.0))
        ended[record.peer] = max(ended[record.peer], record.time)
    return [waited[peer] / ended[peer] if ended[peer] else 0.0 for peer in range(peers)]
