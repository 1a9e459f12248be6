"""One run's figures, for notebooks and for its page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from coterie.config import provenance
from coterie.core.errors import CoterieError, RunError, unknown
from coterie.core.events import Event, PeerRound, RunStarted, of_kind, read
from coterie.core.formatting import not_finite_peers, short_name
from coterie.report import charts, graph_figures, holdings
from coterie.report.embedding import EMBEDDINGS, embedding, kinds_of
from coterie.report.figure import Figure, NothingToDraw, drawn_from
from coterie.report.fronts import fronts
from coterie.report.gains import bars, same_peers
from coterie.report.graphs import KINDS, Graph, graphs_of
from coterie.report.matrix import Floats
from coterie.report.measures import Point, by_architecture, by_peer, mass_points, neighbour_points, points
from coterie.report.noted import charts as charts_of_notes
from coterie.report.summary import started, summarise
from coterie.report.timing import Curve, accuracy_over_time
from coterie.report.walks import walks

NO_BASELINE = (
    "This run has no baseline. With `baseline=local`, `coterie run` also trains everybody alone, on the same splits, "
    "and shows here who gains and who loses."
)


class Run:
    """A finished run. Each method draws a figure, or raises NothingToDraw with a sentence that says why it cannot."""

    def __init__(
        self, events: Sequence[Event], summary: dict[str, Any], baseline: Run | None = None, no_baseline: str = ""
    ) -> None:
        self.events = events
        self.summary = summary  # what is in summary.json
        self.baseline = baseline  # the run beside it, on the same splits
        self.no_baseline = no_baseline  # why one that is in the folder cannot be used
        self.start: RunStarted = started(events)

    def accuracy(self, split: str = "test") -> Figure:
        """Over rounds: every peer and the mean, on the "test" or the "validation" data."""
        if split not in charts.SPLITS:
            raise CoterieError(unknown("split", split, charts.SPLITS))
        beside = self._beside(lambda run: [(float(p.round), float(getattr(p, split))) for p in run.points])
        peers = by_peer(self.events, split)
        return charts.over_rounds(self.points, peers, self.start.rounds, split, self.accuracy_axis, beside)

    def architectures(self, split: str = "test") -> Figure:
        """Over rounds: the mean of the peers of each architecture, where they have several."""
        if split not in charts.SPLITS:
            raise CoterieError(unknown("split", split, charts.SPLITS))
        lines = by_architecture(self.events, split)
        return charts.architectures(lines, self.start.rounds, split, self.accuracy_axis)

    def bytes(self) -> Figure:
        """Mean accuracy against what was exchanged by then."""
        beside = self._beside(lambda run: [(float(p.bytes), p.test) for p in run.points])
        return charts.over_bytes(self.points, self.accuracy_axis, beside)

    def time(self) -> Figure:
        """Mean accuracy against simulated time."""
        return charts.over_time(self.curves, self.accuracy_axis, self._beside(lambda run: run.curves["test"]))

    def gains(self, at: str = "last") -> Figure:
        """What each peer gains against the baseline, sorted: at its "last" round or at the one "selected" by
        validation."""
        if self.baseline is None:
            raise NothingToDraw(self.no_baseline or NO_BASELINE)
        return bars(self.summary, self.baseline.summary, self.baseline.name, at)

    def neighbours(self) -> Figure:
        """Neighbour lists and averaging weights against the true clusters, over rounds."""
        known = self.start.clusters is not None
        means = self.summary.get("neighbours_mean", {})
        return charts.neighbours(self.scores, self.masses, self.start.rounds, known, means)

    def graph(self, round: int | None = None, kind: str | None = None) -> Figure:
        """The collaboration graph of a round (the last one that tells of any), as a drawing.

        `kind`: "weights" or "neighbours"; what there is, weights first.
        """
        graph = self._graph(kind)
        return graph_figures.drawing(graph, self.places, graph.rounds[-1] if round is None else round)

    def matrix(self, round: int | None = None, kind: str | None = None) -> Figure:
        """The same as a matrix."""
        graph = self._graph(kind)
        return graph_figures.matrix(graph, graph.rounds[-1] if round is None else round)

    def classes(self) -> Figure:
        """Who holds which classes."""
        return holdings.classes(self.start)

    def embedding(self, round: int | None = None, of: str = "") -> Figure:
        """The peers' classes in a plane, where the method notes them: of the last or the first round noted.

        `of`: "features" (latent, their means) or "prototypes"; what there is, features first.
        """
        kind = of or next(iter(kinds_of(self.events)), "prototypes")
        if kind not in EMBEDDINGS:
            raise CoterieError(unknown("embedding", of, EMBEDDINGS))
        with drawn_from(kind):
            return embedding(self.events, kind, round)

    def front(self) -> Figure:
        """The ensembles that peers chose from, where the method chooses some."""
        with drawn_from("front", "place"):
            return fronts(self.events)

    def walks(self) -> Figure:
        """The way of each expert through the peers, where some walk."""
        with drawn_from("hop", "found"):
            return walks(self.events)

    def notes(self) -> dict[str, Figure]:
        """A chart for each number of its own that the method notes (at most the first 24), by its name."""
        return charts_of_notes(self.events)[0]

    # -- what the figures are made of ------------------------------------------------------------

    @property
    def name(self) -> str:
        """Of its method."""
        return short_name(self.start.method)

    @cached_property
    def accuracy_axis(self) -> tuple[float, float]:
        """The ends of the accuracy axis of all charts, so that they can be compared by eye."""
        shown = [v for split in charts.SPLITS for line in by_peer(self.events, split).values() for _, v in line]
        if self.baseline is not None:
            shown += [v for p in self.baseline.points for v in (p.test, p.validation)]
            shown += [v for _, v in self.baseline.curves["test"]]
        return charts.tenths_around(shown or [0.0, 1.0])

    def _beside(self, line: Callable[[Run], Curve]) -> charts.Beside | None:
        """The baseline's line in a chart."""
        return charts.Beside(self.baseline.name, line(self.baseline)) if self.baseline is not None else None

    @cached_property
    def points(self) -> list[Point]:
        return points(self.events)

    @cached_property
    def scores(self) -> dict[int, Any]:
        return neighbour_points(self.events)

    @cached_property
    def masses(self) -> dict[int, float]:
        return mass_points(self.events)

    @cached_property
    def curves(self) -> dict[str, Curve]:
        measured = [
            r for r in of_kind(self.events, PeerRound)
            if r.peer < self.start.peers and r.test is not None and r.validation is not None
        ]  # fmt: skip
        return {split: accuracy_over_time(measured, self.start.peers, split) for split in charts.SPLITS}

    @cached_property
    def graphs(self) -> list[Graph]:
        return graphs_of(self.events)

    @cached_property
    def places(self) -> Floats:
        """Where peers are in all drawings of the graph."""
        return graph_figures.place_peers(self._graph(None))

    def _graph(self, kind: str | None) -> Graph:
        if kind is not None and kind not in KINDS:
            raise CoterieError(unknown("kind of graph", kind, KINDS))
        found = [g for g in self.graphs if kind in (None, g.kind)]
        if not found:
            what = f" by {KINDS[kind]}" if kind else ""
            raise NothingToDraw(f"This run tells of no averaging between peers{what}.")
        return found[0]


