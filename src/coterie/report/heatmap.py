"""Draw the averaging weights of a run as text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from coterie.core.events import Event, RunStarted
from coterie.report.matrix import Floats
from coterie.report.summary import noted, started

WIDTH = 80  # columns of the terminal
MAX_CELLS = 40  # along one side: above this, neighbouring peers share a cell


class Glyphs(NamedTuple):
    """The characters that a map is drawn with."""

    shades: str  # from nothing to the largest weight
    upright: str
    level: str
    crossing: str


BLOCKS = Glyphs(" ░▒▓█", "│", "─", "┼")
ASCII = Glyphs(" .:*#", "|", "-", "+")


def heat_map(events: Sequence[Event], encoding: str | None = "utf-8") -> str:
    """The averaging weights of the last round that has any: each row shows how much one peer takes from each other.

    Empty where no peer noted weights. `encoding` is the output's; if it lacks block characters, the map is in ASCII.
    """
    start = started(events)
    last = _last_weights(events, start.peers)
    if last is None:
        return ""
    round, weights = last
    glyphs = BLOCKS if _prints(encoding, "".join(BLOCKS)) else ASCII
    groups, by = _cells(start)
    cells = [cell for group in groups for cell in group]
    shown = _means(weights, cells)
    most = float(shown.max())
    label = max(len(start.label(p)) for p in range(start.peers))
    wide = 2 if label + 1 + 2 * len(cells) + len(groups) - 1 <= WIDTH else 1

    def line(row: Floats) -> str:
        drawn = (glyphs.shades[_shade(value, most)] * wide for value in row.tolist())
        return glyphs.upright.join("".join(next(drawn) for _ in group) for group in groups)

    between = " " * (label + 1) + glyphs.crossing.join(glyphs.level * (wide * len(group)) for group in groups)
    lines = [f"weights of round {round}: a row is a peer, a column a peer it takes from"]
    rows = iter(shown)
    for i, group in enumerate(groups):
        lines += [between] if i else []
        lines += [f"{start.label(cell[0]):>{label}} {line(next(rows))}".rstrip() for cell in group]
    return "\n".join([*lines, *_legend(start, glyphs, most, by, len(groups))])


def _last_weights(events: Sequence[Event], peers: int) -> tuple[int, Floats] | None:
    """The last round with weights on peers, and its weights (peers x peers; a row of zeros if a peer noted none)."""
    for round, rows in reversed(noted(events, "weights").items()):
        entries = [(i, int(j), float(w)) for i, row in rows.items() for j, w in row.items() if int(j) < peers]
        if entries:
            weights = np.zeros((peers, peers))
            for i, j, weight in entries:
                weights[i, j] = weight if math.isfinite(weight) else 0.0
            return round, weights
    return None


def _prints(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _cells(start: RunStarted) -> tuple[list[list[list[int]]], int]:
    """The peers of each cell, by cluster, and the largest number of peers in a cell.

    A cell never spans two clusters, unless there are too many clusters for lines between them.
    """
    clusters = start.clusters or [0] * start.peers
    order = sorted(range(start.peers), key=lambda p: (clusters[p], p))
    members_by_cluster = [list(members) for _, members in groupby(order, key=lambda p: clusters[p])]
    if len(members_by_cluster) > MAX_CELLS // 2:
        members_by_cluster = [order]
    by = next(
        n
        for n in range(1, start.peers + 1)
        if sum(-(-len(cluster) // n) for cluster in members_by_cluster) <= MAX_CELLS
    )
    return [[cluster[at : at + by] for at in range(0, len(cluster), by)] for cluster in members_by_cluster], by


def _means(weights: Floats, cells: Sequence[Sequence[int]]) -> Floats:
    """The mean weight of each cell's peers on each cell's peers."""
    order = [p for cell in cells for p in cell]
    sizes = np.array([len(cell) for cell in cells])
    at = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(np.add.reduceat(weights[np.ix_(order, order)], at, axis=0), at, axis=1)
    means: Floats = sums / np.outer(sizes, sizes)
    return means


def _shade(value: float, most: float) -> int:
    """The index of the nearest shade; shades are equal steps from 0 to the largest weight."""
    steps = len(BLOCKS.shades) - 1
    return max(0, math.floor(steps * value / most + 0.5)) if most > 0 else 0


def _legend(start: RunStarted, glyphs: Glyphs, most: float, by: int, groups: int) -> list[str]:
    lines = [f"{glyphs.shades[-1]} is the largest weight, {most:.2g}; '{glyphs.shades}' are equal steps from 0 to it"]
    if start.clusters is not None:
        parted = ", with lines between clusters" if groups > 1 else ""
        lines.append(f"peers are sorted by true cluster{parted}")
    if by > 1:
        lines.append(f"a cell is the mean of up to {by} x {by} weights; a row is named by its first peer")
    return lines
