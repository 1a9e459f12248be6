"""What the charts of accuracy show, from a run's events: by round and over peers, and by peer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from coterie.core.events import Event, PeerRound, of_kind
from coterie.report.graph_scores import Neighbourhood
from coterie.report.summary import mass_by_round, neighbours_by_round, peers_by_architecture, started

MAX_POINTS = 300  # on a line
QUANTILES = (0.1, 0.25, 0.75, 0.9)
T = TypeVar("T")


class Point(NamedTuple):
    """One round that was measured, over the peers that were measured in it."""

    round: int
    peers: int
    validation: float  # means
    test: float
    validation_quantiles: list[float]
    test_quantiles: list[float]
    bytes: int  # by all participants, up to and with this round


def points(events: Sequence[Event]) -> list[Point]:
    """The rounds that were measured (peers only, not a server)."""
    peers = started(events).peers
    scores: dict[int, list[tuple[float, float]]] = defaultdict(list)
    received: Counter[int] = Counter()
    for r in of_kind(events, PeerRound):
        received[r.round] += sum(r.bytes.values())
        if r.peer < peers and r.test is not None and r.validation is not None:
            scores[r.round].append((r.validation, r.test))
    found, so_far = [], 0
    for round in sorted(received):
        so_far += received[round]
        if round in scores:
            both = np.array(scores[round])
            validation, test = both.mean(axis=0).tolist()
            bands = np.quantile(both, QUANTILES, axis=0).T.tolist()
            found.append(Point(round, len(both), validation, test, bands[0], bands[1], so_far))
    return found


def by_peer(events: Sequence[Event], split: str) -> dict[int, list[tuple[int, float]]]:
    """Of each peer its measured rounds, and the accuracy in them on its test or validation data."""
    peers = started(events).peers
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for r in of_kind(events, PeerRound):
        value = getattr(r, split)
        if r.peer < peers and value is not None:
            found[r.peer].append((r.round, value))
    return {peer: sorted(found[peer]) for peer in sorted(found)}


def by_architecture(events: Sequence[Event], split: str) -> dict[str, list[tuple[int, float]]]:
    """Of each architecture the rounds in which peers that have it were measured, and the mean of these; empty where all
    peers have the same."""
    of_peers = by_peer(events, split)
    found: dict[str, list[tuple[int, float]]] = {}
    for architecture, peers in peers_by_architecture(started(events)).items():
        rounds: dict[int, list[float]] = defaultdict(list)
        for round, value in (point for p in peers for point in of_peers.get(p, [])):
            rounds[round].append(value)
        found[architecture] = [(round, float(np.mean(rounds[round]))) for round in sorted(rounds)]
    return found


def spread_out(values: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, most).astype(int).tolist()]


def neighbour_points(events: Sequence[Event]) -> dict[int, Neighbourhood]:
    """Precision and recall of (at most MAX_POINTS) rounds; empty where these cannot be known."""
    return neighbours_by_round(_some_rounds(events, "neighbours"))


def mass_points(events: Sequence[Event]) -> dict[int, float]:
    """The share of the weights inside the clusters in (at most MAX_POINTS) rounds; empty where it cannot be known."""
    return mass_by_round(_some_rounds(events, "weights"))


def _some_rounds(events: Sequence[Event], what: str) -> list[Event]:
    """The events without all but MAX_POINTS of the rounds in which somebody noted this."""
    noted = sorted({r.round for r in of_kind(events, PeerRound) if what in r.notes})
    kept = set(spread_out(noted, MAX_POINTS))
    return [e for e in events if not isinstance(e, PeerRound) or e.round in kept]
