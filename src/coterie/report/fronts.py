"""FedPAE: the ensembles that each peer had to choose from, and the one that it chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from coterie.events import Event, PeerRound, of_kind
from coterie.report.charts import tenths_around
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.summary import started
from coterie.report.svg import Plot, circle, named, number, tick

MAX_PEERS = 200


class Choice(NamedTuple):
    """A peer's last search, and what it predicts with at its end."""

    peer: int
    round: int  # of the search
    front: list[tuple[float, float]]  # strength and diversity, by strength
    chosen: tuple[float, float] | None  # of the search; old runs do not tell
    alone: tuple[float, float] | None  # its own models
    notes: dict[str, Any]  # of its last round that has an ensemble


def choices(events: Sequence[Event]) -> list[Choice]:
    peers = started(events).peers
    searched: dict[int, PeerRound] = {}
    ended: dict[int, PeerRound] = {}
    for r in sorted((r for r in of_kind(events, PeerRound) if r.peer < peers), key=lambda r: (r.peer, r.round)):
        if r.notes.get("front"):
            searched[r.peer] = r
        if r.notes.get("members"):
            ended[r.peer] = r
    return [
        Choice(
            peer, r.round, sorted((float(s), float(d)) for s, d in r.notes["front"]), _place(r, "place"),
            _place(r, "place_alone"), ended[peer].notes if peer in ended else {},
        )
        for peer, r in searched.items()
    ]  # fmt: skip


def fronts(events: Sequence[Event]) -> Figure:
    """The Pareto front of each peer's last search, and which of its ensembles had the best vote."""
    found = choices(events)[:MAX_PEERS]
    if not found:
        raise NothingToDraw("This method does not choose ensembles.")
    marks = [p for c in found for p in (*c.front, c.chosen, c.alone) if p is not None]
    diverse = max(d for _, d in marks) or 1.0
    plot = Plot(tenths_around([s for s, _ in marks]), (0.0, diverse * 1.05))
    plot.axes("strength: mean validation accuracy of the members", "diversity", "{:.2g}".format, x_tick=tick)
    for c in found:
        name = f"peer {c.peer}"
        plot.line([s for s, _ in c.front], [d for _, d in c.front], "c0 thin peer", name, dot=False)
        plot.parts += [circle(*plot.at(s, d), 2, "swarm c0", name) for s, d in c.front]
    for c in found:
        name = f"peer {c.peer}"
        if c.alone:
            x, y = (number(v) for v in plot.at(*c.alone))
            plot.parts.append(f'<path class="ring c1" d="M{x} {y}m-4 -4h8v8h-8z"{named(name)}/>')
        if c.chosen:
            plot.parts.append(circle(*plot.at(*c.chosen), 5, "star c0", name))
    label = f"Strength and diversity of the ensembles on {len(found)} peers' Pareto fronts"
    caption = (
        "A line is what one peer's last search found: no ensemble on it is beaten in both. Of these and of its own "
        "models alone, a peer takes the one with the best vote on its validation data, so nobody does worse there "
        "than alone. Diversity is of ensembles of one size: of one's own models, if they are fewer or more, it is not "
        "on quite the same scale."
    )
    if all(c.chosen is None for c in found):
        caption += " This run does not tell where on its front a peer's choice lies."
    keys = (Key("c0 thin", "a peer's front"), Key("c0", "chosen", "star"), Key("c1", "its own models alone", "square"))
    return Figure("front", "Pareto fronts and chosen ensembles", plot.svg(label), caption, keys)


def rows(events: Sequence[Event]) -> list[list[str]]:
    """For a table: what each peer chose at last, and what that was worth on its validation data."""
    found = []
    for c in choices(events)[:MAX_PEERS]:
        authors = Counter(str(name).partition("/")[0] for name in c.notes.get("members", []))
        whose = ", ".join(f"{'own' if a == str(c.peer) else f'peer {a}'} x{n}" for a, n in authors.items())
        worth = [c.notes.get(key) for key in ("together", "alone")]
        shown = [f"{100 * v:.1f}%" if isinstance(v, int | float) else "–" for v in worth]
        found.append([str(c.peer), str(c.round), str(len(c.front)), whose or "–", *shown])
    return found


def _place(record: PeerRound, key: str) -> tuple[float, float] | None:
    place = record.notes.get(key)
    return (float(place[0]), float(place[1])) if place else None
