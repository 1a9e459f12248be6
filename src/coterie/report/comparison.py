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
from coterie.core.formatting import count
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.run_folder import RunFolder
from coterie.report import page as pages
from coterie.report import sweep
from coterie.report.byte_axis import ByteAxis
from coterie.report.charts import SPLITS, draw_line
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.gains import (
    HEADING,
    LOCAL,
    OPTIONS,
    ROUNDS,
    around,
    axis_label,
    definition,
    table_head,
    table_rows,
    with_unit,
    zero,
)
from coterie.report.gains import tick as gain_tick
from coterie.report.marks import COLOURS, colour, colour_and_dash
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.metric_axis import Ends, direction, ends_around, interval, tick_of
from coterie.report.seeds import Band, Measure, Seeds, figure_name, metrics_of
from coterie.report.svg import Plot, circle, named, number
from coterie.report.tables import open_table

SCRIPTS = ("pick.js", "lines.js", "pdf.js", "save.js")
CHOSEN_BY_FIRST = SPLITS[::-1]  # a sweep is for choosing
AxisEnds = Mapping[str, Ends]  # by metric
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
    main = metrics_of(compared)[0]
    means = [main.text(_mean(s, main)) for s in compared]
    descriptions = [
        f"{count(len(s.runs), 'seed')}, {mean} in the mean over peers" for s, mean in zip(compared, means, strict=True)
    ]
    data = {"what": "variant", "names": [s.label for s in compared], "about": descriptions}
    write_whole(path, pages.page(title, parts, data, SCRIPTS))


def sections(
    variants: Sequence[Seeds], alone: Mapping[str, str] | None = None, places: sweep.Places | None = None
) -> pages.Sections:
    """The figures of a comparison; for a sweep, those of its grid first."""
    metrics = metrics_of(variants)
    ends = {metric.name: axis_of(variants, metric) for metric in metrics}
    made = pages.Sections()

    def add(heading: str, draw: Callable[[MeasuredMetric], pages.Drawn]) -> None:
        made.add(partial(pages.by_metric, metrics, draw), heading)

    heading = partial(pages.heading_of, metrics)
    for rest, make in sweep.figures(places or {}):
        add(heading(rest), partial(_on_splits, CHOSEN_BY_FIRST, partial(make, variants)))
    for split in SPLITS:
        what = metrics[0].label if len(metrics) == 1 else "metrics"
        add(f"{split.capitalize()} {what} over rounds", partial(over_rounds, variants, ends, split=split))
    add(heading("against bytes exchanged"), partial(_on_splits, SPLITS, partial(over_bytes, variants, ends)))
    add(heading("against simulated time"), partial(_on_splits, SPLITS, partial(over_time, variants, ends)))
    add("Peer by peer", partial(dots, variants, ends))
    add(f"{HEADING} against local", partial(_at_rounds, partial(gain_curves, variants, alone)))
    return made


def axis_of(variants: Sequence[Seeds], metric: MeasuredMetric) -> Ends:
    """The ends of a metric's axis, the same in all charts so that they can be compared by eye: around all intervals and
    all peers."""
    bands = [curve(metric.name, split) for s in variants for curve in (s.over_rounds, s.over_time) for split in SPLITS]
    shown = [v for b in bands for m, r in zip(b.means, b.reach, strict=True) for v in interval(metric, m, r)]
    shown += [v for s in variants for v in s.per_peer(metric.name)]
    return ends_around(metric, shown)


def lines(
    variants: Sequence[Seeds],
    metric: MeasuredMetric,
    measure: Measure,
    x: str,
    split: str,
    ends: AxisEnds,
    axis: ByteAxis | None = None,
) -> Figure:
    """A line and the interval over seeds for each variant."""
    bands = {seeds.label: measure(seeds) for seeds in variants}
    shown = {label: b for label, b in bands.items() if b.xs}
    if not shown:
        raise NothingToDraw("No round was measured under all seeds.")
    if axis is not None:
        plot = Plot(axis.ends, ends[metric.name])
        axis.draw(plot, x, f"{split} {metric.axis_label}", tick_of(metric))
    else:
        start = 0.0 if x != "round" else min(1.0, min(b.xs[0] for b in shown.values()))
        plot = Plot((start, max(b.xs[-1] for b in shown.values())), ends[metric.name])
        plot.axes(x, f"{split} {metric.axis_label}", tick_of(metric), whole=x == "round")
    for i, label in enumerate(bands):
        if label in shown:
            _line(plot, shown[label], style(i), label, axis, "one-of-many" if len(bands) > MANY else "")
    final = ", ".join(f"{label} {metric.text(b.means[-1])}" for label, b in shown.items())
    caption = f"Mean over peers and seeds; band: the 95% interval over seeds (Student's t).{direction(metric)}"
    if any(len(seeds.runs) < 2 for seeds in variants):
        caption += " A single seed has no interval."
    if len(bands) > COLOURS:
        caption += f" Variants after the first {COLOURS} of {len(bands)} are grey: point at a line to see its name."
    if axis is not None and axis.has_nothing:
        caption += " Left of the break, at 0: nothing exchanged"
        caption += "; the vertical stroke is the interval." if any(any(b.reach) for b in shown.values()) else "."
    keys = tuple(Key(style(i), label) for i, label in enumerate(bands))
    name = figure_name(metric, variants, f"{split}-{x.split()[0]}")
    label = f"{split} {metric.label} against {x}; finally {final}"
    return Figure(name, metric.title, plot.svg(label), caption, keys)


