"""Project the peers' classes onto a plane, where a method notes a vector for each (`Plane`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.events import Event
from coterie.methods.figures import Plane
from coterie.report.figure import Figure, NothingToDraw
from coterie.report.marks import colour
from coterie.report.matrix import Floats
from coterie.report.ordering import cluster_colours, cluster_keys
from coterie.report.summary import noted, started
from coterie.report.svg import circle, figure, text

SIDE, RADIUS = 400.0, 8.0
MAX_MARKS = 1000  # of one round


def rounds_of(events: Sequence[Event], note: str) -> list[int]:
    """The first and the last round in which they were noted; both share one projection."""
    vectors = noted(events, note)
    return sorted({min(vectors), max(vectors)}) if vectors else []


def embedding(events: Sequence[Event], what: Plane, round: int | None = None) -> Figure:
    """Each peer's vectors for the classes that it holds, in the first or last noted round (default: last)."""
    start, rounds = started(events), rounds_of(events, what.note)
    if not rounds:
        raise NothingToDraw(f"This method notes no {what.vectors} for classes.")
    shown = rounds[-1] if round is None else round
    if shown not in rounds:
        raise NothingToDraw(f"{what.title} are drawn for round {' and '.join(map(str, rounds))}, not for round {shown}")
    vectors = noted(events, what.note)
    marks = [(r, peer, k) for r in rounds for peer, row in vectors[r].items() for k in row]
    at, kept = in_plane(np.array([vectors[r][peer][k] for r, peer, k in marks], dtype=np.float64))
    here = [(peer, k, x, y) for (r, peer, k), (x, y) in zip(marks, _placed(at).tolist(), strict=True) if r == shown]
    every = -(-len(here) // MAX_MARKS)
    colours = cluster_colours(start)
    parts = [f'<rect class="field" x="1" y="1" width="{SIDE - 2:g}" height="{SIDE - 2:g}"/>']
    for peer, k, x, y in here[::every]:
        parts.append(
            circle(x, y, RADIUS, f"bubble {colour(colours[peer]) if colours else 'plain'}", start.called(peer))
        )
        parts.append(text(x, y + 3.5, k, css="inside"))
    label = f"{what.title} of {len({peer for peer, *_ in here}):,} peers in a plane, in round {shown}"
    caption = (
        f"A mark is {what.mark}; the number is the class{', the colour the true cluster' if colours else ''}. "
        f"Directions of {what.vectors}, projected onto the two principal components of all those of {_and(rounds)}, "
        f"which explain {kept:.0%} of the variance: marks far apart here are far apart, but marks close together here "
        f"need not be close."
    )
    if every > 1:
        caption += f" One of {every} marks is drawn."
    keys = cluster_keys(start, "bubble")
    drawn = figure(SIDE, SIDE, label, parts)
    return Figure(f"{what.name}-{shown}", f"{what.title}, round {shown}", drawn, caption, keys)


def in_plane(vectors: Floats) -> tuple[Floats, float]:
    """The first two principal components, with deterministic signs, and the share of variance that they explain."""
    centred = vectors - vectors.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(1)]
    axes = axes * np.sign(largest)[:, None]
    total = float((sizes**2).sum())
    return centred @ axes.T, float((sizes[:2] ** 2).sum()) / total if total > 0 else 1.0


def _placed(at: Floats) -> Floats:
    """Scaled to fit, with the same scale in both directions."""
    low, high = at.min(0), at.max(0)
    scale = (SIDE - 2 * RADIUS - 8) / max(float((high - low).max()), 1e-9)
    placed: Floats = (at - (low + high) / 2) * scale * np.array([1, -1]) + SIDE / 2
    return placed


def _and(rounds: Sequence[int]) -> str:
    return f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} and {rounds[1]}"
