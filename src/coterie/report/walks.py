"""CompFL, device by device: the way of each expert through the peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from coterie.core.events import Event, PeerRound, of_kind
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour, colour_and_dash
from coterie.report.summary import started
from coterie.report.svg import HEIGHT, Plot, circle, plain, ticks

Stop = tuple[int, int, int]  # round, hop, peer


def ways(events: Sequence[Event], what: str = "hop") -> dict[str, list[Stop]]:
    """Of each expert where it was, in order; or, with `what` = "found", who sent a lost one on anew."""
    peers = started(events).peers
    found: dict[str, list[Stop]] = defaultdict(list)
    for r in of_kind(events, PeerRound):
        for key, hop in r.notes.items():
            if key.startswith(f"{what}.") and r.peer < peers:
                found[key.partition(".")[2]].append((r.round, int(hop), r.peer))
    return {kind: sorted(found[kind]) for kind in sorted(found)}


def walks(events: Sequence[Event]) -> Figure:
    start = started(events)
    found, again = ways(events), ways(events, "found")
    if not found:
        raise NothingToDraw("No expert walks in this run.")
    last = max(r for stops in found.values() for r, _, _ in stops)
    height = min(520.0, max(float(HEIGHT), 70 + 14.0 * start.peers))
    plot = Plot((1.0, max(last, 2)), (start.peers - 1.0, 0.0), height)
    at = range(start.peers) if start.peers <= 24 else ticks(0, start.peers - 1, about=12, whole=True)
    plot.axes("round", "peer that has it", plain, whole=True, y_at=list(at))
    for i, (kind, stops) in enumerate(found.items()):
        plot.line([r for r, _, _ in stops], [p for _, _, p in stops], f"{colour_and_dash(i)} thin", kind, dot=False)
        plot.parts += [circle(*plot.at(r, p), 2.5, f"dot {colour(i)}", kind) for r, _, p in stops]
        plot.parts += [circle(*plot.at(r, p), 6, f"ring {colour(i)}", kind) for r, _, p in again.get(kind, [])]
    hops = ", ".join(f"{kind} {max(h for _, h, _ in stops)}" for kind, stops in found.items())
    caption = "At which peer each expert was in which round: it is trained there if the peer can, and sent on."
    keys = [Key(f"{colour_and_dash(i)} thin", kind) for i, kind in enumerate(found)]
    if again:
        caption += " A ring: it was lost, and the peer that had the newest copy sent that on."
        keys.append(Key("plain", "sent on anew", "ring"))
    label = f"The walks of {len(found)} experts over {last} rounds; hops: {hops}"
    return Figure("walks", "The walk of each expert", plot.svg(label), caption, tuple(keys))


def rows(events: Sequence[Event]) -> list[list[str]]:
    """For a table: of each expert how far it came, and its last stops."""
    found, again = ways(events), ways(events, "found")
    return [
        [kind, str(max(h for _, h, _ in stops)), str(len({p for _, _, p in stops})), str(len(again.get(kind, []))),
         ", ".join(str(p) for _, _, p in stops[-12:])]
        for kind, stops in found.items()
    ]  # fmt: skip
