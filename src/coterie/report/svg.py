"""Helpers that draw charts as SVG text. Colours are classes of `marks.css`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 12, 42


def number(value: float) -> str:
    """A short number: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def figure(width: float, height: float, label: str, parts: Sequence[str], facts: str = "") -> str:
    """A complete SVG that a screen reader reads as one picture. `facts` are attributes for the page's script."""
    name = escape(label)
    head = f'<svg role="img" aria-label="{name}" viewBox="0 0 {number(width)} {number(height)}"{facts}>'
    return "\n".join([head, f"<title>{name}</title>", *parts, "</svg>"])


def text(x: float, y: float, content: str, anchor: str = "middle", css: str = "", turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {number(x)} {number(y)})"' if turn else ""
    kind = f' class="{css}"' if css else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{kind}{turned}>{escape(content)}</text>'


def circle(x: float, y: float, radius: float, css: str, name: str = "") -> str:
    return f'<circle class="{css}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"{named(name)}/>'


def named(name: str) -> str:
    """An attribute shared by all marks of one peer or label, in all figures of a page."""
    return f' data-name="{escape(name)}"' if name else ""


def text_width(content: str, size: float = 12) -> float:
    """An upper estimate of a text's width: the reader's font is unknown."""
    return size * sum(_share_of_size(char) for char in content)


def _share_of_size(char: str) -> float:
    if char in " iljtfrI.,:;'|!()[]":
        return 0.38
    if char in "mwMW@%":
        return 0.95
    if char.isupper():
        return 0.72
    return 1.05 if ord(char) > 0x2E80 else 0.62  # above: scripts with square characters


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """About `about` round numbers from low to high."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def plain(value: float) -> str:
    return f"{value:,.10g}"


def tick(value: float) -> str:
    """The tick label of a share."""
    return f"{100 * value:.0f}%"


def short_tick(value: float) -> str:
    """The tick label of any other number."""
    return f"{value:.5g}" if 1e-3 <= abs(value) < 1e5 or not value else f"{value:.3g}"


def with_margin(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis, slightly beyond the values, even where all values are equal."""
    low, high = min(values), max(values)
    margin = 0.05 * (high - low)
    if margin <= 1e-9 * max(abs(low), abs(high)):
        margin = 0.1 * abs(high) or 1.0
    return low - margin, high + margin


class Plot:
    """A chart in a fixed box. All points must lie within the axes."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], height: float = HEIGHT, left: float = LEFT
    ) -> None:
        self.x, self.y, self.height, self.left = x, y, height, left
        self.parts: list[str] = []
        self.facts = ""

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        width, height = WIDTH - self.left - RIGHT, self.height - TOP - BOTTOM
        return self.left + across * width, self.height - BOTTOM - up * height

    def axes(
        self, x_label: str, y_label: str, y_tick: Callable[[float], str], *,
        x_tick: Callable[[float], str] = plain, whole: bool = False, y_at: Sequence[float] | None = None,
        x_at: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        for value in ticks(*self.y) if y_at is None else y_at:
            _, y = self.at(self.x[0], value)
            self.parts.append(f'<path class="grid" d="M{number(self.left)} {number(y)}H{right}"/>')
            self.parts.append(text(self.left - 6, y + 4, y_tick(value), "end"))
        for value in ticks(*self.x, about=6, whole=whole) if x_at is None else x_at:
            x, _ = self.at(value, self.y[0])
            self.parts.append(text(x, bottom + 16, x_tick(value)))
        self.parts.append(f'<path class="axis" d="M{number(self.left)} {number(bottom)}H{right}"/>')
        self.parts.append(text((self.left + right) / 2, self.height - 6, x_label))
        if y_label:
            self.parts.append(text(12, (TOP + bottom) / 2, y_label, turn=-90))
        box = f"{number(self.left)} {number(bottom)} {right} {TOP}"
        ends = f"{self.x[0]:.10g} {self.x[1]:.10g} {self.y[0]:.10g} {self.y[1]:.10g}"
        shares = ' data-shares=""' if y_tick is tick else ""
        self.facts = f' data-box="{box}" data-ends="{ends}" data-x="{escape(x_label)}"{shares}'

    def line(self, xs: Sequence[float], ys: Sequence[float], css: str, name: str = "", dot: bool = True) -> None:
        """A line with a dot at its end."""
        if not xs:
            return
        kind = css if css == "halo" else f"line {css}"
        self.parts.append(f'<path class="{kind}" d="M{self._points(xs, ys)}"{named(name)}/>')
        if dot:
            self.parts.append(circle(*self.at(xs[-1], ys[-1]), 3.5, f"dot {css}"))

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], css: str, name: str = "") -> None:
        if xs:
            back = self._points(xs[::-1], low[::-1])
            self.parts.append(f'<path class="band {css}" d="M{self._points(xs, high)}L{back}Z"{named(name)}/>')

    def svg(self, label: str) -> str:
        return figure(WIDTH, self.height, label, self.parts, self.facts)

    def _points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        places = (self.at(x, y) for x, y in zip(xs, ys, strict=True))
        return "L".join(f"{number(x)} {number(y)}" for x, y in places)