def open_run(folder: str | Path) -> Run:
    """The run in a folder, finished or not."""
    folder = Path(folder)
    path = folder / "events.jsonl"
    if not path.exists():
        raise RunError(f"{folder} is not the folder of a run: it has no events.jsonl{_of_a_comparison(folder)}")
    events = list(read(path))
    if not of_kind(events, RunStarted):
        raise RunError(f"{path} {_without_beginning(folder)}")
    summary = provenance.with_mixture(summarise(events, _seconds(folder)), folder)
    return Run(events, summary, *_baseline(folder, started(events)))


def _baseline(folder: Path, start: RunStarted) -> tuple[Run | None, str]:
    """The baseline that `coterie run` left in a run's folder, if it is whole and of the same peers; or why not."""
    found = sorted(path.parent for path in folder.glob("baseline-*/events.jsonl"))
    if not found:
        return None, ""
    place = next((path for path in found if path.name == "baseline-local"), found[0])
    if not (place / "summary.json").exists():
        command = f"coterie run --resume {shlex.quote(str(folder))}"
        return None, f"{place.name} has not finished: `{command}` goes on with it."
    try:
        run = open_run(place)
    except RunError as error:
        return None, f"{place.name} cannot be read: {error}"
    if "not_finite" in run.summary:
        return None, f"{place.name} diverged ({not_finite_peers(run.summary['not_finite'], run.start.peers)})."
    if not same_peers(start, run.start):
        return None, f"{place.name} has other peers, other data or another seed than this run: it cannot be compared."
    return run, ""


def _without_beginning(folder: Path) -> str:
    if (folder / "peers").is_dir():
        return (
            "has nothing yet: real peers keep their own, which come together at the end. `coterie dashboard` shows them"
        )
    return "is not whole: it has no record of how the run began"


def _of_a_comparison(folder: Path) -> str:
    """What makes the page of a comparison again, where it is the folder of one."""
    try:
        command = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f". It is a comparison's: `{command} --out {shlex.quote(str(folder))} --print` makes its report again"


def _seconds(folder: Path) -> float:
    """How long the run took: the one figure that its events do not hold."""
    try:
        return float(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
