"""Convert figures to files for papers: SVG directly, PDF and PNG by vl-convert (the extra `figures`)."""

from __future__ import annotations

from pathlib import Path

from coterie.core.errors import CoterieError, unknown

FORMS = ("svg", "pdf", "png")
BACKGROUNDS = ("white", "transparent")
DPI = 300  # of PNG files, recorded in the file
WIDTH_MM = 89.0  # one column of a paper
WIDTHS_MM = (20.0, 1000.0)  # allowed range
POINTS_PER_MM = 72 / 25.4


def form_of(path: Path) -> str:
    """The file format, from the file name's suffix."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise CoterieError(f"{path}: figures are saved as {', '.join(f'.{name}' for name in FORMS)}")
    return form


def checked_background(background: str) -> str:
    if background not in BACKGROUNDS:
        raise CoterieError(unknown("background", background, BACKGROUNDS))
    return background


def checked_width(width: float) -> float:
    low, high = WIDTHS_MM
    if not low <= width <= high:
        raise CoterieError(f"a figure cannot be {width:g} mm wide: give a width from {low:g} to {high:g} mm")
    return width


def converted(svg: str, form: str) -> bytes:
    """The SVG as PDF or PNG. Its size is in pixels, which vl-convert treats as points."""
    try:
        import vl_convert
    except ImportError as error:
        raise CoterieError(
            f"{form.upper()} files need the package vl-convert-python: pip install 'vl-convert-python>=1.7'. "
            "SVG files need no package"
        ) from error
    if form == "pdf":
        return bytes(vl_convert.svg_to_pdf(svg))
    return bytes(vl_convert.svg_to_png(svg, ppi=DPI))
