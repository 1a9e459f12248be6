"""The HTML report of a comparison or sweep: the table, and curves of every variant with intervals over seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np

from coterie.core.files import write_whole
from coterie.core.formatting import count, percent
from coterie.core.run_folder import RunFolder
from coterie.report import page as pages
from coterie.report import sweep
from coterie.report.byte_axis import ByteAxis
from coterie.report.charts import SPLITS, Ends, draw_line, tenths_around
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.gains import HEADING, LOCAL, OPTIONS, ROUNDS, TABLE_HEAD, around, points, table_rows, zero
from coterie.report.gains import tick as gain_tick
from coterie.report.marks import COLOURS, colour, colour_and_dash
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.seeds import Band, Measure, Seeds
from coterie.report.svg import Plot, circle, named, number, tick
from coterie.report.tables import open_table

SCRIPTS = ("pick.js", "lines.js", "pdf.js", "save.js")
MANY = 4  # variants; the bands of more are fainter because they overlap
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
    alone: Mapping[str, str] | None = None,
    places: sweep.Places | None = None,
) -> None:
    """Write the page of a comparison. `variants` are the folders of each label's runs, one for each seed; `command`
    recreates it. `alone` maps each label to the label whose peers train alone under the same settings (default: the
    one label whose method is `local`). For a sweep, `places` are the labels' positions in its grid.
    """
    compared = [Seeds(label, folders) for label, folders in variants.items() if folders]
    top = open_table("Comparison", "One row for each variant.", head, rows, names=(0,))
    about = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)
    about += f"<p><code>{escape(command)}</code></p>" if command else ""
    parts = [
        f'<section class="results"><h2>Results</h2>{top}{about}</section>',
        sections(compared, alone, places).html(),
    ]
    parts += [_gain_table(compared, alone), _links(path, compared)]
    descriptions = [f"{count(len(s.runs), 'seed')}, {percent(_mean(s))} in the mean over peers" for s in compared]
    data = {"what": "variant", "names": [s.label for s in compared], "about": descriptions}
    write_whole(path, pages.page(title, parts, data, SCRIPTS))


def sections(
    variants: Sequence[Seeds], alone: Mapping[str, str] | None = None, places: sweep.Places | None = None
) -> pages.Sections:
    """The figures of a comparison; for a sweep, those of its grid first."""
    ends = accuracy_axis(variants)
    made = pages.Sections()
    chosen_by_first = {split.capitalize(): split for split in ("validation", "test")}
    for heading, make in sweep.figures(places or {}):
        made.add(partial(_switched, "Accuracy on", chosen_by_first, partial(make, variants)), heading)
    for split in SPLITS:
        made.add(partial(over_rounds, variants, split, ends), f"{split.capitalize()} accuracy over rounds")
    at = partial(_switched, "Accuracy on", {split.capitalize(): split for split in SPLITS})
    made.add(partial(at, partial(over_bytes, variants, ends)), "Accuracy against bytes exchanged")
    made.add(partial(at, partial(over_time, variants, ends)), "Accuracy against simulated time")
    made.add(partial(dots, variants, ends), "Peer by peer")
    made.add(partial(_switched, "Round", OPTIONS, partial(gain_curves, variants, alone)), f"{HEADING} against local")
    return made


def accuracy_axis(variants: Sequence[Seeds]) -> Ends:
    """The ends of the accuracy axis, the same in all charts so that they can be compared by eye: whole tenths around
    all intervals and all peers."""
    bands = [curve(split) for s in variants for curve in (s.over_rounds, s.over_time) for split in SPLITS]
    shown = [v for b in bands for m, r in zip(b.means, b.reach, strict=True) for v in (m - r, m + r)]
    shown += [v for s in variants for v in s.per_peer()]
    return tenths_around([max(0.0, min(shown)), min(1.0, max(shown))]) if shown else (0.0, 1.0)


def lines(
    variants: Sequence[Seeds], measure: Measure, x: str, split: str, ends: Ends, axis: ByteAxis | None = None
) -> Figure:
    """A line and the interval over seeds for each variant."""
    bands = {seeds.label: measure(seeds) for seeds in variants}
    shown = {label: b for label, b in bands.items() if b.xs}
    if not shown:
        raise NothingToDraw("No round was measured under all seeds.")
    if axis is not None:
        plot = Plot(axis.ends, ends)
        axis.draw(plot, x, f"{split} accuracy", tick)
    else:
        start = 0.0 if x != "round" else min(1.0, min(b.xs[0] for b in shown.values()))
        plot = Plot((start, max(b.xs[-1] for b in shown.values())), ends)
        plot.axes(x, f"{split} accuracy", tick, whole=x == "round")
    for i, label in enumerate(bands):
        if label in shown:
            _line(plot, shown[label], style(i), label, axis, "one-of-many" if len(bands) > MANY else "")
    final = ", ".join(f"{label} {percent(b.means[-1])}" for label, b in shown.items())
    caption = "Mean over peers and seeds; band: the 95% interval over seeds (Student's t)."
    if any(len(seeds.runs) < 2 for seeds in variants):
        caption += " A single seed has no interval."
    if len(bands) > COLOURS:
        caption += f" Variants after the first {COLOURS} of {len(bands)} are grey: point at a line to see its name."
    if axis is not None and axis.has_nothing:
        caption += " Left of the break, at 0: nothing exchanged"
        caption += "; the vertical stroke is the interval." if any(any(b.reach) for b in shown.values()) else "."
    keys = tuple(Key(style(i), label) for i, label in enumerate(bands))
    name = f"{split}-{x.split()[0]}"
    return Figure(name, "Accuracy", plot.svg(f"{split} accuracy against {x}; finally {final}"), caption, keys)


def _line(plot: Plot, shown: Band, css: str, label: str, axis: ByteAxis | None, faint: str) -> None:
    edges = [(max(plot.y[0], m - r), min(plot.y[1], m + r)) for m, r in zip(shown.means, shown.reach, strict=True)]
    some = [i for i, x in enumerate(shown.xs) if axis is None or x]  # a band has no width where x is 0
    if any(shown.reach) and some:
        xs = [shown.xs[i] if axis is None else axis.at(shown.xs[i]) for i in some]
        plot.band(xs, [edges[i][0] for i in some], [edges[i][1] for i in some], f"{css} {faint}".strip(), label)
    if axis is not None and not some and any(shown.reach):
        plot.line([axis.nothing] * 2, list(edges[-1]), f"{css} thin", label, dot=False)
    draw_line(plot, shown.xs, shown.means, css, label, axis)


def over_rounds(variants: Sequence[Seeds], split: str, ends: Ends) -> Figure:
    return lines(variants, lambda seeds: seeds.over_rounds(split), "round", split, ends)


def over_bytes(variants: Sequence[Seeds], ends: Ends, split: str) -> Figure:
    axis = ByteAxis(x for s in variants for x in s.over_bytes(split).xs)
    if not any(any(s.over_bytes(split).xs) for s in variants):
        raise NothingToDraw("Nothing was exchanged.")

    def measure(seeds: Seeds) -> Band:
        curve = seeds.over_bytes(split)
        if curve.xs and not curve.xs[-1]:  # a variant that exchanges nothing is one dot, its final value
            return Band(curve.xs[-1:], curve.means[-1:], curve.reach[-1:])
        return curve

    return lines(variants, measure, "bytes exchanged by all peers so far, logarithmic", split, ends, axis)


def over_time(variants: Sequence[Seeds], ends: Ends, split: str) -> Figure:
    return lines(variants, lambda seeds: seeds.over_time(split), "simulated seconds", split, ends)


def dots(variants: Sequence[Seeds], ends: Ends) -> Figure:
    """Every peer under every seed as a dot, with a row for each variant."""
    values = {seeds.label: sorted(seeds.per_peer()) for seeds in variants}
    everything = [v for row in values.values() for v in row]
    if not everything:
        raise NothingToDraw("No peer was measured.")
    longest = min(MAX_LABEL, max(len(label) for label in values))
    plot = Plot(ends, (len(values) - 0.5, -0.5), 60 + 30.0 * len(values), 20 + 6.6 * longest)
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
    caption = "A dot is one peer under one seed, at its round of best validation; its vertical offset has no meaning."
    caption += " The vertical stroke is the mean."
    if any(len(row) > MAX_DOTS for row in values.values()):
        caption += f" At most {MAX_DOTS} dots are drawn per variant, evenly spaced in order of accuracy."
    label = "Test accuracy of every peer; means: " + ", ".join(
        f"{name} {percent(float(np.mean(row)))}" for name, row in values.items() if row
    )
    return Figure("peers", "Peer by peer", plot.svg(label), caption)


def local_counterparts(variants: Sequence[Seeds]) -> dict[str, str]:
    """Each label's counterpart that trains alone, if exactly one label does."""
    alone = [s.label for s in variants if s.runs and all(run.start.method == LOCAL for run in s.runs)]
    return {s.label: alone[0] for s in variants} if len(alone) == 1 else {}


