"""The frame of every HTML page: a single self-contained file in which only its own script can run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from coterie.core.measured_metric import MeasuredMetric
from coterie.report.figure import Figure, NothingToDraw, OddNotes
from coterie.report.forms import DPI, WIDTH_MM
from coterie.report.marks import asset


def page(title: str, parts: Iterable[str], data: object, scripts: Sequence[str]) -> str:
    """A complete page. `data` is the JSON for its script; `scripts` are the files that make up the script."""
    style = asset("marks.css") + asset("page.css")
    script = "\n".join(asset(name) for name in scripts)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f'<main data-width-mm="{WIDTH_MM:g}" data-dpi="{DPI}">',  # of saved figures
            f"<h1>{escape(title)}</h1>",
            *parts,
            f'</main><script type="application/json" id="data">{as_data(data)}</script>',
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _policy(style: str, script: str) -> str:
    """A content security policy: the page fetches nothing and runs only its own script, whatever names a run contains.

    Images from data: URLs are allowed because the script makes PNG files from them.
    """
    allowed = {"style-src": _digest(style), "script-src": _digest(script), "img-src": "data:"}
    rules = [f"{directive} {source}" for directive, source in allowed.items()]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_data(value: object) -> str:
    """JSON that cannot close the <script> element around it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


class FigureGroup(Protocol):
    """Several figures under one heading."""

    @property
    def figures(self) -> Sequence[Figure]: ...

    def html(self) -> str: ...


Drawn = Figure | FigureGroup


@dataclass(frozen=True)
class Switch:
    """Figures of which the page shows one at a time; its script switches between them. An option may be a switch."""

    label: str
    options: Mapping[str, Drawn]

    @property
    def figures(self) -> list[Figure]:
        return [figure for drawn in self.options.values() for figure in figures_in(drawn)]

    def html(self) -> str:
        options = (f'<div data-option="{escape(name)}">{html_of(drawn)}</div>' for name, drawn in self.options.items())
        return f'<div data-switch="{escape(self.label)}">{"".join(options)}</div>'


@dataclass(frozen=True)
class SideBySide:
    """Figures side by side where there is room, otherwise stacked. `above` is HTML."""

    figures: Sequence[Figure]
    above: str = ""

    def html(self) -> str:
        drawn = (
            f"<div><h3>{escape(drawn_figure.heading)}</h3>{figure(drawn_figure)}</div>" for drawn_figure in self.figures
        )
        return f'{self.above}<div class="pair">{"".join(drawn)}</div>'


class Sections:
    """The figures of a page, and the reasons why others are missing."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.figures: list[Figure] = []
        self.missing: list[str] = []

    def add(self, make: Callable[[], Drawn], heading: str, css: str = "", list_missing: bool = True) -> None:
        """Add a figure (or several) under a heading; if there is nothing to draw, list the reason at the end."""
        try:
            made = make()
        except NothingToDraw as reason:
            if list_missing or isinstance(reason, OddNotes):
                self.missing.append(f"<li>{escape(heading)}: {escape(str(reason))}</li>")
            return
        self.figures += figures_in(made)
        self.drawn.append(f'<section class="{css}"><h2>{escape(heading)}</h2>{html_of(made)}</section>')

    def html(self) -> str:
        drawn = "".join(self.drawn)
        if self.missing:
            drawn += f"<section><h2>Figures not shown</h2><ul>{''.join(self.missing)}</ul></section>"
        return f'<div class="figures">{drawn}</div>'


def by_metric(metrics: Sequence[MeasuredMetric], make: Callable[[MeasuredMetric], Drawn]) -> Drawn:
    """A figure for each metric, with a switch between them if there are several; those with nothing to draw are left
    out."""
    drawn: dict[str, Drawn] = {}
    nothing: NothingToDraw | None = None
    for metric in metrics:
        try:
            drawn[metric.title if metric.title not in drawn else f"{metric.title} ({metric.name})"] = make(metric)
        except NothingToDraw as reason:
            nothing = nothing or reason
    if nothing is not None and not drawn:
        raise nothing
    return Switch("Metric", drawn) if len(drawn) > 1 else next(iter(drawn.values()))


def heading_of(metrics: Sequence[MeasuredMetric], rest: str) -> str:
    """The heading of what `by_metric` draws."""
    return f"{metrics[0].title if len(metrics) == 1 else 'Metrics'} {rest}"


def figures_in(drawn: Drawn) -> list[Figure]:
    return [drawn] if isinstance(drawn, Figure) else list(drawn.figures)


def html_of(drawn: Drawn) -> str:
    return figure(drawn) if isinstance(drawn, Figure) else drawn.html()


def figure(drawn: Figure) -> str:
    return (
        f'<figure data-file="{escape(drawn.name)}"><div class="drawing">{drawn.picture}</div>'
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure>"
    )
