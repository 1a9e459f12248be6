"""The charts of one run: a metric over rounds, bytes and time, and neighbours against the true clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coterie.core.formatting import peer_name, percent, size
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.report.byte_axis import ByteAxis
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.graph_scores import Neighbourhood
from coterie.report.marks import colour_and_dash
from coterie.report.measures import MAX_POINTS, Point, spread_out
from coterie.report.metric_axis import Ends, direction, ends_around, tick_of
from coterie.report.svg import Plot, tick
from coterie.report.timing import Curve

MAX_LINE_POINTS = 40_000  # over all peers' lines: above this, each line is thinned
MAX_LINES = 200  # above this, peers' lines would only darken the picture: they show when highlighted
CROWD = 40  # above this, peers' lines are fainter
SPLITS = ("test", "validation")
BASELINE = "plain d3"  # the classes of a baseline's line

PeerLines = Mapping[int, Sequence[tuple[int, float]]]


class BaselineLine(NamedTuple):
    """The baseline's mean, drawn beside the run's."""

    name: str
    line: Sequence[tuple[float, float]]

    def draw(self, plot: Plot, axis: ByteAxis | None = None) -> None:
        draw_line(plot, [x for x, _ in self.line], [y for _, y in self.line], BASELINE, f"{self.name}, mean", axis)

    def key(self, measure: str = "mean") -> Key:
        return Key(BASELINE, f"baseline {self.name}, {measure}")


def draw_line(
    plot: Plot, xs: Sequence[float], ys: Sequence[float], css: str, name: str, axis: ByteAxis | None = None
) -> None:
    """A line; on an axis of bytes in two parts, at 0 and after the first exchange, with dots across the break."""
    if axis is None:
        plot.line(xs, ys, css, name)
        return
    before = [(axis.at(x), y) for x, y in zip(xs, ys, strict=True) if not x]
    after = [(axis.at(x), y) for x, y in zip(xs, ys, strict=True) if x]
    if before and after:
        across = [before[-1], after[0]]
        plot.line([x for x, _ in across], [y for _, y in across], f"{css} thin d2", dot=False)
    for part in (before, after):
        plot.line([x for x, _ in part], [y for _, y in part], css, name, dot=part is after or not after)


def over_rounds(
    metric: MeasuredMetric,
    measured: Sequence[Point],
    peers: PeerLines,
    rounds: int,
    split: str,
    ends: Ends | None = None,
    baseline: BaselineLine | None = None,
    names: Sequence[str] = (),
) -> Figure:
    """Every peer's line and the mean, round by round, on the test or validation data."""
    _need(measured, metric)
    shown = spread_out(measured, MAX_POINTS)
    means, xs = [p.mean for p in shown], [float(p.round) for p in shown]
    lines = [v for line in peers.values() for _, v in line]
    every = [*xs, *(x for x, _ in baseline.line)] if baseline else xs
    plot = Plot((min(1.0, *every), max(rounds, *every)), ends or ends_around(metric, [*means, *lines]))
    plot.axes("round", f"{split} {metric.axis_label}", tick_of(metric), whole=True)
    plot.band(xs, [p.quantiles[0] for p in shown], [p.quantiles[3] for p in shown], split)
    most = max(2, min(MAX_POINTS, MAX_LINE_POINTS // max(1, len(peers))))
    kind = "peer unseen" if len(peers) > MAX_LINES else "peer crowd" if len(peers) > CROWD else "peer"
    for peer, line in peers.items():
        some = spread_out(line, most)
        plot.line([r for r, _ in some], [v for _, v in some], f"{split} {kind}", peer_name(peer, names), dot=False)
    plot.line(xs, means, "halo", dot=False)
    if baseline:
        baseline.draw(plot)
    plot.line(xs, means, f"{split} mean", "mean of all peers")
    label = f"Mean {split} {metric.label} over rounds: {metric.text(means[-1])} in round {shown[-1].round}"
    one = [] if len(peers) > MAX_LINES else [Key(f"{split} peer", "one peer")]
    keys = (Key(f"{split} mean", "mean"), *one, *([baseline.key()] if baseline else []))
    caption = _about_lines(peers, split, most) + direction(metric)
    return Figure(f"{metric.name}-{split}", f"{metric.title} over rounds", plot.svg(label), caption, keys)


def _need(measured: Sequence[Point], metric: MeasuredMetric) -> None:
    if not measured:
        undefined = "" if metric == ACCURACY else f" Or its {metric.label} is undefined."
        raise NothingToDraw(f"No peer was measured.{undefined}")


def _about_lines(peers: PeerLines, split: str, most: int) -> str:
    """The caption of a chart with a line for each peer, of which at most so many points are drawn."""
    longest = max(len(line) for line in peers.values())
    data = "Each peer on its own test data." if split == "test" else "Rounds are selected on this data, not on test."
    caption = ["Thick line: mean over peers. Band: the middle 80% of peers.", data]
    if len(peers) > MAX_LINES:
        caption.append(f"Highlight a peer to see its line; {len(peers):,} lines would hide each other.")
    if longest > most:
        caption.append(f"{most} of each peer's {longest} measured rounds are drawn.")
    return " ".join(caption)


def architectures(
    metric: MeasuredMetric, lines: Mapping[str, Sequence[tuple[int, float]]], rounds: int, split: str, ends: Ends
) -> Figure:
    """The mean of each architecture, round by round, where peers have several."""
    lines = {name: spread_out(line, MAX_POINTS) for name, line in lines.items() if line}
    if not lines:
        raise NothingToDraw("All peers have the same architecture, each peer has several, or no peer was measured.")
    every = [float(round) for line in lines.values() for round, _ in line]
    plot = Plot((min(1.0, *every), max(rounds, *every)), ends)
    plot.axes("round", f"{split} {metric.axis_label}", tick_of(metric), whole=True)
    for i, (name, line) in enumerate(lines.items()):
        plot.line([float(r) for r, _ in line], [v for _, v in line], f"{colour_and_dash(i)} mean", name)
    ending = ", ".join(f"{name} {metric.text(line[-1][1])}" for name, line in lines.items())
    keys = tuple(Key(f"{colour_and_dash(i)} mean", name) for i, name in enumerate(lines))
    caption = f"Mean over the peers with the architecture, each on its own data.{direction(metric)}"
    label = f"Mean {split} {metric.label} by architecture over rounds: finally {ending}"
    name = f"{metric.name}-architectures-{split}"
    return Figure(name, f"{metric.title} by architecture", plot.svg(label), caption, keys)


def over_bytes(
    metric: MeasuredMetric,
    measured: Mapping[str, Sequence[Point]],
    ends: Ends | None = None,
    baseline: BaselineLine | None = None,
) -> Figure:
    """The mean against the bytes exchanged so far, on a logarithmic axis. `measured` is by split."""
    if not any(points and points[-1].bytes for points in measured.values()):
        raise NothingToDraw("Nothing was exchanged.")
    lines = {split: spread_out(points, MAX_POINTS) for split, points in measured.items()}
    every = [float(p.bytes) for points in lines.values() for p in points]
    axis = ByteAxis([*every, *(x for x, _ in baseline.line)] if baseline else every)
    plot = Plot(axis.ends, ends or ends_around(metric, [p.mean for points in lines.values() for p in points]))
    axis.draw(plot, "exchanged by all peers so far, logarithmic", f"mean {metric.axis_label}", tick_of(metric))
    if baseline:
        baseline.draw(plot, axis)
    for split, points in lines.items():
        draw_line(plot, [float(p.bytes) for p in points], [p.mean for p in points], split, split, axis)
    label = f"Mean {metric.label} against bytes exchanged, up to {size(round(max(every)))}"
    caption = f"Mean over peers, against all bytes exchanged by the end of the round.{direction(metric)}"
    if axis.has_nothing:
        caption += " Left of the break, at 0: nothing exchanged yet."
    heading = f"{metric.title} against bytes exchanged"
    return Figure(f"{metric.name}-bytes", heading, plot.svg(label), caption, _split_keys(baseline))


def over_time(
    metric: MeasuredMetric,
    curves: Mapping[str, Curve],
    ends: Ends | None = None,
    baseline: BaselineLine | None = None,
) -> Figure:
    """The mean against simulated time."""
    curves = {split: curve for split, curve in curves.items() if curve}
    if not any(curve[-1][0] for curve in curves.values()):
        raise NothingToDraw("Not every peer was measured, or no simulated time has passed.")
    end = max(curve[-1][0] for curve in [*curves.values(), *([baseline.line] if baseline and baseline.line else [])])
    plot = Plot((0.0, end), ends or ends_around(metric, [v for curve in curves.values() for _, v in curve]))
    plot.axes("simulated seconds", f"mean {metric.axis_label}", tick_of(metric))
    if baseline:
        baseline.draw(plot)
    for split, curve in curves.items():
        plot.line([t for t, _ in curve], [v for _, v in curve], split, split)
    label = f"Mean {metric.label} against simulated time, up to {end:.3g} seconds"
    caption = "Mean over peers' latest measurements, once all have been measured. Measuring takes no simulated time."
    heading = f"{metric.title} against simulated time"
    caption += direction(metric)
    return Figure(f"{metric.name}-time", heading, plot.svg(label), caption, _split_keys(baseline))


def neighbours(
    scores: Mapping[int, Neighbourhood],
    masses: Mapping[int, float],
    rounds: int,
    known: bool,
    means: Mapping[str, float],
) -> Figure:
    """Neighbour lists and averaging weights against the true clusters: a line for each available score. `means` are
    the means over all rounds."""
    lines: dict[str, Mapping[int, float]] = {}
    definitions = []
    if scores:
        lines["precision"] = {r: s.precision for r, s in scores.items()}
        lines["recall"] = {r: s.recall for r, s in scores.items()}
        definitions.append("Precision: the share of a peer's neighbours that belong to its true cluster.")
        definitions.append("Recall: the share of its true cluster that are its neighbours.")
    if masses:
        lines["mass"] = masses
        definitions.append("Mass: the share of a peer's averaging weight, its own included, on its true cluster.")
    if not lines:
        raise NothingToDraw("This method keeps no neighbour lists." if known else "The true clusters are not known.")
    shown = {r for line in lines.values() for r in line}
    plot = Plot((min(1.0, *shown), max(rounds, *shown)), (0.0, 1.0))
    plot.axes("round", "share", tick, whole=True)
    for name, line in lines.items():
        xs = sorted(line)
        plot.line(xs, [line[x] for x in xs], name, name)
    ending = ", ".join(f"{name} {tick(line[max(line)])}" for name, line in lines.items())
    label = f"Neighbours against the true clusters over rounds: finally {ending}"
    over_rounds = ", ".join(f"{name} {percent(value)}" for name, value in means.items())
    caption = " ".join(
        [*definitions, "Means over peers.", *([f"Over all rounds: {over_rounds}."] if over_rounds else [])]
    )
    keys = tuple(Key(name, name) for name in lines)
    return Figure("neighbours", "Neighbours against the true clusters", plot.svg(label), caption, keys)


def _split_keys(baseline: BaselineLine | None) -> tuple[Key, ...]:
    return (*(Key(split, split) for split in SPLITS), *([baseline.key("test")] if baseline else []))