def _gains(variants: Sequence[Seeds], alone: Mapping[str, str] | None, at: str) -> dict[int, list[float]]:
    """Gains of every peer under every seed against training alone, for each variant (by index) with such runs."""
    counterparts = local_counterparts(variants) if alone is None else alone
    by_label, gained = {s.label: s for s in variants}, {}
    for i, seeds in enumerate(variants):
        counterpart = by_label.get(counterparts.get(seeds.label, ""))
        if counterpart is not None and counterpart is not seeds:
            gained[i] = seeds.gains_against(counterpart, at)
    return {i: values for i, values in gained.items() if values}


def gain_curves(variants: Sequence[Seeds], alone: Mapping[str, str] | None, at: str) -> Figure:
    """Gains of every peer under every seed against training alone, sorted, with a line for each variant."""
    values = _gains(variants, alone, at)
    if not values:
        raise NothingToDraw(
            "There are no runs of `local` on the same splits; `coterie compare` adds them unless --no-local is given."
        )
    plot = Plot((0.0, 100.0), around(v for row in values.values() for v in row))
    plot.axes(
        "share of peers (%), from the largest gain to the largest loss", "gain in test accuracy, points", gain_tick
    )
    zero(plot)
    for i, row in values.items():
        ranked = list(enumerate(sorted(row, reverse=True)))
        places = [(100 * (rank + 0.5) / len(row), 100 * v) for rank, v in spread_out(ranked, MAX_POINTS)]
        plot.line([x for x, _ in places], [y for _, y in places], style(i), variants[i].label, dot=len(places) == 1)
    means = ", ".join(f"{variants[i].label} {points(float(np.mean(row)))}" for i, row in values.items())
    caption = f"Every peer under every seed: its test accuracy {ROUNDS[at]}, minus its accuracy in `local`."
    caption += " Peers left of where a line crosses zero gain; peers right of it lose."
    keys = tuple(Key(style(i), variants[i].label) for i in values)
    label = f"Gain of each peer against local, sorted; means in points: {means}"
    return Figure(f"gain-{at}", HEADING, plot.svg(label), caption, keys)


