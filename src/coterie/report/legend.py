"""Draw a figure's legend below it, as part of the picture, so that saved files have it too."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from coterie.report.svg import number, text, text_width

LINE, MARK = 38.0, 20.0  # from the left of an entry to its text: past a line sample, past another mark
MARGIN, GAP = 8.0, 20.0  # left of a row; between two entries
ABOVE, ROW = 8.0, 17.0  # space over the legend; height of a line of text
BOX = re.compile(r'viewBox="0 0 (\S+) (\S+)"')


class Key(NamedTuple):
    """A legend entry: how it is drawn (classes of marks.css), and its text."""

    css: str
    text: str
    shape: str = "line"  # line | square | patch | dot, bubble, star or ring (round marks of these classes)


def with_legend(drawing: str, keys: Sequence[Key]) -> str:
    """The drawing, extended downwards by a legend of these keys."""
    box = BOX.search(drawing)
    if not keys or box is None:
        return drawing
    width, height = float(box[1]), float(box[2])
    parts, used = _entries(keys, width, height + ABOVE)
    end = drawing.rindex("</svg>")
    taller = f'viewBox="0 0 {box[1]} {number(height + ABOVE + used)}"'
    legend = "\n".join(['<g class="legend">', *parts, "</g>"])
    return f"{drawing[: box.start()]}{taller}{drawing[box.end() : end]}{legend}\n{drawing[end:]}"


def _entries(keys: Sequence[Key], width: float, top: float) -> tuple[list[str], float]:
    """Entries from left to right, in as many rows as needed, and the total height of the rows."""
    parts: list[str] = []
    x, y, lines_in_row = MARGIN, 0.0, 1
    for key in keys:
        beside = LINE if key.shape == "line" else MARK
        lines = _wrapped(key.text, width - MARGIN - beside)
        wide = beside + max(text_width(line) for line in lines)
        if x > MARGIN and x + wide > width:
            x, y, lines_in_row = MARGIN, y + ROW * lines_in_row, 1
        parts.append(f'<g transform="translate({number(x)} {number(top + y)})">{_sample(key)}')
        parts += [text(beside, 10 + ROW * i, line, "start") for i, line in enumerate(lines)]
        parts.append("</g>")
        x, lines_in_row = x + wide + GAP, max(lines_in_row, len(lines))
    return parts, y + ROW * lines_in_row


def _wrapped(text: str, width: float) -> list[str]:
    """The text in lines that fit the width."""
    needed = text_width(text)
    return textwrap.wrap(text, max(8, int(len(text) * width / needed))) or [""] if needed > width else [text]


def _sample(key: Key) -> str:
    """A short line or a mark, as in the drawing."""
    if key.shape == "line":
        return f'<line class="line {key.css}" x1="2" y1="6" x2="30" y2="6"/>'
    if key.shape == "square":
        return f'<path class="ring {key.css}" d="M3 2h8v8h-8z"/>'
    if key.shape == "patch":
        return f'<rect class="side {key.css}" x="1" width="12" height="12"/>'
    return f'<circle class="{key.shape} {key.css}" cx="7" cy="6" r="5"/>'