def _line(plot: Plot, shown: Band, css: str, label: str, axis: ByteAxis | None, faint: str) -> None:
    edges = [(max(plot.y[0], m - r), min(plot.y[1], m + r)) for m, r in zip(shown.means, shown.reach, strict=True)]
    some = [i for i, x in enumerate(shown.xs) if axis is None or x]  # a band has no width where x is 0
    if any(shown.reach) and some:
        xs = [shown.xs[i] if axis is None else axis.at(shown.xs[i]) for i in some]
        plot.band(xs, [edges[i][0] for i in some], [edges[i][1] for i in some], f"{css} {faint}".strip(), label)
    if axis is not None and not some and any(shown.reach):
        plot.line([axis.nothing] * 2, list(edges[-1]), f"{css} thin", label, dot=False)
    draw_line(plot, shown.xs, shown.means, css, label, axis)


def over_rounds(variants: Sequence[Seeds], ends: AxisEnds, metric: MeasuredMetric, split: str) -> Figure:
    return lines(variants, metric, lambda seeds: seeds.over_rounds(metric.name, split), "round", split, ends)


def over_bytes(variants: Sequence[Seeds], ends: AxisEnds, metric: MeasuredMetric, split: str) -> Figure:
    axis = ByteAxis(x for s in variants for x in s.over_bytes(metric.name, split).xs)
    if not any(any(s.over_bytes(metric.name, split).xs) for s in variants):
        raise NothingToDraw("Nothing was exchanged.")

    def measure(seeds: Seeds) -> Band:
        curve = seeds.over_bytes(metric.name, split)
        if curve.xs and not curve.xs[-1]:  # a variant that exchanges nothing is one dot, its final value
            return Band(curve.xs[-1:], curve.means[-1:], curve.reach[-1:])
        return curve

    return lines(variants, metric, measure, "bytes exchanged by all peers so far, logarithmic", split, ends, axis)


def over_time(variants: Sequence[Seeds], ends: AxisEnds, metric: MeasuredMetric, split: str) -> Figure:
    return lines(variants, metric, lambda seeds: seeds.over_time(metric.name, split), "simulated seconds", split, ends)


