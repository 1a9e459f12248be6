"""Open a run's folder and draw its figures, for notebooks and for its report."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from coterie.config import provenance
from coterie.core.errors import CoterieError, RunError, unknown
from coterie.core.events import Event, RunStarted, of_kind, read
from coterie.core.formatting import not_finite_peers, short_name
from coterie.core.json_values import sequence, table
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.run_folder import ComparisonFolder, RunFolder
from coterie.core.summary import Summary
from coterie.methods.declared import figures_of, no_curves
from coterie.methods.figures import Described, Front, Lines, Plane, Routes
from coterie.report import charts, diagnostics, graph_figures, holdings, regression
from coterie.report.embedding import embedding
from coterie.report.figure import Figure, NothingToDraw, drawn_from
from coterie.report.fronts import fronts
from coterie.report.gains import bars, same_peers
from coterie.report.graphs import KINDS, Graph, graphs_of
from coterie.report.matrix import Floats
from coterie.report.measures import (
    Point,
    by_architecture,
    by_peer,
    curve,
    final,
    mass_points,
    neighbour_points,
    points,
)
from coterie.report.metric_axis import Ends, ends_around
from coterie.report.noted import charts as charts_of_notes
from coterie.report.noted import lines
from coterie.report.predictions import SavedPredictions, of_run
from coterie.report.summary import noted, read_summary, started, summarise
from coterie.report.timing import Curve
from coterie.report.walks import walks

T = TypeVar("T")
NO_BASELINE = (
    "This run has no baseline. With `baseline=local`, `coterie run` also trains each peer alone on the same splits, "
    "and this figure shows which peers gain and which lose."
)


class Run:
    """A finished run. Each method draws a figure, or raises NothingToDraw with the reason why it cannot."""

    def __init__(
        self,
        events: Sequence[Event],
        summary: Summary,
        baseline: Run | None = None,
        no_baseline: str = "",
        folder: Path | None = None,
    ) -> None:
        self.events = events
        self.summary = summary  # the content of summary.json
        self.baseline = baseline  # the baseline's run, on the same splits
        self.no_baseline = no_baseline  # why the baseline in the folder cannot be used
        self.folder = folder  # with the peers' predictions, if they were saved
        self.start: RunStarted = started(events)
        self._axes: dict[str, Ends] = {}  # by metric
        self._computed: dict[tuple[str, str, str], Any] = {}

    def accuracy(self, split: str = "test") -> Figure:
        """Accuracy over rounds: every peer and the mean, on the "test" or the "validation" data."""
        return self.metric(ACCURACY.name, split)

    def metric(self, name: str = "", split: str = "test") -> Figure:
        """A metric over rounds, by default the main one: every peer and the mean."""
        metric, start = self.measured(name), self.start
        baseline = self._baseline_line(
            lambda run: [(float(p.round), p.mean) for p in run.points(metric.name, _checked(split))]
        )
        peers = by_peer(self.events, metric.name, _checked(split))
        points = self.points(metric.name, split)
        return charts.over_rounds(metric, points, peers, start.rounds, split, self.axis(name), baseline, start.names)

    def architectures(self, split: str = "test", metric: str = "") -> Figure:
        """The mean of each architecture over rounds, where peers have several."""
        measured = self.measured(metric)
        lines = by_architecture(self.events, measured.name, _checked(split))
        return charts.architectures(measured, lines, self.start.rounds, split, self.axis(metric))

    def bytes(self, metric: str = "") -> Figure:
        """The mean against the bytes exchanged so far."""
        measured = self.measured(metric)
        baseline = self._baseline_line(lambda run: [(float(p.bytes), p.mean) for p in run.points(measured.name)])
        by_split = {split: self.points(measured.name, split) for split in reversed(charts.SPLITS)}
        return charts.over_bytes(measured, by_split, self.axis(metric), baseline)

    def time(self, metric: str = "") -> Figure:
        """The mean against simulated time."""
        measured = self.measured(metric)
        baseline = self._baseline_line(lambda run: run.curve(measured.name))
        curves = {split: self.curve(measured.name, split) for split in charts.SPLITS}
        return charts.over_time(measured, curves, self.axis(metric), baseline)

    def gains(self, at: str = "last", metric: str = "") -> Figure:
        """Each peer's gain against the baseline, sorted: at its "last" round or at the round "selected" by
        validation."""
        if self.baseline is None:
            raise NothingToDraw(self.no_baseline or NO_BASELINE)
        measured = self.measured(metric)
        return bars(self.summary, self.baseline.summary, self.baseline.name, at, self.start.names, measured)

    def neighbours(self) -> Figure:
        """Neighbour lists and averaging weights against the true clusters, over rounds."""
        known = self.start.clusters is not None
        means = self.summary.neighbours_mean.known()
        return charts.neighbours(self.scores, self.masses, self.start.rounds, known, means)

    def graph(self, round: int | None = None, kind: str | None = None) -> Figure:
        """The collaboration graph of a round (default: the last with a graph), as a drawing.

        `kind`: "weights" or "neighbours" (default: the first of these that the run has).
        """
        graph = self._graph(kind)
        return graph_figures.drawing(graph, self.places, graph.rounds[-1] if round is None else round)

    def matrix(self, round: int | None = None, kind: str | None = None) -> Figure:
        """The collaboration graph of a round as a matrix."""
        graph = self._graph(kind)
        return graph_figures.matrix(graph, graph.rounds[-1] if round is None else round)

    def roc(self) -> Figure:
        """The ROC curve of each peer on its test data."""
        return diagnostics.roc(self.predictions, self.start)

    def precision_recall(self) -> Figure:
        """The precision-recall curve of each peer on its test data."""
        return diagnostics.precision_recall(self.predictions, self.start)

    def calibration(self) -> Figure:
        """How often the positive class is right, against its predicted probability, at each peer."""
        return diagnostics.calibration(self.predictions, self.start)

    def confusion(self) -> list[Figure]:
        """The confusion matrix of each peer on its test data."""
        return diagnostics.confusion_matrices(self.predictions, self.start)

    def predicted(self) -> Figure:
        """Of a regression: the predicted numbers against the labels, at each peer."""
        return regression.predicted_against_label(self.predictions, self.start)

    def classes(self) -> Figure:
        """The share of each class in each peer's training data."""
        return holdings.classes(self.start)

    def embedding(self, round: int | None = None, of: str = "") -> Figure:
        """The peers' classes projected onto a plane, where the method notes them: in the last (or first) noted round.

        `of`: the note, such as "features" or "prototypes" (default: the first that the run has).
        """
        planes = {figure.note: figure for figure in self.described if isinstance(figure, Plane)}
        if of and of not in planes:
            raise CoterieError(unknown("embedding", of, planes))
        there = [figure for note, figure in planes.items() if noted(self.events, note)] or list(planes.values())[-1:]
        if not of and not there:
            raise NothingToDraw("The method describes no vectors to be drawn in a plane.")
        return self.of_method(planes[of] if of else there[0], round)

    def front(self) -> Figure:
        """The ensembles that peers chose from, where the method selects ensembles."""
        return self.of_method(self._first(Front))

    def walks(self) -> Figure:
        """Each expert's route through the peers, where the method has walking experts."""
        return self.of_method(self._first(Routes))

    def of_method(self, what: Described, round: int | None = None) -> Figure:
        """A figure that the method brings (one of `described`); `round` is for vectors in a plane."""
        if isinstance(what, Plane):
            with drawn_from(what.note):
                return embedding(self.events, what, round)
        if isinstance(what, Front):
            with drawn_from(what.note, what.chosen):
                return fronts(self.events, what)
        if isinstance(what, Routes):
            with drawn_from(what.note, what.restart):
                return walks(self.events, what)
        return lines(self.events, what)

    def notes(self) -> dict[str, Figure]:
        """A chart for each custom number that the method notes (at most the first 24), by name."""
        return charts_of_notes(self.events, self.drawn_elsewhere)[0]

    # -- the data behind the figures -------------------------------------------------------------

    @cached_property
    def predictions(self) -> dict[int, SavedPredictions]:
        """What the peers predicted for their own data, where it was saved."""
        return {} if self.folder is None else of_run(self.folder, self.start.peers)

    @cached_property
    def metrics_given(self) -> list[str]:
        """The metrics as the run's settings name them; empty where its folder has no readable settings."""
        try:
            content = tomllib.loads(RunFolder(self.folder).config.read_text(encoding="utf-8")) if self.folder else {}
        except (OSError, ValueError):
            return []
        return [str(name) for name in sequence(table(content.get("evaluate")).get("metrics"))]

    @property
    def name(self) -> str:
        """The method's short name."""
        return short_name(self.start.method)

    @cached_property
    def described(self) -> tuple[Described, ...]:
        """The figures that the method brings, and those of the package for notes that any method may make."""
        return figures_of(self.start.method)

    def _first(self, kind: type[Described]) -> Described:
        for figure in self.described:
            if isinstance(figure, kind):
                return figure
        raise NothingToDraw(f"The method describes no figure of the kind {kind.__name__}.")

    @property
    def drawn_elsewhere(self) -> frozenset[str]:
        """The notes that have no chart of their own: no curves, and the numbers in a figure of the method."""
        in_lines = (figure.reads for figure in self.described if isinstance(figure, Lines))
        return no_curves(self.start.method).union(*in_lines)

    def measured(self, metric: str = "") -> MeasuredMetric:
        """A metric of the run by name, by default the main one."""
        by_name = {measured.name: measured for measured in self.start.measured}
        if metric and metric not in by_name:
            raise CoterieError(unknown("metric", metric, by_name))
        return by_name[metric] if metric else self.start.main

    def axis(self, metric: str = "") -> Ends:
        """The ends of a metric's axis, the same in all charts so that they can be compared by eye."""
        measured = self.measured(metric)
        if measured.name not in self._axes:
            self._axes[measured.name] = self._ends(measured)
        return self._axes[measured.name]

    def _ends(self, metric: MeasuredMetric) -> Ends:
        name = metric.name
        shown = [v for split in charts.SPLITS for line in by_peer(self.events, name, split).values() for _, v in line]
        if self.baseline is not None:
            shown += [p.mean for split in charts.SPLITS for p in self.baseline.points(name, split)]
            shown += [v for _, v in self.baseline.curve(name)]
        return ends_around(metric, shown)

    def _baseline_line(self, line: Callable[[Run], Curve]) -> charts.BaselineLine | None:
        """The baseline's line in a chart, if it measured the metric."""
        if self.baseline is None or not (values := line(self.baseline)):
            return None
        return charts.BaselineLine(self.baseline.name, values)

    def points(self, metric: str, split: str = "test") -> list[Point]:
        """The rounds in which a metric was measured."""
        return self._once(points, metric, split)

    def curve(self, metric: str, split: str = "test") -> Curve:
        """The mean of a metric against simulated time."""
        return self._once(curve, metric, split)

    def final(self, metric: str, split: str = "test") -> float | None:
        """The mean of a metric over peers in their last measured rounds."""
        return self._once(final, metric, split)

    def _once(self, compute: Callable[[Sequence[Event], str, str], T], metric: str, split: str) -> T:
        """Computed from the events once for each metric and split."""
        key = compute.__name__, metric, split
        if key not in self._computed:
            self._computed[key] = compute(self.events, metric, split)
        computed: T = self._computed[key]
        return computed

    @cached_property
    def scores(self) -> dict[int, Any]:
        return neighbour_points(self.events)

    @cached_property
    def masses(self) -> dict[int, float]:
        return mass_points(self.events)

    @cached_property
    def graphs(self) -> list[Graph]:
        return graphs_of(self.events)

    @cached_property
    def places(self) -> Floats:
        """The positions of the peers in all drawings of the graph."""
        return graph_figures.place_peers(self._graph(None))

    def _graph(self, kind: str | None) -> Graph:
        if kind is not None and kind not in KINDS:
            raise CoterieError(unknown("kind of graph", kind, KINDS))
        graphs = [g for g in self.graphs if kind in (None, g.kind)]
        if not graphs:
            what = f" as {KINDS[kind]}" if kind else ""
            raise NothingToDraw(f"This run recorded no averaging between peers{what}.")
        return graphs[0]


