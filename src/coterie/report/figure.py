"""A figure that can be shown on a page or in a notebook, or saved as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path

from coterie.core.errors import CoterieError
from coterie.core.files import write_whole
from coterie.report import forms
from coterie.report.legend import Key, with_legend
from coterie.report.marks import standalone

__all__ = ["Figure", "Key", "NothingToDraw", "OddNotes", "drawn_from"]


class NothingToDraw(CoterieError):  # noqa: N818 (often not an error: a method may have no graph)
    """The run lacks the data for a figure; the message says what is missing."""


class OddNotes(NothingToDraw):
    """A note has a different form from the one drawn under its name: methods may note anything."""


@contextmanager
def drawn_from(*names: str) -> Iterator[None]:
    """Turn errors while reading these notes into OddNotes, so that odd notes never prevent a report."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise OddNotes(f"The notes {', '.join(names)} do not have the expected form ({error}).") from error


@dataclass(frozen=True)
class Figure:
    """A drawing with heading, caption and legend. Notebooks display it directly."""

    name: str  # of the file if it is saved
    heading: str
    drawing: str  # SVG whose colours are classes, for a page that has marks.css
    caption: str
    keys: tuple[Key, ...] = ()  # its legend

    @property
    def picture(self) -> str:
        """The drawing with its legend, for a page that has marks.css."""
        return with_legend(self.drawing, self.keys)

    def svg(self, *, background: str = "white", width: float = forms.WIDTH_MM) -> str:
        """The text of an SVG file for a paper: dark on "white" (or "transparent"), `width` millimetres wide."""
        return standalone(self.picture, forms.checked_background(background), forms.checked_width(width))

    def save(self, path: str | Path, *, background: str = "white", width: float = forms.WIDTH_MM) -> Path:
        """Write it as .svg, .pdf or .png (300 dpi); the last two need `pip install 'vl-convert-python>=1.7'`."""
        path = Path(path)
        form = forms.form_of(path)
        svg = self.svg(background=background, width=width)
        if form == "svg":
            write_whole(path, f"{svg}\n")
        else:
            in_points = standalone(self.picture, background, width * forms.POINTS_PER_MM, unit="")
            write_whole(path, forms.converted(in_points, form))
        return path

    def _repr_html_(self) -> str:
        return (
            f'<figure style="max-width:40em;margin:0"><b>{escape(self.heading)}</b>{standalone(self.picture)}'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )
