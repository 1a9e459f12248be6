"""The latent embedding of peers' features, where a method notes class prototypes (MAPL's Figure 4c)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.events import Event
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour
from coterie.report.matrix import Floats
from coterie.report.ordering import cluster_colours
from coterie.report.summary import noted, started
from coterie.report.svg import circle, figure, text

PANEL, GAP, TOP = 300.0, 20.0, 26.0
MAX_MARKS = 2000
Mark = tuple[int, int, str]  # round, peer, class


def embedding(events: Sequence[Event]) -> Figure:
    """Each peer's prototypes of the classes that it holds, when they were first and last noted, in one plane."""
    start = started(events)
    found = noted(events, "prototypes")
    rounds = sorted({min(found), max(found)}) if found else []
    marks = [(round, peer, k) for round in rounds for peer, row in found[round].items() for k in row]
    if len(marks) < 3:
        raise NothingToDraw("This method notes no prototypes of classes.")
    every = -(-len(marks) // MAX_MARKS)
    vectors = np.array([found[round][peer][k] for round, peer, k in marks], dtype=np.float64)
    at, kept = in_plane(vectors)
    colours = cluster_colours(start)
    parts = []
    for i, round in enumerate(rounds):
        left = i * (PANEL + GAP)
        parts.append(text(left + PANEL / 2, 15, f"round {round}", css="heading"))
        parts.append(f'<rect class="field" x="{left:g}" y="{TOP:g}" width="{PANEL:g}" height="{PANEL:g}"/>')
        for (r, peer, k), (x, y) in list(zip(marks, _placed(at).tolist(), strict=True))[::every]:
            if r == round:
                css = f"bubble {colour(colours[peer]) if colours else 'plain'}"
                parts.append(circle(left + x, TOP + y, 8, css, f"peer {peer}"))
                parts.append(text(left + x, TOP + y + 3.5, k, css="inside"))
    width = len(rounds) * PANEL + (len(rounds) - 1) * GAP
    label = f"Prototypes of {len({p for _, p, _ in marks})} peers in a plane, in {_rounds(rounds)}"
    caption = (
        f"A mark is one peer's prototype of one class that it has samples of, as it shared it in that round; the "
        f"number is the class{', the colour the true cluster' if colours else ''}. Directions of prototypes, projected "
        f"onto the two principal components of all of them together, which hold {kept:.0%} of their variance: what is "
        f"apart here is apart, what is together here need not be."
    )
    if every > 1:
        caption += f" One of {every} marks is drawn."
    names = sorted(set(start.clusters)) if start.clusters is not None else []
    keys = tuple(Key(colour(i), f"true cluster {name}", "bubble") for i, name in enumerate(names[:12]))
    drawn = figure(width, TOP + PANEL + 2, label, parts)
    return Figure("embedding", "Latent embedding: the peers' class prototypes", drawn, caption, keys)


def in_plane(vectors: Floats) -> tuple[Floats, float]:
    """Their two principal components, with signs that are always the same; and the share of the variance in these."""
    centred = vectors - vectors.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(1)]
    axes = axes * np.sign(largest)[:, None]
    total = float((sizes**2).sum())
    return centred @ axes.T, float((sizes[:2] ** 2).sum()) / total if total > 0 else 1.0


def _placed(at: Floats) -> Floats:
    """As large as fits into a panel, one scale for both directions."""
    low, high = at.min(0), at.max(0)
    scale = (PANEL - 28) / max(float((high - low).max()), 1e-9)
    placed: Floats = (at - (low + high) / 2) * scale * np.array([1, -1]) + PANEL / 2
    return placed


def _rounds(rounds: Sequence[int]) -> str:
    return f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} and {rounds[1]}"
