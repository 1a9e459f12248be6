"""What all pages have in common: one file that needs nothing else, and in which only its own script can run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from coterie.report.figure import Figure, NothingToDraw, OddNotes
from coterie.report.forms import DPI, WIDTH_MM
from coterie.report.marks import asset


def page(title: str, parts: Iterable[str], data: object, scripts: Sequence[str]) -> str:
    """A whole page. `data` is what its script works with, `scripts` are the files that it is made of."""
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
    """Nothing is fetched, and nothing runs but this page's own script, whatever the names in a run contain.

    Images as data are what its script makes PNG files from.
    """
    allowed = {"style-src": _digest(style), "script-src": _digest(script), "img-src": "data:"}
    rules = [f"{what} {whom}" for what, whom in allowed.items()]
    return "; ".join(["default-src 'none'", *rules, "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_data(value: object) -> str:
    """JSON in which nothing can end the element that it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


class Several(Protocol):
    """Figures that belong together, under one heading."""

    @property
    def figures(self) -> Sequence[Figure]: ...

    def html(self) -> str: ...


@dataclass(frozen=True)
class Switch:
    """Figures in one place, between which the page's script switches."""

    what: str
    options: Mapping[str, Figure]

    @property
    def figures(self) -> list[Figure]:
        return list(self.options.values())

    def html(self) -> str:
        options = (f'<div data-option="{escape(name)}">{figure(made)}</div>' for name, made in self.options.items())
        return f'<div data-switch="{escape(self.what)}">{"".join(options)}</div>'


@dataclass(frozen=True)
class Beside:
    """Figures beside each other where there is room, else one below the other. `above` is HTML."""

    figures: Sequence[Figure]
    above: str = ""

    def html(self) -> str:
        drawn = (f"<div><h3>{escape(made.heading)}</h3>{figure(made)}</div>" for made in self.figures)
        return f'{self.above}<div class="pair">{"".join(drawn)}</div>'


class Sections:
    """The figures of a page, and what there is instead of those for which there is nothing to draw."""

    def __init__(self) -> None:
        self.drawn: list[str] = []
        self.figures: list[Figure] = []
        self.missing: list[str] = []

    def add(self, make: Callable[[], Figure | Several], heading: str, css: str = "", say: bool = True) -> None:
        """A figure (or several) under its heading; otherwise the reason why not, to be said at the end."""
        try:
            made = make()
        except NothingToDraw as why:
            if say or isinstance(why, OddNotes):
                self.missing.append(f"<li>{escape(heading)}: {escape(str(why))}</li>")
            return
        body = figure(made) if isinstance(made, Figure) else made.html()
        self.figures += [made] if isinstance(made, Figure) else made.figures
        self.drawn.append(f'<section class="{css}"><h2>{escape(heading)}</h2>{body}</section>')

    def html(self) -> str:
        drawn = "".join(self.drawn)
        if self.missing:
            drawn += f"<section><h2>Not on this page</h2><ul>{''.join(self.missing)}</ul></section>"
        return f'<div class="figures">{drawn}</div>'


def figure(drawn: Figure) -> str:
    return (
        f'<figure data-file="{escape(drawn.name)}"><div class="drawing">{drawn.picture}</div>'
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure>"
    )
