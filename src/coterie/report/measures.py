"""Series of a metric for the charts, from a run's events: per round over all peers, per peer, per architecture."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from coterie.core.events import Event, PeerRound, of_kind
from coterie.report.graph_scores import Neighbourhood
from coterie.report.scores import peers_by_architecture
from coterie.report.summary import mass_by_round, neighbours_by_round, started
from coterie.report.timing import Curve, mean_over_time

MAX_POINTS = 300  # on a line
QUANTILES = (0.1, 0.25, 0.75, 0.9)
T = TypeVar("T")


class Point(NamedTuple):
    """A measured round: statistics of a metric over the peers that have a value in it."""

    round: int
    peers: int
    mean: float
    quantiles: list[float]
    bytes: int  # exchanged by all participants, up to and including this round


def points(events: Sequence[Event], metric: str, split: str) -> list[Point]:
    """The measured rounds (peers only, without a server)."""
    peers = started(events).peers
    values: dict[int, list[float]] = defaultdict(list)
    received: Counter[int] = Counter()
    for r in of_kind(events, PeerRound):
        received[r.round] += sum(r.bytes.values())
        if r.peer < peers and (value := r.value(metric, split)) is not None:
            values[r.round].append(value)
    measured, so_far = [], 0
    for round in sorted(received):
        so_far += received[round]
        if here := values.get(round):
            quantiles = np.quantile(here, QUANTILES).tolist()
            measured.append(Point(round, len(here), float(np.mean(here)), quantiles, so_far))
    return measured


def by_peer(events: Sequence[Event], metric: str, split: str) -> dict[int, list[tuple[int, float]]]:
    """For each peer: its measured rounds, with the metric on its test or validation data."""
    peers = started(events).peers
    lines: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for r in of_kind(events, PeerRound):
        value = r.value(metric, split)
        if r.peer < peers and value is not None:
            lines[r.peer].append((r.round, value))
    return {peer: sorted(lines[peer]) for peer in sorted(lines)}


def by_architecture(events: Sequence[Event], metric: str, split: str) -> dict[str, list[tuple[int, float]]]:
    """For each architecture: the rounds in which its peers were measured, with their mean; empty where all peers have
    the same architecture."""
    peer_lines = by_peer(events, metric, split)
    lines: dict[str, list[tuple[int, float]]] = {}
    for architecture, peers in peers_by_architecture(started(events)).items():
        rounds: dict[int, list[float]] = defaultdict(list)
        for round, value in (point for p in peers for point in peer_lines.get(p, [])):
            rounds[round].append(value)
        lines[architecture] = [(round, float(np.mean(rounds[round]))) for round in sorted(rounds)]
    return lines


def final(events: Sequence[Event], metric: str, split: str) -> float | None:
    """The mean over peers in their last measured rounds."""
    last = {r.peer: r for r in sorted(_measured(events), key=lambda r: r.round)}
    values = [last[p].value(metric, split) for p in sorted(last)]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def curve(events: Sequence[Event], metric: str, split: str) -> Curve:
    """The mean over peers against simulated time."""
    return mean_over_time(_measured(events), started(events).peers, metric, split)


def _measured(events: Sequence[Event]) -> list[PeerRound]:
    peers = started(events).peers
    return [r for r in of_kind(events, PeerRound) if r.peer < peers and r.is_measured]


def spread_out(values: Sequence[T], most: int) -> list[T]:
    """At most `most` of the values, evenly spaced, always with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, most).astype(int).tolist()]


def neighbour_points(events: Sequence[Event]) -> dict[int, Neighbourhood]:
    """Precision and recall of at most MAX_POINTS rounds; empty where the truth is unknown."""
    return neighbours_by_round(_some_rounds(events, "neighbours"))


def mass_points(events: Sequence[Event]) -> dict[int, float]:
    """The share of the weights inside the clusters, of at most MAX_POINTS rounds; empty where the truth is unknown."""
    return mass_by_round(_some_rounds(events, "weights"))


def _some_rounds(events: Sequence[Event], name: str) -> list[Event]:
    """The events, with at most MAX_POINTS of the rounds in which a peer noted this name."""
    noted = sorted({r.round for r in of_kind(events, PeerRound) if name in r.notes})
    kept = set(spread_out(noted, MAX_POINTS))
    return [e for e in events if not isinstance(e, PeerRound) or e.round in kept]
