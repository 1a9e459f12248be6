"""Write report.html of one run from its events and summary alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

from coterie.core.events import Event, PeerAway, RunStarted, of_kind
from coterie.core.files import write_whole
from coterie.core.formatting import count, duration, not_finite_peers, percent, short_name, size
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Spread, Summary, Totals
from coterie.methods.declared import predictor_label
from coterie.methods.figures import Described, Front, Plane, Routes
from coterie.report import diagnostics, fronts, walks
from coterie.report import page as pages
from coterie.report.charts import SPLITS
from coterie.report.embedding import rounds_of
from coterie.report.figure import OddNotes, drawn_from
from coterie.report.gains import HEADING, LOCAL, OPTIONS, gain_sentence, gains
from coterie.report.graph_figures import scale_of
from coterie.report.graphs import KINDS, Frame, Graph
from coterie.report.noted import charts as charts_of_notes
from coterie.report.run import Run, open_run
from coterie.report.summary import started
from coterie.report.tables import (
    MetricPoints,
    architecture_table,
    left,
    open_table,
    peer_table,
    round_table,
    side_by_side,
    table,
)

SCRIPTS = ("pick.js", "lines.js", "graph.js", "pdf.js", "save.js")


def write_report(events: Sequence[Event], summary: Summary, path: Path) -> None:
    """Write the report of a finished run."""
    write_whole(path, page_of(Run(events, summary, folder=path.parent)))


def report_again(folder: Path, path: Path | None = None) -> Path:
    """Write the report of the run in a folder, with its baseline if there is one. Returns the file."""
    path = path or RunFolder(folder).report
    write_whole(path, page_of(open_run(folder)))
    return path


def page(events: Sequence[Event], summary: Summary) -> str:
    return page_of(Run(events, summary))


def page_of(run: Run) -> str:
    start, events, summary = run.start, run.events, run.summary
    amounts = f"{count(start.peers, 'peer')} · {count(start.rounds, 'round')}"
    title = f"{short_name(start.method)} · seed {start.seed} · {amounts}"
    top = [_about(events, start), *_failure(summary), *_mixture(summary), *_warnings(run), _headline(summary)]
    parts = [*top, _baseline_section(run), sections(run).html()]
    intervals = diagnostics.intervals_table(run.predictions, start, run.metrics_given)
    peer_tables = [_peer_table(run), intervals, architecture_table(start, summary)]
    by_round = [MetricPoints(m, run.points(m.name, "validation"), run.points(m.name)) for m in start.measured]
    tables = [round_table(by_round, run.scores, run.masses), *peer_tables, *_method_tables(run)]
    names = [start.called(p) for p in range(start.peers)]
    data = {"what": "peer", "names": names, "about": _about_peers(start), "graph": _graph_data(run)}
    return pages.page(title, [*parts, *tables], data, SCRIPTS)


def sections(run: Run) -> pages.Sections:
    """The figures of a run."""
    figures = pages.Sections()
    metrics = run.start.measured
    titled = partial(pages.heading_of, metrics)
    by_metric = partial(partial, pages.by_metric, metrics)
    figures.add(by_metric(partial(_over_rounds, run)), titled("over rounds"))
    measured = bool(run.start.metrics) and not run.start.task
    if run.start.task:
        figures.add(run.predicted, "Predicted against label")
    figures.add(partial(_confusion, run), "Confusion matrices", "wide", list_missing=measured)
    figures.add(partial(_curves, run), "Curves of the test predictions", "wide", list_missing=measured)
    figures.add(by_metric(partial(_architectures, run)), titled("by architecture"), list_missing=False)
    against = f" against {run.baseline.name}" if run.baseline else ""
    figures.add(by_metric(partial(_gains, run)), HEADING + against, list_missing=run.start.method != LOCAL)
    figures.add(by_metric(lambda metric: run.bytes(metric.name)), titled("against bytes exchanged"))
    figures.add(by_metric(lambda metric: run.time(metric.name)), titled("against simulated time"))
    figures.add(run.neighbours, "Neighbours against the true clusters")
    figures.add(partial(_graph, run), "Collaboration graph", "wide graph")
    for what in run.described:  # most of them have nothing to draw: they are for the notes of other methods
        if isinstance(what, Plane):
            heading = f"Projection of the peers' classes: {what.vectors}"
            figures.add(partial(_embedding, run, what), heading, "wide", list_missing=False)
        else:
            figures.add(partial(run.of_method, what), what.title, list_missing=False)
    figures.add(run.classes, "Classes held by each peer", list_missing=not run.start.task)
    figures.add(partial(_notes, run), "Notes of the method", "wide", list_missing=False)
    return figures


# -- the top ---------------------------------------------------------------------------------------


def _about(events: Sequence[Event], start: RunStarted) -> str:
    """Facts about the run, in one line."""
    known = "true clusters known" if start.clusters is not None else "true clusters not known"
    made = f"coterie {start.version}" if start.version else "coterie"
    facts = [*([f"data: {start.data}"] if start.data else []), known, made]
    if gone := left(events):
        facts.append(f"{count(len(gone), 'peer')} left for good before the end")
    away = sum(e.until is not None for e in of_kind(events, PeerAway))
    if away:
        facts.append(f"{count(away, 'round')} missed by single peers")
    return f'<p class="soft">{escape("; ".join(facts))}.</p>'


def _failure(summary: Summary) -> list[str]:
    """A warning for the top of the page if the run diverged."""
    if summary.not_finite is None:
        return []
    text = not_finite_peers(summary.not_finite, summary.peers)
    return [f"<p><strong>This run failed: {escape(text)}. Training diverged.</strong></p>"]


def _mixture(summary: Summary) -> list[str]:
    """A warning for the top of the page if the run was resumed with other sources than it began with."""
    changes = "; ".join(summary.mixture)
    return [f"<p><strong>Mixed sources: {escape(changes)}.</strong></p>"] if changes else []


def _warnings(run: Run) -> list[str]:
    """What a reader must know before reading any figure."""
    found = diagnostics.warnings(run.predictions, run.start)
    return [f'<p class="warning"><strong>Caution:</strong> {escape(text)}</p>' for text in found]


def _headline(summary: Summary) -> str:
    main, *others = summary.metrics
    spreads = {
        f"Mean test {main.label}, last round measured": (main, summary.main_spread.last),
        f"Mean test {main.label}, round selected by validation": (main, summary.main_spread.selected),
    }
    spreads |= {f"Mean test {m.label}, last round": (m, summary.of(m.name).last) for m in others}
    for name, beside in summary.beside.spreads.items():
        spreads[f"With {predictor_label(summary.method, name)}"] = main, beside
    tiles = [(name, metric.text(spread.mean), _spread(metric, spread)) for name, (metric, spread) in spreads.items()]
    counts: list[tuple[str, Totals, Callable[[int], str]]] = [
        ("Bytes", summary.bytes, size), ("Messages", summary.messages, "{:,}".format),
    ]  # fmt: skip
    for name, totals, show in counts:
        by = ", ".join(f"{artifact} {show(n)}" for artifact, n in totals.by_artifact.items())
        tiles.append((f"{name} exchanged", show(totals.total), by if totals.total else "nothing was exchanged"))
    idle = summary.idle.mean if summary.idle else 0.0
    waited = f"; {percent(idle)} of it spent waiting for other peers" if idle else ""
    tiles.append(("Simulated time", duration(summary.simulated_seconds), f"on the virtual clock{waited}"))
    means = summary.neighbours_mean.known()
    for key, value in summary.neighbours.known().items():
        about = "of the weight inside the true cluster" if key == "mass" else "against the true clusters"
        also = f"; mean over rounds {percent(means[key])}" if key in means else ""
        tiles.append((f"Neighbour {key}", percent(value), f"{about}, last round{also}"))
    cells = (
        f"<div><dt>{escape(n)}</dt><dd><b>{escape(v)}</b><small>{escape(a)}</small></dd></div>" for n, v, a in tiles
    )
    return f"<dl>{''.join(cells)}</dl>"


def _baseline_section(run: Run) -> str:
    """A table of the run and its baseline."""
    if run.baseline is None:
        return ""
    head, rows = side_by_side([run.summary, run.baseline.summary])
    metric = run.summary.main_metric
    figures = f"Test {metric.label}: last round, selected by validation, mean of the worst tenth of peers."
    shown = open_table("The run and its baseline", f"On the same splits. {figures}", head, rows, names=(0,))
    gained = gains(run.summary, run.baseline.summary).values()
    sentence = f'<p class="soft">{escape(gain_sentence(gained, run.baseline.name, metric))}</p>' if gained else ""
    return f'<section class="results"><h2>Comparison with the baseline</h2>{shown}{sentence}</section>'


def _peer_table(run: Run) -> str:
    if run.baseline is None:
        return peer_table(run.events, run.start, run.summary)
    gained = gains(run.summary, run.baseline.summary)
    return peer_table(run.events, run.start, run.summary, gained, run.baseline.name)


def _spread(metric: MeasuredMetric, spread: Spread) -> str:
    undefined = [f"undefined at {count(spread.undefined, 'peer')}"] if spread.undefined else []
    if spread.mean is None:
        return "; ".join(undefined) or "no peer was measured"
    deviation, worst = metric.deviation(spread.std), metric.text(spread.worst_decile)
    return "; ".join([f"± {deviation} over peers (std)", f"worst tenth {worst}", *undefined])


def _about_peers(start: RunStarted) -> list[str]:
    """A description of each peer: its true cluster and architecture."""
    descriptions = []
    for p in range(start.peers):
        cluster = [f"true cluster {start.clusters[p]}"] if start.clusters is not None else []
        descriptions.append(", ".join([*cluster, *start.architectures[p : p + 1]]))
    return descriptions


# -- the figures -----------------------------------------------------------------------------------


def _over_rounds(run: Run, metric: MeasuredMetric) -> pages.Switch:
    drawn = {split.capitalize(): run.metric(metric.name, split) for split in SPLITS}
    return pages.Switch(f"{metric.title} on", drawn)


def _confusion(run: Run) -> pages.SideBySide:
    return pages.SideBySide(run.confusion())


def _curves(run: Run) -> pages.SideBySide:
    return pages.SideBySide([run.roc(), run.precision_recall(), run.calibration()])


def _architectures(run: Run, metric: MeasuredMetric) -> pages.Switch:
    drawn = {split.capitalize(): run.architectures(split, metric.name) for split in SPLITS}
    return pages.Switch(f"By architecture, {metric.label} on", drawn)


def _gains(run: Run, metric: MeasuredMetric) -> pages.Switch:
    """At the last round and at the selected one."""
    return pages.Switch("Round", {name: run.gains(at, metric.name) for name, at in OPTIONS.items()})


def _notes(run: Run) -> pages.SideBySide:
    """Charts of the custom numbers that the method notes."""
    drawn, others = charts_of_notes(run.events, run.drawn_elsewhere)
    return pages.SideBySide(list(drawn.values()), f'<p class="soft">{escape(others)}</p>' if others else "")


def _graph(run: Run) -> pages.SideBySide:
    """Drawing and matrix of the last round, which the page's slider moves."""
    about = " ".join(f"{_title(graph)} of {_rounds(graph)}." for graph in run.graphs)
    above = f'<p class="soft">{escape(about)}</p><div class="controls"></div>'
    return pages.SideBySide([run.graph(), run.matrix()], above)


