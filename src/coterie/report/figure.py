"""One figure, wherever it is shown: on a page, in a notebook, in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

from coterie.errors import CoterieError
from coterie.report.marks import alone


class NothingToDraw(CoterieError):  # noqa: N818 (often it is no error: a method may have no graph)
    """A run has not what a figure shows; the message says what is missing."""


class OddNotes(NothingToDraw):
    """What peers noted under a name that is drawn has another form: a method may note what it likes."""


@contextmanager
def drawn_from(*names: str) -> Iterator[None]:
    """Around what reads these notes: a report is written whatever they hold."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise OddNotes(
            f"What peers noted as {', '.join(names)} is not what is drawn under that name ({error})."
        ) from error


class Key(NamedTuple):
    """An entry of a legend: how it is drawn (classes of marks.css), and what it stands for."""

    css: str
    text: str
    shape: str = "line"  # line | square | dot, bubble, star or ring (round marks of these classes)


@dataclass(frozen=True)
class Figure:
    """A drawing with all that is needed to read it. Notebooks show it by themselves."""

    name: str  # of its file, if it is saved
    heading: str
    drawing: str  # SVG whose colours are classes, for a page that has marks.css
    caption: str
    keys: tuple[Key, ...] = ()

    def svg(self) -> str:
        """The drawing as an SVG file of its own, in light colours."""
        return alone(self.drawing)

    def save(self, path: str | Path) -> Path:
        """Write it as an .svg file."""
        path = Path(path)
        if path.suffix != ".svg":
            raise CoterieError(f"{path}: figures are saved as .svg; for PNG, use the button beside it in report.html")
        path.write_text(self.svg() + "\n", encoding="utf-8")
        return path

    def legend(self) -> str:
        """The keys, as HTML: lines and marks as they are in the drawing."""
        if not self.keys:
            return ""
        items = "".join(f"<li>{_sample(key)}{escape(key.text)}</li>" for key in self.keys)
        return f'<ul class="keys">{items}</ul>'

    def _repr_html_(self) -> str:
        entries = (f"{alone(_sample(key))} {escape(key.text)}" for key in self.keys)
        items = "".join(f'<span style="margin-right:1em">{entry}</span>' for entry in entries)
        return (
            f'<figure style="max-width:40em;margin:0"><b>{escape(self.heading)}</b><div>{items}</div>{self.svg()}'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )


def _sample(key: Key) -> str:
    """A short line or a mark, as in the drawing."""
    if key.shape == "line":
        mark = f'<path class="line {key.css}" d="M2 6H30"/>'
    elif key.shape == "square":
        mark = f'<path class="ring {key.css}" d="M12 2h8v8h-8z"/>'
    else:
        mark = f'<circle class="{key.shape} {key.css}" cx="16" cy="6" r="5"/>'
    return f'<svg class="key" aria-hidden="true" viewBox="0 0 32 12">{mark}</svg>'
