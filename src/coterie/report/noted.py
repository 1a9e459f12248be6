"""Charts of the numbers of its own that a method notes: the mean over peers, round by round, with its spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from coterie.core import notes
from coterie.core.events import Event, PeerRound, of_kind
from coterie.core.formatting import count
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.summary import started
from coterie.report.svg import Plot

BAND = (0.1, 0.9)  # quantiles over peers: the middle 80%
MAX_LABEL = 30  # characters at the side of a chart
MAX_NAMED = 10  # of those that are not drawn


@dataclass
class Noted:
    """What was noted under one name."""

    name: str
    peers: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # by round
    server: dict[int, float] = field(default_factory=dict)
    who: set[int] = field(default_factory=set)
    left_out: int = 0  # values that are no finite numbers


def own_numbers(events: Sequence[Event]) -> list[Noted]:
    """Of each name that has a number, in the order in which they were first noted."""
    found: dict[str, Noted] = {}
    peers = started(events).peers
    for r in of_kind(events, PeerRound):
        for name, value in notes.numbers(r.notes).items():
            entry = found.setdefault(name, Noted(name))
            if value is None:
                entry.left_out += 1
            elif r.peer < peers:
                entry.peers[r.round].append(value)
                entry.who.add(r.peer)
            else:
                entry.server[r.round] = value
    return [entry for entry in found.values() if entry.peers or entry.server]


def chart(noted: Noted, file: str, peers: int, rounds: int) -> Figure:
    """Over rounds; `file` is the name of its file, if it is saved."""
    name = notes.shown(noted.name)
    xs = [float(r) for r in spread_out(sorted(noted.peers), MAX_POINTS)]
    means = [notes.mean(noted.peers[int(x)]) for x in xs]
    low, high = ([float(np.quantile(noted.peers[int(x)], q)) for x in xs] for q in BAND)
    of_server = [(float(r), noted.server[r]) for r in spread_out(sorted(noted.server), MAX_POINTS)]
    every = [*xs, *(x for x, _ in of_server)]
    plot = Plot((min(1.0, *every), max(rounds, *every)), _around([*low, *high, *means, *(y for _, y in of_server)]))
    plot.axes("round", name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…", _tick, whole=True)
    plot.band(xs, low, high, "c0")
    plot.line(xs, means, "c0 mean", "mean of the peers that noted it")
    plot.line([x for x, _ in of_server], [y for _, y in of_server], "c1 d1", "server")
    told = []
    if noted.peers:
        told.append("Line: mean over the peers that noted it. Band: the middle 80% of them.")
        told.append(f"Noted by {len(noted.who):,} of {count(peers, 'peer')}, in {count(len(noted.peers), 'round')}.")
    if noted.left_out:
        told.append(f"{count(noted.left_out, 'value')} left out: not a finite number, or too large to be drawn.")
    keys = [Key("c0 mean", "mean")] * bool(noted.peers) + [Key("c1 d1", "server")] * bool(noted.server)
    ending = means[-1] if means else of_server[-1][1]
    label = f"{name} over rounds: at last {_tick(ending)}"
    return Figure(file, name, plot.svg(label), " ".join(told), tuple(keys))


def charts(events: Sequence[Event]) -> tuple[dict[str, Figure], str]:
    """A chart for each of the first names, by name; and what is to be said of the others."""
    found, start = own_numbers(events), started(events)
    if not found:
        raise NothingToDraw("The method notes no numbers of its own: `me.note(name=1.0)`.")
    tags = notes.Tags()
    drawn = {e.name: chart(e, f"note-{tags.of(e.name)}", start.peers, start.rounds) for e in found[: notes.MOST]}
    others = [notes.shown(entry.name) for entry in found[notes.MOST :]]
    if not others:
        return drawn, ""
    named = ", ".join(others[:MAX_NAMED])
    more = f" and {len(others) - MAX_NAMED:,} more" if len(others) > MAX_NAMED else ""
    return drawn, f"Of {len(found):,} names {len(drawn)} are drawn; in events.jsonl alone are: {named}{more}."


def _around(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: a little beyond the values, also where all are the same."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low)
    if margin <= 1e-9 * max(abs(low), abs(high)):
        margin = 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _tick(value: float) -> str:
    return f"{value:.5g}" if 1e-3 <= abs(value) < 1e5 or not value else f"{value:.3g}"
