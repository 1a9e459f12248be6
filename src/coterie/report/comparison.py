"""The page of a comparison: the table, and the curves of every variant with the interval over its seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np

from coterie.files import write_whole
from coterie.report import page as pages
from coterie.report.charts import power_of, tenths_around
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import COLOURS, colour, colour_and_dash
from coterie.report.measures import spread_out
from coterie.report.seeds import Band, Measure, Seeds
from coterie.report.svg import Plot, circle, named, number, tick
from coterie.report.tables import open_table
from coterie.report.words import UNITS, count, percent

SCRIPTS = ("pick.js", "lines.js", "pdf.js", "save.js")
MANY = 4  # variants: the bands of more are fainter, for they overlap
MAX_DOTS = 300  # of one variant
MAX_LABEL = 22  # characters at the side of the dots


def write_comparison(
    path: Path,
    title: str,
    variants: Mapping[str, Sequence[Path]],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    command: str = "",
) -> None:
    """Write the page of a comparison: `variants` are the folders of each label's runs, one for each seed, and
    `command` is what makes it again."""
    found = [Seeds(label, folders) for label, folders in variants.items() if folders]
    top = open_table("Comparison", "One row for each variant.", head, rows, names=(0,))
    about = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)
    about += f"<p><code>{escape(command)}</code></p>" if command else ""
    parts = [
        f'<section class="results"><h2>Results</h2>{top}{about}</section>',
        sections(found).html(),
        _links(path, found),
    ]
    said = [f"{count(len(s.runs), 'seed')}, {percent(_mean(s))} in the mean over peers" for s in found]
    data = {"what": "variant", "names": [s.label for s in found], "about": said}
    write_whole(path, pages.page(title, parts, data, SCRIPTS))


def sections(found: Sequence[Seeds]) -> pages.Sections:
    """The figures of a comparison."""
    made = pages.Sections()
    for split in ("test", "validation"):
        made.add(partial(over_rounds, found, split), f"{split.capitalize()} accuracy over rounds")
    made.add(partial(_switched, over_bytes, found), "Accuracy against bytes exchanged")
    made.add(partial(_switched, over_time, found), "Accuracy against simulated time")
    made.add(partial(dots, found), "Peer by peer")
    return made


def lines(found: Sequence[Seeds], measure: Measure, x: str, split: str, unit: float = 1.0) -> Figure:
    """A line and the interval over seeds for each variant."""
    bands = {seeds.label: measure(seeds) for seeds in found}
    shown = {label: b for label, b in bands.items() if b.xs}
    if not shown:
        raise NothingToDraw("No round was measured in all seeds.")
    low = [m - r for b in shown.values() for m, r in zip(b.means, b.reach, strict=True)]
    high = [m + r for b in shown.values() for m, r in zip(b.means, b.reach, strict=True)]
    ends = tenths_around([max(0.0, min(low)), min(1.0, max(high))])
    start = 0.0 if x != "round" else min(1.0, min(b.xs[0] for b in shown.values()))
    plot = Plot((start, max(b.xs[-1] for b in shown.values()) / unit), ends)
    plot.axes(x, f"{split} accuracy", tick, whole=x == "round")
    for i, label in enumerate(bands):
        if label in shown:
            _line(plot, shown[label], style(i), label, unit, "one-of-many" if len(bands) > MANY else "")
    best = ", ".join(f"{label} {percent(b.means[-1])}" for label, b in shown.items())
    caption = "Mean over peers and seeds; band: the 95% interval over seeds (Student's t)."
    if any(len(seeds.runs) < 2 for seeds in found):
        caption += " Of one seed alone, there is no interval."
    if len(bands) > COLOURS:
        caption += f" Of {len(bands)} variants, those after the first {COLOURS} are grey: point at them to see which."
    keys = tuple(Key(style(i), label) for i, label in enumerate(bands))
    name = f"{split}-{x.split()[0]}"
    return Figure(name, "Accuracy", plot.svg(f"{split} accuracy against {x}; at last: {best}"), caption, keys)


def _line(plot: Plot, shown: Band, css: str, label: str, unit: float, faint: str) -> None:
    xs = [x / unit for x in shown.xs]
    edges = [(max(plot.y[0], m - r), min(plot.y[1], m + r)) for m, r in zip(shown.means, shown.reach, strict=True)]
    if any(shown.reach):
        plot.band(xs, [low for low, _ in edges], [high for _, high in edges], f"{css} {faint}".strip(), label)
    plot.line(xs, shown.means, css, label)


def over_rounds(found: Sequence[Seeds], split: str) -> Figure:
    return lines(found, lambda seeds: seeds.over_rounds(split), "round", split)


def over_bytes(found: Sequence[Seeds], split: str) -> Figure:
    most = max((s.over_bytes(split).xs or [0.0])[-1] for s in found)
    if not most:
        raise NothingToDraw("Nothing was exchanged.")
    power = power_of(most)

    def measure(seeds: Seeds) -> Band:
        all_of_it = seeds.over_bytes(split)
        if all_of_it.xs and not all_of_it.xs[-1]:  # who exchanges nothing is one dot: where it ends
            return Band(all_of_it.xs[-1:], all_of_it.means[-1:], all_of_it.reach[-1:])
        return all_of_it

    return lines(found, measure, f"bytes exchanged by all peers so far, {UNITS[power]}", split, 1000.0**power)


def over_time(found: Sequence[Seeds], split: str) -> Figure:
    return lines(found, lambda seeds: seeds.over_time(split), "simulated seconds", split)


def dots(found: Sequence[Seeds]) -> Figure:
    """Every peer of every seed as a dot, a row for each variant."""
    values = {seeds.label: sorted(seeds.per_peer()) for seeds in found}
    everything = [v for row in values.values() for v in row]
    if not everything:
        raise NothingToDraw("No peer was measured.")
    longest = min(MAX_LABEL, max(len(label) for label in values))
    plot = Plot(tenths_around(everything), (len(values) - 0.5, -0.5), 60 + 30.0 * len(values), 20 + 6.6 * longest)
    names = [label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…" for label in values]
    plot.axes("test accuracy", "", lambda row: names[int(row)], x_tick=tick, y_at=list(range(len(values))))
    for i, (label, row) in enumerate(values.items()):
        shown = spread_out(row, MAX_DOTS)
        for j, value in enumerate(shown):
            x, y = plot.at(value, i)
            plot.parts.append(circle(x, y + (j % 5 - 2) * 3.5, 2.5, f"swarm {_colour(i)}", label))
        if row:
            x, y = plot.at(float(np.mean(row)), i)
            plot.parts.append(f'<path class="mark" d="M{number(x)} {number(y - 11)}v22"{named(label)}/>')
    caption = "A dot is one peer of one seed, at its round of best validation; it is moved up or down only to be seen."
    caption += " The upright stroke is the mean."
    if any(len(row) > MAX_DOTS for row in values.values()):
        caption += f" Of each variant, at most {MAX_DOTS} dots are drawn, evenly spread in order of accuracy."
    label = "Test accuracy of every peer; means: " + ", ".join(
        f"{name} {percent(float(np.mean(row)))}" for name, row in values.items() if row
    )
    return Figure("peers", "Peer by peer", plot.svg(label), caption)


def style(number: int) -> str:
    return colour_and_dash(number) if number < COLOURS else "plain"


def _colour(number: int) -> str:
    return colour(number) if number < COLOURS else "plain"


def _switched(make: Callable[[Sequence[Seeds], str], Figure], found: Sequence[Seeds]) -> pages.Switch:
    """The figure of both splits."""
    return pages.Switch("Accuracy on", {split.capitalize(): make(found, split) for split in ("test", "validation")})


def _mean(seeds: Seeds) -> float | None:
    found = seeds.per_peer()
    return float(np.mean(found)) if found else None


def _links(path: Path, found: Sequence[Seeds]) -> str:
    """To the report of every run that has one."""
    items = []
    for seeds in found:
        links = []
        for folder, run in zip(seeds.folders, seeds.runs, strict=True):
            report = folder / "report.html"
            if report.exists():
                way = Path(os.path.relpath(report.resolve(), path.parent.resolve())).as_posix()
                links.append(f'<a href="{quote(way)}">{escape(seeds.label)}, seed {run.start.seed}</a>')
        if links:
            items.append(f"<li>{', '.join(links)}</li>")
    return f"<section><h2>The report of each run</h2><ul>{''.join(items)}</ul></section>" if items else ""