def _gain_table(variants: Sequence[Seeds], alone: Mapping[str, str] | None) -> str:
    parts = []
    for at, when in ROUNDS.items():
        rows = table_rows({variants[i].label: values for i, values in _gains(variants, alone, at).items()})
        if rows:
            parts.append(open_table("Peers that gain or lose", f"Against local, {when}.", TABLE_HEAD, rows, names=(0,)))
    if not parts:
        return ""
    return f"<details><summary>{HEADING} against local</summary>{''.join(parts)}</details>"


def style(number: int) -> str:
    return colour_and_dash(number) if number < COLOURS else "plain"


def _colour(number: int) -> str:
    return colour(number) if number < COLOURS else "plain"


def _switched(label: str, options: Mapping[str, str], make: Callable[[str], Figure]) -> pages.Switch:
    """A figure for each option; the page's script switches between them."""
    return pages.Switch(label, {name: make(option) for name, option in options.items()})


def _mean(seeds: Seeds) -> float | None:
    accuracies = seeds.per_peer()
    return float(np.mean(accuracies)) if accuracies else None


def _links(path: Path, variants: Sequence[Seeds]) -> str:
    """Links to the report of every run that has one."""
    items = []
    for seeds in variants:
        links = []
        for folder, run in zip(seeds.folders, seeds.runs, strict=True):
            report = RunFolder(folder).report
            if report.exists():
                relative = Path(os.path.relpath(report.resolve(), path.parent.resolve())).as_posix()
                links.append(f'<a href="{quote(relative)}">{escape(seeds.label)}, seed {run.start.seed}</a>')
        if links:
            items.append(f"<li>{', '.join(links)}</li>")
    return f"<section><h2>Reports of the runs</h2><ul>{''.join(items)}</ul></section>" if items else ""
