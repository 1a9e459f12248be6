"""Pareto fronts: what each peer could choose from, and what it chose (`Front`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np

from coterie.core.events import Event, PeerRound, RunStarted, of_kind
from coterie.core.formatting import NOTHING
from coterie.core.measured_metric import MeasuredMetric
from coterie.methods.figures import Front
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.metric_axis import tenths_around
from coterie.report.summary import started
from coterie.report.svg import Plot, circle, named, number, tick

MAX_PEERS = 200
FENCE = 3.0  # times the interquartile range: values farther away from the quartiles are outliers
FEW = 0.05  # share of all marks (or one mark) that the axes may leave out
ROUNDING = 1e-5  # the ends of an axis are rounded
MAX_NAMED = 5  # of the marks left out, in the caption

Place = tuple[float, float]


class Choice(NamedTuple):
    """A peer's last search, and its choice at the end."""

    peer: int
    round: int  # of the search
    front: list[Place]  # sorted
    chosen: Place | None  # by the search; old runs did not record it
    alone: Place | None  # to compare with
    notes: dict[str, Any]  # of its last round with members


def choices(events: Sequence[Event], what: Front) -> list[Choice]:
    peers = started(events).peers
    searched: dict[int, PeerRound] = {}
    ended: dict[int, PeerRound] = {}
    for r in sorted((r for r in of_kind(events, PeerRound) if r.peer < peers), key=lambda r: (r.peer, r.round)):
        if r.notes.get(what.note):
            searched[r.peer] = r
        if r.notes.get(what.members):
            ended[r.peer] = r
    return [
        Choice(
            peer, r.round, sorted((float(s), float(d)) for s, d in r.notes[what.note]), _place(r, what.chosen),
            _place(r, what.other), ended[peer].notes if peer in ended else {},
        )
        for peer, r in searched.items()
    ]  # fmt: skip


