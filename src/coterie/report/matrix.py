"""Draw a matrix as SVG: cells shaded from empty to the full colour, with groups marked at the sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.report.marks import colour
from coterie.report.svg import figure, number, text, text_width, ticks

Floats = NDArray[np.float64]

SHADES = 12
MAX_CELLS = 200  # along one side
MAX_LABELS = 24  # of groups, along one side
LARGEST = 14.0  # text size, on phones
BAR_SPACE = 74.0  # right of the cells


class Scale(NamedTuple):
    """The meaning of the cells' colours, shown by a colour bar from 0 to `most`, the full colour."""

    most: float
    what: str
    show: Callable[[float], str] = "{:.3g}".format
    whole: bool = False  # only whole numbers occur

    def numbers(self, about: int = 5) -> list[tuple[float, str]]:
        """Labels of the colour bar: the share of the full colour, and the text."""
        most = self.most or 1.0
        return [(round(value / most, 4), self.show(value)) for value in ticks(0.0, most, about, self.whole)]


class Group(NamedTuple):
    """Rows or columns that belong together, in indices of the matrix before thinning."""

    start: int
    stop: int
    name: str
    colour: int


def rows_per_cell(count: int) -> int:
    """How many neighbouring rows (or columns) one cell covers, so that at most MAX_CELLS are drawn."""
    return max(1, math.ceil(count / MAX_CELLS))


def thinned(matrix: Floats) -> Floats:
    """The matrix reduced to at most MAX_CELLS rows and columns by averaging neighbours."""
    for axis in (0, 1):
        by = rows_per_cell(matrix.shape[axis])
        if by > 1:
            at = np.arange(0, matrix.shape[axis], by)
            counts = np.diff([*at, matrix.shape[axis]])
            sums = np.add.reduceat(matrix, at, axis=axis)
            matrix = sums / (counts[:, None] if axis == 0 else counts[None, :])
    return matrix


def shade_of(values: Floats) -> NDArray[np.int64]:
    """From 0 (empty) to SHADES; any positive value gets a shade."""
    shades: NDArray[np.int64] = np.clip(np.ceil(values * SHADES - 1e-9), 0, SHADES).astype(np.int64)
    return shades


def heat_map(
    values: Floats,
    size: tuple[float, float],
    label: str,
    axes: tuple[str, str],
    rows: Sequence[Group] = (),
    columns: Sequence[Group] = (),
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    scale: Scale | None = None,
) -> str:
    """Cells from empty (0) to the full colour (1). Groups are coloured at the sides and separated by lines.

    The sides show as many names of rows and columns as fit, or the names of the groups if there are none.
    `scale` adds a colour bar.
    """
    width, height = size
    left, top = 30.0 + (_widest(row_names) or 12.0), (36.0 if columns or column_names else 20.0)
    right = BAR_SPACE if scale else 6.0
    unit = (width / values.shape[1], height / values.shape[0])  # of the whole matrix, thinned or not
    cells = thinned(values)
    stretch = f"scale({width / cells.shape[1]:.5f} {height / cells.shape[0]:.5f})"
    parts = [
        f'<g transform="translate({number(left)} {number(top)})">',
        f'<rect class="field" width="{number(width)}" height="{number(height)}"/>',
        f'<g class="cells" transform="{stretch}">',
        *_shades(cells),
        "</g>",
        *_sides(rows, unit[1], width, height, upright=True, named=not row_names),
        *_sides(columns, unit[0], width, height, upright=False, named=not column_names),
        *(text(-9, at + 4, name, "end") for at, name in _fitting(row_names, unit[1], LARGEST)),
        *(text(at, -9, name) for at, name in _fitting(column_names, unit[0], _widest(column_names) + 4)),
        *(_bar(scale, width + 14, height) if scale else ()),
        text(width / 2, 12 - top, axes[1]),
        text(12 - left, height / 2, axes[0], turn=-90),
        "</g>",
    ]
    return figure(left + width + right, top + height + 6, label, parts)


def _bar(scale: Scale, x: float, height: float) -> list[str]:
    """The colour bar, from bottom to top, with labels that the page's slider may change."""
    step = height / SHADES
    shades = [
        f'<rect class="swatch" opacity="{s / SHADES:.2f}" y="{number(height - s * step)}" width="12" '
        f'height="{number(step)}"/>'
        for s in range(1, SHADES + 1)
    ]
    return [
        f'<g class="scale" transform="translate({number(x)} 0)" data-height="{number(height)}">',
        *shades,
        f'<rect class="rim" width="12" height="{number(height)}"/>',
        '<g class="numbers">',
        *(text(16, height * (1 - share) + 4, label, "start") for share, label in scale.numbers(_label_count(height))),
        "</g>",
        text(BAR_SPACE - 18, height / 2, scale.what, css="what", turn=-90),
        "</g>",
    ]


def _label_count(height: float) -> int:
    return min(5, max(2, int(height / 60)))


def _shades(cells: Floats) -> list[str]:
    """One path per shade, one stroke per run of equal cells in a row: a small file, sharp at any size."""
    strokes: list[list[str]] = [[] for _ in range(SHADES + 1)]
    for y, row in enumerate(shade_of(cells)):
        edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for start, stop in pairwise(edges):
            strokes[int(row[start])].append(f"M{start} {y}.5h{stop - start}")
    return [f'<path class="cell" opacity="{s / SHADES:.2f}" d="{"".join(strokes[s])}"/>' for s in range(1, SHADES + 1)]


def _sides(groups: Sequence[Group], unit: float, width: float, height: float, upright: bool, named: bool) -> list[str]:
    """The coloured strip along one side, the groups' names if `named`, and the lines between groups."""
    parts = []
    every = math.ceil(len(groups) / MAX_LABELS)
    for i, g in enumerate(groups):
        start, stop = g.start * unit, g.stop * unit
        middle, length = (start + stop) / 2, number(stop - start)
        css = f"side {colour(g.colour)}"
        if upright:
            parts.append(f'<rect class="{css}" x="-6" y="{number(start)}" width="4" height="{length}"/>')
            line = f"M0 {number(start)}H{number(width)}"
            label = text(-8, middle + 4, g.name, "end")
        else:
            parts.append(f'<rect class="{css}" x="{number(start)}" y="-6" width="{length}" height="4"/>')
            line = f"M{number(start)} 0V{number(height)}"
            label = text(middle, -9, g.name)
        if i:
            parts.append(f'<path class="part" d="{line}"/>')
        if named and i % every == 0:
            parts.append(label)
    return parts


def _widest(names: Sequence[str]) -> float:
    return max((text_width(name, LARGEST) for name in names), default=0.0)


def _fitting(names: Sequence[str], unit: float, room: float) -> list[tuple[float, str]]:
    """The names that fit if each takes `room`, with their positions."""
    every = math.ceil(room / unit)
    return [((i + 0.5) * unit, name) for i, name in enumerate(names) if i % every == 0]
