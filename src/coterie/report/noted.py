"""Charts of the custom numbers a method notes: the mean over peers, round by round, with its spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from coterie.core import notes
from coterie.core.events import Event, PeerRound, of_kind
from coterie.core.formatting import count
from coterie.methods.figures import Lines
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour_and_dash
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.summary import started
from coterie.report.svg import Plot, short_tick, with_margin

BAND = (0.1, 0.9)  # quantiles over peers: the middle 80%
MAX_LABEL = 30  # characters at the side of a chart
MAX_NAMED = 10  # of the names that are not drawn


@dataclass
class Noted:
    """The numbers noted under one name."""

    name: str
    peers: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # by round
    server: dict[int, float] = field(default_factory=dict)
    noted_by: set[int] = field(default_factory=set)
    left_out: int = 0  # values that are not finite numbers


def custom_numbers(events: Sequence[Event], without: Collection[str] = ()) -> list[Noted]:
    """The numbers noted under each name (but those in `without`), in the order in which names were first noted."""
    by_name: dict[str, Noted] = {}
    peers = started(events).peers
    for r in of_kind(events, PeerRound):
        for name, value in notes.numbers(r.notes, without).items():
            entry = by_name.setdefault(name, Noted(name))
            if value is None:
                entry.left_out += 1
            elif r.peer < peers:
                entry.peers[r.round].append(value)
                entry.noted_by.add(r.peer)
            else:
                entry.server[r.round] = value
    return [entry for entry in by_name.values() if entry.peers or entry.server]


def chart(noted: Noted, file: str, peers: int, rounds: int) -> Figure:
    """One name's numbers over rounds; `file` is the name of the file if the chart is saved."""
    name = notes.shown(noted.name)
    xs = [float(r) for r in spread_out(sorted(noted.peers), MAX_POINTS)]
    means = [notes.mean(noted.peers[int(x)]) for x in xs]
    low, high = ([float(np.quantile(noted.peers[int(x)], q)) for x in xs] for q in BAND)
    server_line = [(float(r), noted.server[r]) for r in spread_out(sorted(noted.server), MAX_POINTS)]
    every = [*xs, *(x for x, _ in server_line)]
    ends = with_margin([*low, *high, *means, *(y for _, y in server_line)])
    plot = Plot((min(1.0, *every), max(rounds, *every)), ends)
    plot.axes("round", name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…", short_tick, whole=True)
    plot.band(xs, low, high, "c0")
    plot.line(xs, means, "c0 mean", "mean of the peers that noted it")
    plot.line([x for x, _ in server_line], [y for _, y in server_line], "c1 d1", "server")
    caption = []
    if noted.peers:
        caption.append("Line: mean over the peers that noted it. Band: the middle 80% of them.")
        caption.append(
            f"Noted by {len(noted.noted_by):,} of {count(peers, 'peer')}, in {count(len(noted.peers), 'round')}."
        )
    if noted.left_out:
        caption.append(f"{count(noted.left_out, 'value')} left out: not finite, or too large to draw.")
    keys = [Key("c0 mean", "mean")] * bool(noted.peers) + [Key("c1 d1", "server")] * bool(noted.server)
    ending = means[-1] if means else server_line[-1][1]
    label = f"{name} over rounds: finally {short_tick(ending)}"
    return Figure(file, name, plot.svg(label), " ".join(caption), tuple(keys))


def charts(events: Sequence[Event], without: Collection[str] = ()) -> tuple[dict[str, Figure], str]:
    """A chart for each of the first names, by name, and a sentence about the names not drawn.

    `without` are names that have no chart.
    """
    entries, start = custom_numbers(events, without), started(events)
    if not entries:
        raise NothingToDraw("The method notes no custom numbers (`me.note(name=1.0)` notes one).")
    tags = notes.Tags()
    drawn = {e.name: chart(e, f"note-{tags.of(e.name)}", start.peers, start.rounds) for e in entries[: notes.MOST]}
    others = [notes.shown(entry.name) for entry in entries[notes.MOST :]]
    if not others:
        return drawn, ""
    named = ", ".join(others[:MAX_NAMED])
    more = f" and {len(others) - MAX_NAMED:,} more" if len(others) > MAX_NAMED else ""
    return drawn, f"Of {len(entries):,} names {len(drawn)} are drawn; in events.jsonl alone are: {named}{more}."


def lines(events: Sequence[Event], what: Lines) -> Figure:
    """Several numbers over rounds in one chart: for each, the mean over the peers that noted it."""
    entries = {entry.name: entry for entry in custom_numbers(events) if entry.peers}
    means = {label: _means(entries[name]) for name, label in what.notes if name in entries}
    if not means:
        raise NothingToDraw(f"No peer noted {' or '.join(name for name, _ in what.notes)}.")
    every = [point for line in means.values() for point in line]
    last = max(started(events).rounds, *(x for x, _ in every))
    plot = Plot((1.0, max(last, 2.0)), with_margin([y for _, y in every]))
    plot.axes("round", what.y_label, short_tick, whole=True)
    for i, (label, line) in enumerate(means.items()):
        plot.line([x for x, _ in line], [y for _, y in line], colour_and_dash(i), label)
    keys = tuple(Key(colour_and_dash(i), label) for i, label in enumerate(means))
    ends = ", ".join(f"{label} {short_tick(line[-1][1])}" for label, line in means.items())
    caption = f"{what.caption} A line is the mean over the peers that noted the number.".strip()
    return Figure(what.name, what.title, plot.svg(f"{what.title} over rounds: finally {ends}"), caption, keys)


def _means(noted: Noted) -> list[tuple[float, float]]:
    """The mean over peers, by round."""
    return [(float(r), notes.mean(noted.peers[r])) for r in spread_out(sorted(noted.peers), MAX_POINTS)]