def _embedding(run: Run, what: Plane) -> pages.SideBySide:
    """The first and the last round noted, where they differ."""
    last = run.of_method(what)
    return pages.SideBySide([*(run.of_method(what, round) for round in rounds_of(run.events, what.note)[:-1]), last])


def _rounds(graph: Graph) -> str:
    if len(graph.kept) == len(graph.rounds):
        return count(len(graph.rounds), "round")
    return f"{len(graph.kept)} of {len(graph.rounds)} rounds, evenly spaced"


def _title(graph: Graph) -> str:
    return KINDS[graph.kind].capitalize()


def _graph_data(run: Run) -> object:
    """The data for the slider: the graph of every round that fits on the page."""
    if not run.graphs:
        return None
    return {
        "peers": run.graphs[0].peers,
        "places": run.places.tolist(),
        "kinds": [
            {
                "name": _title(graph),
                "most": float(f"{graph.most:.3g}"),
                "scale": {"what": scale_of(graph).what, "numbers": scale_of(graph).numbers()},
                "weighed": graph.kind == "weights",
                "frames": _packed(graph.frames()),
                "cells": _packed(graph.cell_frames()) if graph.is_thinned else None,
            }
            for graph in run.graphs
        ],
    }


def _packed(frames: Sequence[Frame]) -> list[list[object]]:
    """Frames with delta-encoded cells, to keep the page small."""
    return [
        [f.round, [b - a for a, b in zip([0, *f.cells], f.cells, strict=False)], f.shares]
        for f in frames
    ]  # fmt: skip


def _method_tables(run: Run) -> Iterator[str]:
    """Tables of a method's figures, as an alternative to them. Unreadable notes are reported with the figures."""
    for what in run.described:
        with suppress(OddNotes):
            yield from _method_table(run.events, what)


def _method_table(events: Sequence[Event], what: Described) -> Iterator[str]:
    if isinstance(what, Front):
        with drawn_from(what.members):
            chosen = fronts.rows(events, what)
        merits = [words for _, words in what.merits]
        head = ["peer", "last search, round", "ensembles on its front", "chosen models from", *merits]
        if chosen:
            caption = what.table_caption.format(metric=started(events).main.label)
            yield table(what.table, caption, head, chosen, names=(3,))
    elif isinstance(what, Routes):
        with drawn_from(what.note):
            walked = walks.rows(events, what)
        head = [what.thing, "hops", "peers visited", "sent on again", "last stops"]
        if walked:
            yield table(what.title, "Peers by number; the last stops in order.", head, walked, names=(0, 4))
