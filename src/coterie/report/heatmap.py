"""Who averages with whom, as text for a terminal."""

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


class Pens(NamedTuple):
    """What a map is drawn with."""

    shades: str  # from nothing to the largest weight
    upright: str
    level: str
    crossing: str


BLOCKS = Pens(" ░▒▓█", "│", "─", "┼")
ASCII = Pens(" .:*#", "|", "-", "+")


def heat_map(events: Sequence[Event], encoding: str | None = "utf-8") -> str:
    """The collaboration weights of the last round that tells of any: row by row, how much a peer takes of each.

    Empty where nobody noted weights. `encoding` is that of the output: what it cannot print is drawn in ASCII.
    """
    start = started(events)
    found = _last(events, start.peers)
    if found is None:
        return ""
    round, weights = found
    pens = BLOCKS if _prints(encoding, "".join(BLOCKS)) else ASCII
    groups, by = _cells(start)
    cells = [cell for group in groups for cell in group]
    shown = _means(weights, cells)
    most = float(shown.max())
    label = len(str(start.peers - 1))
    wide = 2 if label + 1 + 2 * len(cells) + len(groups) - 1 <= WIDTH else 1

    def line(row: Floats) -> str:
        drawn = (pens.shades[_shade(value, most)] * wide for value in row.tolist())
        return pens.upright.join("".join(next(drawn) for _ in group) for group in groups)

    between = " " * (label + 1) + pens.crossing.join(pens.level * (wide * len(group)) for group in groups)
    lines = [f"the weights of round {round}: a row is a peer, a column whom it takes from"]
    rows = iter(shown)
    for i, group in enumerate(groups):
        lines += [between] if i else []
        lines += [f"{cell[0]:>{label}} {line(next(rows))}".rstrip() for cell in group]
    return "\n".join([*lines, *_legend(start, pens, most, by, len(groups))])


def _last(events: Sequence[Event], peers: int) -> tuple[int, Floats] | None:
    """The last round with weights on peers, and these: peers x peers, nothing in the row of who noted none."""
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
    """The peers of each cell, cell by cell, cluster by cluster; and how many share a cell at the most.

    Cells do not reach across clusters, unless there are too many of these for lines between them.
    """
    clusters = start.clusters or [0] * start.peers
    order = sorted(range(start.peers), key=lambda p: (clusters[p], p))
    kinds = [list(members) for _, members in groupby(order, key=lambda p: clusters[p])]
    if len(kinds) > MAX_CELLS // 2:
        kinds = [order]
    by = next(n for n in range(1, start.peers + 1) if sum(-(-len(kind) // n) for kind in kinds) <= MAX_CELLS)
    return [[kind[at : at + by] for at in range(0, len(kind), by)] for kind in kinds], by


def _means(weights: Floats, cells: Sequence[Sequence[int]]) -> Floats:
    """The mean weight of each cell's peers on each cell's peers."""
    order = [p for cell in cells for p in cell]
    sizes = np.array([len(cell) for cell in cells])
    at = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(np.add.reduceat(weights[np.ix_(order, order)], at, axis=0), at, axis=1)
    means: Floats = sums / np.outer(sizes, sizes)
    return means


def _shade(value: float, most: float) -> int:
    """The nearest of the shades, which divide what lies between 0 and the largest into equal steps."""
    steps = len(BLOCKS.shades) - 1
    return max(0, math.floor(steps * value / most + 0.5)) if most > 0 else 0


def _legend(start: RunStarted, pens: Pens, most: float, by: int, groups: int) -> list[str]:
    lines = [f"{pens.shades[-1]} is {most:.2g}, the largest; '{pens.shades}' are equal steps from 0 to it"]
    if start.clusters is not None:
        parted = ", with lines between clusters" if groups > 1 else ""
        lines.append(f"peers are sorted by true cluster{parted}")
    if by > 1:
        lines.append(f"a cell is the mean of up to {by} x {by} weights; a row is named by its first peer")
    return lines