def axis_ends(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that shows all values, except for a few outliers that would squeeze the others into less
    than half of it.

    Outliers are more than three interquartile ranges below or above the quartiles (Tukey's outer fences).
    """
    low, high = np.quantile(values, (0.25, 0.75))
    reach = FENCE * (high - low)
    inside = [v for v in values if low - reach <= v <= high + reach]
    few = len(values) - len(inside) <= max(1, FEW * len(values))
    squeezed = max(inside) - min(inside) < (max(values) - min(values)) / 2
    kept = inside if few and squeezed else values
    return min(kept), max(kept)


def fronts(events: Sequence[Event], what: Front) -> Figure:
    """The Pareto front of each peer's last search, with its choice."""
    start, shown_choices = started(events), choices(events, what)[:MAX_PEERS]
    if not shown_choices:
        raise NothingToDraw(what.missing)
    marks = [p for c in shown_choices for p in (*c.front, c.chosen, c.alone) if p is not None]
    weak, strong = axis_ends([s for s, _ in marks])
    least, most = axis_ends([d for _, d in marks])
    main = start.main
    ends = tenths_around([weak, strong]) if main.is_share else (weak, strong if strong > weak else weak + 1.0)
    plot = Plot(ends, (min(0.0, least), (most or 1.0) * 1.05))
    x_label = what.x_label.format(metric=main.label)
    plot.axes(x_label, what.y_label, "{:.2g}".format, x_tick=partial(_strength, main))
    for c in shown_choices:
        name = start.called(c.peer)
        shown = [p for p in c.front if _inside(plot, p)]
        plot.line([s for s, _ in shown], [d for _, d in shown], "c0 thin peer", name, dot=False)
        plot.parts += [circle(*plot.at(s, d), 2, "swarm c0", name) for s, d in shown]
    for c in shown_choices:
        name = start.called(c.peer)
        if c.alone and _inside(plot, c.alone):
            x, y = (number(v) for v in plot.at(*c.alone))
            plot.parts.append(f'<path class="ring c1" d="M{x} {y}m-4 -4h8v8h-8z"{named(name)}/>')
        if c.chosen and _inside(plot, c.chosen):
            plot.parts.append(circle(*plot.at(*c.chosen), 5, "star c0", name))
    outside = _outside(plot, shown_choices, what.other_words, start)
    plot.parts += [_pointer(plot, place, css, start.called(peer), about) for peer, place, css, about in outside]
    label = f"{what.about} on {len(shown_choices)} peers' Pareto fronts"
    caption = what.caption
    if outside:
        named_ones = "; ".join(about for *_, about in outside[:MAX_NAMED])
        more = f"; and {len(outside) - MAX_NAMED} more" if len(outside) > MAX_NAMED else ""
        caption += f" Outside the axes, marked by a triangle at the edge: {named_ones}{more}."
    if all(c.chosen is None for c in shown_choices):
        caption += " This run did not record where on its front each peer's choice lies."
    keys = (
        Key("c0 thin", "a peer's front"),
        Key("c0", what.chosen_label, "star"),
        Key("c1", what.other_label, "square"),
    )
    return Figure(what.name, what.title, plot.svg(label), caption, keys)


def _inside(plot: Plot, place: Place) -> bool:
    both = zip(place, (plot.x, plot.y), strict=True)
    return all(low - ROUNDING <= value <= high + ROUNDING for value, (low, high) in both)


def _strength(main: MeasuredMetric, merit: float) -> str:
    """As on the axis, where shares have no decimals."""
    return tick(merit) if main.is_share else _value(main, merit)


def _value(main: MeasuredMetric, merit: float) -> str:
    return main.text(main.merit(merit))  # back to the value: turning the sign twice changes nothing


def _outside(plot: Plot, shown: Sequence[Choice], other: str, start: RunStarted) -> list[tuple[int, Place, str, str]]:
    """The marks outside the axes: the peer, the place, the colour class and a description."""
    marks = [(c.peer, place, "c0", "front") for c in shown for place in c.front]
    marks += [(c.peer, c.chosen, "c0", "choice") for c in shown if c.chosen]
    marks += [(c.peer, c.alone, "c1", other) for c in shown if c.alone]
    return [
        (peer, place, css, f"{start.called(peer)}'s {what} at {_strength(start.main, place[0])}, {place[1]:.2g}")
        for peer, place, css, what in marks
        if not _inside(plot, place)
    ]


def _pointer(plot: Plot, place: Place, css: str, name: str, about: str) -> str:
    """A triangle at the edge of the plot that points to where the mark would be."""
    at = [min(max(v, ends[0]), ends[1]) for v, ends in zip(place, (plot.x, plot.y), strict=True)]
    along = (float(np.sign(place[0] - at[0])), float(np.sign(at[1] - place[1])))  # y grows downwards in SVG
    x, y = plot.at(*at)
    tip = (x - 2 * along[0], y - 2 * along[1])
    foot = (tip[0] - 8 * along[0], tip[1] - 8 * along[1])
    side = (-4 * along[1], 4 * along[0])
    corners = [tip, (foot[0] + side[0], foot[1] + side[1]), (foot[0] - side[0], foot[1] - side[1])]
    path = "L".join(f"{number(a)} {number(b)}" for a, b in corners)
    return f'<path class="ring {css}" d="M{path}Z"{named(name)}><title>{escape(about)}</title></path>'


def rows(events: Sequence[Event], what: Front) -> list[list[str]]:
    """Table rows: each peer's final choice, and its merit on the peer's validation data."""
    table, start = [], started(events)
    for c in choices(events, what)[:MAX_PEERS]:
        authors = Counter(str(name).partition("/")[0] for name in c.notes.get(what.members, []))
        names = {a: start.called(int(a)) if a.isdecimal() else f"peer {a}" for a in authors} | {str(c.peer): "own"}
        sources = ", ".join(f"{names[a]} x{n}" for a, n in authors.items())
        merits = [c.notes.get(key) for key, _ in what.merits]
        shown = [_value(start.main, v) if isinstance(v, int | float) else NOTHING for v in merits]
        table.append([start.label(c.peer), str(c.round), str(len(c.front)), sources or "–", *shown])
    return table


def _place(record: PeerRound, key: str) -> Place | None:
    place = record.notes.get(key)
    return (float(place[0]), float(place[1])) if place else None
