"""When a circle got how good, in simulated time, and how long its peers waited for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from coterie.events import PeerRound

Curve = list[tuple[float, float]]  # time, and the mean accuracy from then on
MOST_POINTS = 200


def accuracy_over_time(measured: Sequence[PeerRound], peers: int, split: str = "test") -> Curve:
    """The mean accuracy of all peers on one split, each as it was last measured; from when all have been."""
    now: dict[int, float] = {}
    at: dict[float, float] = {}
    for record in sorted(measured, key=lambda r: (r.time, r.round, r.peer)):
        now[record.peer] = getattr(record, split)
        if len(now) == peers:
            at[record.time] = sum(now[peer] for peer in sorted(now)) / peers
    curve = list(at.items())
    if len(curve) <= MOST_POINTS:
        return curve
    return [curve[round(i * (len(curve) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def time_to(curve: Sequence[Sequence[float]], accuracy: float) -> float | None:
    """When the mean accuracy first was this high."""
    return next((time for time, found in curve if found >= accuracy), None)


def idle_shares(rounds: Sequence[PeerRound], peers: int) -> list[float]:
    """The share of its time (until its last round ended) that each peer waited for others' work."""
    waited: dict[int, float] = defaultdict(float)
    ended: dict[int, float] = defaultdict(float)
    for record in rounds:
        waited[record.peer] += float(record.notes.get("waited", 0.0))
        ended[record.peer] = max(ended[record.peer], record.time)
    return [waited[peer] / ended[peer] if ended[peer] else 0.0 for peer in range(peers)]
