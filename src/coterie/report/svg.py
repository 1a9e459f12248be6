"""Small drawing helpers: line charts and heat maps as SVG text. Colours are CSS classes, set by the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 12, 42
CLUSTER_COLOURS = 8  # classes c0 to c7 of the page; further clusters begin again, told apart by their lines
SHADES = 12
MAX_CELLS = 200  # along one side of a heat map
MAX_LABELS = 24  # along one side


class Group(NamedTuple):
    """Rows or columns of a heat map that belong together, in units of the matrix before it was thinned."""

    start: int
    stop: int
    name: str
    colour: int


def number(value: float) -> str:
    """Short: at most two decimals, none where they would be zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def figure(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """A whole drawing, which a screen reader reads as one picture."""
    name = escape(label)
    head = f'<svg role="img" aria-label="{name}" viewBox="0 0 {number(width)} {number(height)}">'
    return "\n".join([head, f"<title>{name}</title>", *parts, "</svg>"])


def text(x: float, y: float, what: str, anchor: str = "middle", css: str = "", turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {number(x)} {number(y)})"' if turn else ""
    kind = f' class="{css}"' if css else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{kind}{turned}>{escape(what)}</text>'


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Round numbers from low to high, about so many."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Plot:
    """A line chart in a fixed box; points outside of the axes are not expected."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.x, self.y = x, y
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str, y_tick: Callable[[float], str], whole: bool = False) -> None:
        for value in ticks(*self.y):
            _, y = self.at(self.x[0], value)
            self.parts.append(f'<path class="grid" d="M{LEFT} {number(y)}H{WIDTH - RIGHT}"/>')
            self.parts.append(text(LEFT - 6, y + 4, y_tick(value), "end"))
        for value in ticks(*self.x, about=6, whole=whole):
            x, _ = self.at(value, self.y[0])
            self.parts.append(text(x, HEIGHT - BOTTOM + 16, f"{value:,.10g}"))
        self.parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
        self.parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label))
        self.parts.append(text(12, (TOP + HEIGHT - BOTTOM) / 2, y_label, turn=-90))

    def line(self, xs: Sequence[float], ys: Sequence[float], css: str) -> None:
        """A line, and a dot at its end."""
        if not xs:
            return
        self.parts.append(f'<path class="line {css}" d="M{self._points(xs, ys)}"/>')
        x, y = self.at(xs[-1], ys[-1])
        self.parts.append(f'<circle class="dot {css}" cx="{number(x)}" cy="{number(y)}" r="3.5"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], css: str) -> None:
        if xs:
            back = self._points(xs[::-1], low[::-1])
            self.parts.append(f'<path class="band {css}" d="M{self._points(xs, high)}L{back}Z"/>')

    def svg(self, label: str) -> str:
        return figure(WIDTH, HEIGHT, label, self.parts)

    def _points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        places = (self.at(x, y) for x, y in zip(xs, ys, strict=True))
        return "L".join(f"{number(x)} {number(y)}" for x, y in places)


def thinned(matrix: Floats) -> Floats:
    """The matrix with at most MAX_CELLS rows and columns: neighbours are averaged where there are more."""
    for axis in (0, 1):
        by = math.ceil(matrix.shape[axis] / MAX_CELLS)
        if by > 1:
            at = np.arange(0, matrix.shape[axis], by)
            counts = np.diff([*at, matrix.shape[axis]])
            sums = np.add.reduceat(matrix, at, axis=axis)
            matrix = sums / (counts[:, None] if axis == 0 else counts[None, :])
    return matrix


def heat_map(
    values: Floats,
    size: tuple[float, float],
    label: str,
    axes: tuple[str, str],
    rows: Sequence[Group] = (),
    columns: Sequence[Group] = (),
    row_names: Sequence[str] = (),
) -> str:
    """Cells from nothing (0) to the full colour (1); groups are coloured at the sides, with lines between."""
    width, height = size
    left, top = (48.0 if row_names else 36.0), (36.0 if columns else 20.0)
    unit = (width / values.shape[1], height / values.shape[0])  # of the whole matrix, thinned or not
    cells = thinned(values)
    scale = f"scale({width / cells.shape[1]:.5f} {height / cells.shape[0]:.5f})"
    parts = [
        f'<g transform="translate({number(left)} {number(top)})">',
        f'<rect class="field" width="{number(width)}" height="{number(height)}"/>',
        f'<g class="cells" transform="{scale}">',
        *_shades(cells),
        "</g>",
        *_sides(rows, unit[1], width, height, upright=True),
        *_sides(columns, unit[0], width, height, upright=False),
        *_names(row_names, unit[1]),
        text(width / 2, 12 - top, axes[1]),
        text(12 - left, height / 2, axes[0], turn=-90),
        "</g>",
    ]
    return figure(left + width + 6, top + height + 6, label, parts)


def _shades(cells: Floats) -> list[str]:
    """One path for each shade, a stroke for each run of cells in a row: small, and sharp at any size."""
    level = np.clip(np.ceil(cells * SHADES - 1e-9), 0, SHADES).astype(int)
    strokes: dict[int, list[str]] = {}
    for y, row in enumerate(level):
        edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for start, stop in pairwise(edges):
            if row[start]:
                strokes.setdefault(int(row[start]), []).append(f"M{start} {y}.5h{stop - start}")
    return [f'<path opacity="{s / SHADES:.2f}" d="{"".join(strokes[s])}"/>' for s in sorted(strokes)]


def _sides(groups: Sequence[Group], unit: float, width: float, height: float, upright: bool) -> list[str]:
    """The coloured strip along one side, the names of the groups, and the lines that part them."""
    parts = []
    every = math.ceil(len(groups) / MAX_LABELS)
    for i, g in enumerate(groups):
        start, stop = g.start * unit, g.stop * unit
        middle, length = (start + stop) / 2, number(stop - start)
        colour = f"c{g.colour % CLUSTER_COLOURS}"
        if upright:
            parts.append(f'<rect class="{colour}" x="-6" y="{number(start)}" width="4" height="{length}"/>')
            line = f"M0 {number(start)}H{number(width)}"
            label = text(-8, middle + 4, g.name, "end")
        else:
            parts.append(f'<rect class="{colour}" x="{number(start)}" y="-6" width="{length}" height="4"/>')
            line = f"M{number(start)} 0V{number(height)}"
            label = text(middle, -9, g.name)
        if i:
            parts.append(f'<path class="part" d="{line}"/>')
        if i % every == 0:
            parts.append(label)
    return parts


def _names(names: Sequence[str], unit: float) -> list[str]:
    every = math.ceil(len(names) / MAX_LABELS) or 1
    return [text(-8, (i + 0.5) * unit + 4, name, "end") for i, name in enumerate(names) if i % every == 0]