def _checked(split: str) -> str:
    if split not in charts.SPLITS:
        raise CoterieError(unknown("split", split, charts.SPLITS))
    return split


def open_run(folder: str | Path) -> Run:
    """Open the run in a folder, finished or not."""
    folder = Path(folder)
    path = RunFolder(folder).events
    if not path.exists():
        raise RunError(f"{folder} is not a run folder: it has no events.jsonl{_comparison_hint(folder)}")
    events = list(read(path))
    if not of_kind(events, RunStarted):
        raise RunError(f"{path} {_no_start_reason(folder)}")
    summary = provenance.with_mixture(summarise(events, _seconds(folder)), folder)
    return Run(events, summary, *_baseline(folder, started(events)), folder=folder)


def _baseline(folder: Path, start: RunStarted) -> tuple[Run | None, str]:
    """The baseline that `coterie run` left in a run's folder, if it is complete and has the same peers; or why not."""
    files = RunFolder(folder)
    baselines = files.baselines()
    if not baselines:
        return None, ""
    chosen = next((baseline for baseline in baselines if baseline == files.baseline("local")), baselines[0])
    place = chosen.path
    if not chosen.is_finished():
        command = f"coterie run --resume {shlex.quote(str(folder))}"
        return None, f"{place.name} has not finished. Resume it with `{command}`."
    try:
        run = open_run(place)
    except RunError as error:
        return None, f"{place.name} cannot be read: {error}"
    if run.summary.not_finite:
        return None, f"{place.name} diverged ({not_finite_peers(run.summary.not_finite, run.start.peers)})."
    if not same_peers(start, run.start):
        return None, f"{place.name} cannot be compared: its peers, data or seed differ from this run's."
    return run, ""


def _no_start_reason(folder: Path) -> str:
    if RunFolder(folder).is_circle():
        return (
            "has no events yet: each real peer keeps its own, and they are merged at the end. Until then, "
            "`coterie dashboard` shows them"
        )
    return "is incomplete: the record of the run's start is missing"


def _comparison_hint(folder: Path) -> str:
    """If the folder is a comparison's: the command that recreates its report."""
    try:
        command = json.loads(ComparisonFolder(folder).record.read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f". It belongs to a comparison: `{command} --out {shlex.quote(str(folder))} --print` recreates its report"


def _seconds(folder: Path) -> float:
    """The wall-clock duration of the run, the only figure that its events lack."""
    try:
        return read_summary(folder).seconds
    except RunError:
        return 0.0
