"""Routes of things that move from peer to peer (`Routes`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from coterie.core.events import Event, PeerRound, of_kind
from coterie.methods.figures import Routes
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour, colour_and_dash
from coterie.report.summary import started
from coterie.report.svg import HEIGHT, Plot, circle, plain, ticks

Stop = tuple[int, int, int]  # round, hop, peer


def routes(events: Sequence[Event], note: str) -> dict[str, list[Stop]]:
    """The stops of each thing, in order, from notes `<note>.<thing>`."""
    peers = started(events).peers
    stops: dict[str, list[Stop]] = defaultdict(list)
    for r in of_kind(events, PeerRound):
        for key, hop in r.notes.items():
            if key.startswith(f"{note}.") and r.peer < peers:
                stops[key.partition(".")[2]].append((r.round, int(hop), r.peer))
    return {kind: sorted(stops[kind]) for kind in sorted(stops)}


def walks(events: Sequence[Event], what: Routes) -> Figure:
    start = started(events)
    stops_by_thing, restarts = routes(events, what.note), routes(events, what.restart)
    if not stops_by_thing:
        raise NothingToDraw(what.missing)
    last = max(r for stops in stops_by_thing.values() for r, _, _ in stops)
    height = min(520.0, max(float(HEIGHT), 70 + 14.0 * start.peers))
    plot = Plot((1.0, max(last, 2)), (start.peers - 1.0, 0.0), height)
    at = range(start.peers) if start.peers <= 24 else ticks(0, start.peers - 1, about=12, whole=True)
    plot.axes("round", what.y_label, plain, whole=True, y_at=list(at))
    for i, (kind, stops) in enumerate(stops_by_thing.items()):
        plot.line([r for r, _, _ in stops], [p for _, _, p in stops], f"{colour_and_dash(i)} thin", kind, dot=False)
        plot.parts += [circle(*plot.at(r, p), 2.5, f"dot {colour(i)}", kind) for r, _, p in stops]
        plot.parts += [circle(*plot.at(r, p), 6, f"ring {colour(i)}", kind) for r, _, p in restarts.get(kind, [])]
    hops = ", ".join(f"{kind} {max(h for _, h, _ in stops)}" for kind, stops in stops_by_thing.items())
    caption = what.caption
    keys = [Key(f"{colour_and_dash(i)} thin", kind) for i, kind in enumerate(stops_by_thing)]
    if restarts:
        caption += f" {what.restart_caption}"
        keys.append(Key("plain", "lost, sent on again", "ring"))
    label = f"The walks of {len(stops_by_thing)} {what.thing}s over {last} rounds; hops: {hops}"
    return Figure(what.name, what.title, plot.svg(label), caption, tuple(keys))


def rows(events: Sequence[Event], what: Routes) -> list[list[str]]:
    """Table rows: for each thing the number of hops and its last stops."""
    stops_by_thing, restarts = routes(events, what.note), routes(events, what.restart)
    return [
        [kind, str(max(h for _, h, _ in stops)), str(len({p for _, _, p in stops})), str(len(restarts.get(kind, []))),
         ", ".join(str(p) for _, _, p in stops[-12:])]
        for kind, stops in stops_by_thing.items()
    ]  # fmt: skip
