"""The figures of a report, one function for each: SVG, or None where there is nothing to draw."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np

from coterie.events import Event, PeerRound, RunStarted, of_kind
from coterie.graph import Neighbourhood
from coterie.report.summary import mass_by_round, neighbours_by_round, started
from coterie.report.svg import Floats, Group, Plot, heat_map, thinned
from coterie.report.words import UNITS

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


def spread_out(values: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, most).astype(int).tolist()]


def tick(value: float) -> str:
    return f"{100 * value:.0f}%"


def accuracy_chart(found: Sequence[Point], rounds: int, test: bool) -> str | None:
    """Mean and quantiles over peers, round by round, on the test or on the validation data."""
    if not found:
        return None
    shown = spread_out(found, MAX_POINTS)
    what = "test" if test else "validation"
    bands = [p.test_quantiles if test else p.validation_quantiles for p in shown]
    means = [p.test if test else p.validation for p in shown]
    xs = [float(p.round) for p in shown]
    plot = Plot((min(1.0, xs[0]), max(rounds, xs[-1])), _accuracies(found))
    plot.axes("round", f"{what} accuracy", tick, whole=True)
    plot.band(xs, [b[0] for b in bands], [b[3] for b in bands], f"{what} outer")
    plot.band(xs, [b[1] for b in bands], [b[2] for b in bands], f"{what} inner")
    plot.line(xs, means, what)
    return plot.svg(f"Mean {what} accuracy over rounds: {100 * means[-1]:.1f}% in round {shown[-1].round}")


def bytes_chart(found: Sequence[Point]) -> str | None:
    """Mean accuracy against what had been exchanged by then."""
    if not found or not found[-1].bytes:
        return None
    shown = spread_out(found, MAX_POINTS)
    power = min(len(UNITS) - 1, int(math.log10(shown[-1].bytes) / 3))
    xs = [p.bytes / 1000**power for p in shown]
    plot = Plot((0.0, xs[-1]), _accuracies(found))
    plot.axes(f"exchanged by all peers so far, {UNITS[power]}", "mean accuracy", tick)
    plot.line(xs, [p.validation for p in shown], "validation")
    plot.line(xs, [p.test for p in shown], "test")
    return plot.svg(f"Mean accuracy against bytes exchanged, up to {xs[-1]:.3g} {UNITS[power]}")


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


def neighbour_chart(scores: dict[int, Neighbourhood], masses: dict[int, float], rounds: int) -> str | None:
    """Neighbour lists and averaging weights against the truth: a line for each that there is."""
    lines: dict[str, dict[int, float]] = {}
    if scores:
        lines["precision"] = {r: s.precision for r, s in scores.items()}
        lines["recall"] = {r: s.recall for r, s in scores.items()}
    if masses:
        lines["mass"] = masses
    if not lines:
        return None
    shown = {r for line in lines.values() for r in line}
    plot = Plot((min(1.0, *shown), max(rounds, *shown)), (0.0, 1.0))
    plot.axes("round", "share", tick, whole=True)
    for name, line in lines.items():
        xs = sorted(line)
        plot.line(xs, [line[x] for x in xs], name)
    ending = ", ".join(f"{name} {tick(line[max(line)])}" for name, line in lines.items())
    return plot.svg(f"Neighbours against the true clusters over rounds: at last {ending}")


def order(start: RunStarted) -> tuple[list[int], str]:
    """The peers in the order of the heat maps, and what that order is called."""
    everyone = range(start.peers)
    if start.clusters is not None:
        clusters = start.clusters
        return sorted(everyone, key=lambda p: (clusters[p], p)), "by true cluster"
    if _class_count(start):
        return sorted(everyone, key=lambda p: (int(np.argmax(start.classes[p])), p)), "by most frequent class"
    return list(everyone), "by number"


def last_graph(events: Sequence[Event]) -> tuple[Floats, int, int] | None:
    """The mean of each peer's averaging weights over the last tenth of the rounds that tell of any, without
    the weight on itself; and the first and the last of these rounds."""
    peers = started(events).peers
    noted = [r for r in of_kind(events, PeerRound) if r.peer < peers and r.notes.get("weights")]
    if not noted:
        return None
    rounds = sorted({r.round for r in noted})
    kept = rounds[-math.ceil(len(rounds) / 10) :]
    sums, times = np.zeros((peers, peers)), np.zeros((peers, 1))
    for r in noted:
        if r.round >= kept[0]:
            times[r.peer] += 1
            for j, weight in r.notes["weights"].items():
                if int(j) < peers:
                    sums[r.peer, int(j)] += float(weight)
    np.fill_diagonal(sums, 0.0)
    return sums / np.maximum(times, 1), kept[0], kept[-1]


def graph_map(start: RunStarted, weights: Floats) -> tuple[str, float]:
    """Who averaged with whom; and the weight that has the full colour."""
    peers, how = order(start)
    ordered = weights[np.ix_(peers, peers)]
    groups = _cluster_groups(start, peers)
    most = float(thinned(ordered).max())
    label, axes = f"Averaging weights, peers ordered {how}", ("peer that averages", "with the model of")
    return heat_map(ordered / (most or 1.0), (400, 400), label, axes, groups, groups), most


def class_map(start: RunStarted) -> tuple[str, float] | None:
    """The share of each class in each peer's training data; and the share that has the full colour."""
    count = _class_count(start)
    if not count:
        return None
    peers, how = order(start)
    held = np.array([start.classes[p] for p in peers], dtype=np.float64).T
    shares = held / np.maximum(held.sum(axis=0), 1)
    most = float(thinned(shares).max())
    label, axes = f"Share of each class in the peers' training data, peers ordered {how}", ("class", "peers")
    size = (400.0, min(400.0, max(90.0, 18.0 * count)))
    groups, names = _cluster_groups(start, peers), [str(c) for c in range(count)]
    return heat_map(shares / (most or 1.0), size, label, axes, (), groups, names), most


def _class_count(start: RunStarted) -> int:
    """How many classes there are; 0 where the counts are not there for every peer."""
    lengths = {len(c) for c in start.classes}
    return lengths.pop() if len(start.classes) >= start.peers > 0 and len(lengths) == 1 else 0


def _cluster_groups(start: RunStarted, peers: Sequence[int]) -> list[Group]:
    if start.clusters is None:
        return []
    groups, at = [], 0
    for i, (name, members) in enumerate(groupby(start.clusters[p] for p in peers)):
        stop = at + len(list(members))
        groups.append(Group(at, stop, str(name), i))
        at = stop
    return groups


def _accuracies(found: Sequence[Point]) -> tuple[float, float]:
    """The same axis for every chart of accuracies: whole tenths around all that is shown."""
    values = [v for p in found for v in (*p.validation_quantiles, *p.test_quantiles, p.validation, p.test)]
    low, high = math.floor(min(values) * 10 + 1e-6) / 10, math.ceil(max(values) * 10 - 1e-6) / 10
    return (low, high) if high > low else (max(0.0, low - 0.1), min(1.0, high + 0.1))
