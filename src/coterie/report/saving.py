"""Save the figures of a run, a comparison or a sweep as files for papers: `coterie figures`, also from Python."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from coterie.core.errors import CoterieError, RunError, unknown
from coterie.core.run_folder import ComparisonFolder, RunFolder
from coterie.report import comparison, forms, html
from coterie.report.figure import Figure
from coterie.report.page import Sections
from coterie.report.run import open_run
from coterie.report.seeds import Seeds

RESERVED = re.compile(r"[^\w.+=-]+")  # characters to avoid in file names


def figures(
    folder: str | Path,
    *,
    format: str | Sequence[str] = "svg",
    out: str | Path | None = None,
    only: str | Sequence[str] = (),
    background: str = "white",
    width: float = forms.WIDTH_MM,
) -> list[Path]:
    """Save the figures of a run, a comparison or a sweep as files, as `coterie figures` does.

    Args:
        folder: of the run, comparison or sweep.
        format: "svg", "pdf" or "png" (300 dpi), or several; the last two need ``pip install 'coterie[figures]'``.
        out: where to write; default: ``figures`` in the folder.
        only: names of figures; default: all.
        background: "white" or "transparent".
        width: in mm.

    Returns:
        The files.

    Raises:
        CoterieError: there is nothing to draw, a name is unknown, or a package is missing.
    """
    wanted = _checked_forms([form.lower() for form in ([format] if isinstance(format, str) else format)])
    chosen = _chosen(figures_by_name(folder), [only] if isinstance(only, str) else only)
    place = RunFolder(Path(folder)).figures if out is None else Path(out)
    place.mkdir(parents=True, exist_ok=True)
    return [
        figure.save(place / f"{name}.{form}", background=background, width=width)
        for name, figure in chosen.items()
        for form in wanted
    ]


def figures_by_name(folder: str | Path) -> dict[str, Figure]:
    """The figures in the report of a run, a comparison or a sweep, by name."""
    folder = Path(folder)
    compared = ComparisonFolder(folder).record.exists()
    sections = _comparison_sections(folder) if compared else html.sections(open_run(folder))
    if not sections.figures:
        raise RunError(f"{folder}: there is nothing to draw yet")
    figures: dict[str, Figure] = {}
    for figure in sections.figures:
        name = RESERVED.sub("-", figure.name)
        figures[name if name not in figures else f"{name}-{len(figures)}"] = figure
    return figures


def _comparison_sections(folder: Path) -> Sections:
    """The figures of a comparison or a sweep, labelled as on its page."""
    path = ComparisonFolder(folder).record
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        runs = {label: [folder / name for name in names] for label, names in record["runs"].items() if names}
        titles = {label: record.get("titles", {}).get(label, label) for label in runs}
        alone = {titles[label]: titles[local] for label, local in record.get("alone", {}).items()}
        places = {titles.get(label, label): place for label, place in record.get("places", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} does not name the runs it compares: recreate it with --print ({error!r})") from error
    for run in (run for folders in runs.values() for run in folders):
        if not RunFolder(run).events.exists():
            again = record.get("command", "the command that made it")
            raise RunError(f"{folder}: its run {run.name} no longer exists. Run it again: {again} --out {folder}")
    return comparison.sections(
        [Seeds(titles[label], folders) for label, folders in runs.items()], alone or None, places
    )


def _checked_forms(given: Sequence[str]) -> list[str]:
    for form in given:
        if form not in forms.FORMS:
            raise CoterieError(unknown("format", form, forms.FORMS))
    if not given:
        raise CoterieError(f"no format given; choose from {', '.join(forms.FORMS)}")
    return list(dict.fromkeys(given))


def _chosen(figures: dict[str, Figure], only: Sequence[str]) -> dict[str, Figure]:
    for name in only:
        if name not in figures:
            raise CoterieError(unknown("figure", name, figures))
    return {name: figure for name, figure in figures.items() if not only or name in only}