def dots(variants: Sequence[Seeds], ends: AxisEnds, metric: MeasuredMetric) -> Figure:
    """Every peer under every seed as a dot, with a row for each variant."""
    values = {seeds.label: sorted(seeds.per_peer(metric.name)) for seeds in variants}
    everything = [v for row in values.values() for v in row]
    if not everything:
        raise NothingToDraw("No peer was measured.")
    longest = min(MAX_LABEL, max(len(label) for label in values))
    plot = Plot(ends[metric.name], (len(values) - 0.5, -0.5), 60 + 30.0 * len(values), 20 + 6.6 * longest)
    names = [label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…" for label in values]
    at = list(range(len(values)))
    plot.axes(f"test {metric.axis_label}", "", lambda row: names[int(row)], x_tick=tick_of(metric), y_at=at)
    for i, (label, row) in enumerate(values.items()):
        shown = spread_out(row, MAX_DOTS)
        for j, value in enumerate(shown):
            x, y = plot.at(value, i)
            plot.parts.append(circle(x, y + (j % 5 - 2) * 3.5, 2.5, f"swarm {_colour(i)}", label))
        if row:
            x, y = plot.at(float(np.mean(row)), i)
            plot.parts.append(f'<path class="mark" d="M{number(x)} {number(y - 11)}v22"{named(label)}/>')
    caption = "A dot is one peer under one seed, at its round of best validation; its vertical offset has no meaning."
    caption += f" The vertical stroke is the mean.{direction(metric)}"
    if any(len(row) > MAX_DOTS for row in values.values()):
        caption += f" At most {MAX_DOTS} dots are drawn per variant, evenly spaced in order of their values."
    means = ", ".join(f"{name} {metric.text(float(np.mean(row)))}" for name, row in values.items() if row)
    label = f"Test {metric.label} of every peer; means: {means}"
    return Figure(figure_name(metric, variants, "peers"), "Peer by peer", plot.svg(label), caption)


def local_counterparts(variants: Sequence[Seeds]) -> dict[str, str]:
    """Each label's counterpart that trains alone, if exactly one label does."""
    alone = [s.label for s in variants if s.runs and all(run.start.method == LOCAL for run in s.runs)]
    return {s.label: alone[0] for s in variants} if len(alone) == 1 else {}


def _gains(
    variants: Sequence[Seeds], alone: Mapping[str, str] | None, metric: MeasuredMetric, at: str
) -> dict[int, list[float]]:
    """Gains of every peer under every seed against training alone, for each variant (by index) with such runs."""
    counterparts = local_counterparts(variants) if alone is None else alone
    by_label, gained = {s.label: s for s in variants}, {}
    for i, seeds in enumerate(variants):
        counterpart = by_label.get(counterparts.get(seeds.label, ""))
        if counterpart is not None and counterpart is not seeds:
            gained[i] = seeds.gains_against(counterpart, at, metric)
    return {i: values for i, values in gained.items() if values}


def gain_curves(variants: Sequence[Seeds], alone: Mapping[str, str] | None, metric: MeasuredMetric, at: str) -> Figure:
    """Gains of every peer under every seed against training alone, sorted, with a line for each variant."""
    values = _gains(variants, alone, metric, at)
    if not values:
        raise NothingToDraw(
            "There are no runs of `local` on the same splits; `coterie compare` adds them unless --no-local is given."
        )
    plot = Plot((0.0, 100.0), around((v for row in values.values() for v in row), metric))
    plot.axes("share of peers (%), from the largest gain to the largest loss", axis_label(metric), gain_tick)
    zero(plot)
    for i, row in values.items():
        ranked = list(enumerate(sorted(row, reverse=True)))
        places = [(100 * (rank + 0.5) / len(row), metric.scale * v) for rank, v in spread_out(ranked, MAX_POINTS)]
        plot.line([x for x, _ in places], [y for _, y in places], style(i), variants[i].label, dot=len(places) == 1)
    means = ", ".join(f"{variants[i].label} {with_unit(metric, float(np.mean(row)))}" for i, row in values.items())
    caption = f"Every peer under every seed. {definition(metric, at, '`local`')}"
    caption += " Peers left of where a line crosses zero gain; peers right of it lose."
    keys = tuple(Key(style(i), variants[i].label) for i in values)
    label = f"Gain of each peer against local, sorted; means: {means}"
    return Figure(figure_name(metric, variants, f"gain-{at}"), HEADING, plot.svg(label), caption, keys)


def _gain_table(variants: Sequence[Seeds], alone: Mapping[str, str] | None) -> str:
    parts, metric = [], metrics_of(variants)[0]
    for at, when in ROUNDS.items():
        gained = {variants[i].label: values for i, values in _gains(variants, alone, metric, at).items()}
        if gained:
            about, head = f"{metric.title} against local, {when}.", table_head(metric)
            rows = table_rows(gained, metric)
            parts.append(open_table("Peers that gain or lose", about, head, rows, names=(0,)))
    if not parts:
        return ""
    return f"<details><summary>{HEADING} against local</summary>{''.join(parts)}</details>"


def style(number: int) -> str:
    return colour_and_dash(number) if number < COLOURS else "plain"


def _colour(number: int) -> str:
    return colour(number) if number < COLOURS else "plain"


def _on_splits(
    splits: Sequence[str], make: Callable[[MeasuredMetric, str], Figure], metric: MeasuredMetric
) -> pages.Switch:
    """A figure of a metric for each split; the page's script switches between them."""
    return pages.Switch(f"{metric.title} on", {split.capitalize(): make(metric, split) for split in splits})


def _at_rounds(make: Callable[[MeasuredMetric, str], Figure], metric: MeasuredMetric) -> pages.Switch:
    return pages.Switch("Round", {name: make(metric, at) for name, at in OPTIONS.items()})


def _mean(seeds: Seeds, metric: MeasuredMetric) -> float | None:
    values = seeds.per_peer(metric.name)
    return float(np.mean(values)) if values else None


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
