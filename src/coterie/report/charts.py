"""The charts of one run: accuracy over rounds, bytes and time, and neighbours against the true clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coterie.core.formatting import peer_name, percent, size
from coterie.report.byte_axis import ByteAxis
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.graph_scores import Neighbourhood
from coterie.report.marks import colour_and_dash
from coterie.report.measures import MAX_POINTS, Point, spread_out
from coterie.report.svg import Plot, tick
from coterie.report.timing import Curve

MAX_LINE_POINTS = 40_000  # over all peers' lines: above this, each line is thinned
MAX_LINES = 200  # above this, peers' lines would only darken the picture: they show when highlighted
CROWD = 40  # above this, peers' lines are fainter
SPLITS = ("test", "validation")
BASELINE = "plain d3"  # the classes of a baseline's line
Ends = tuple[float, float]  # of an axis

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
    measured: Sequence[Point],
    peers: PeerLines,
    rounds: int,
    split: str,
    ends: Ends | None = None,
    baseline: BaselineLine | None = None,
    names: Sequence[str] = (),
) -> Figure:
    """Every peer's line and the mean, round by round, on the test or validation data."""
    if not measured:
        raise NothingToDraw("No peer was measured.")
    shown = spread_out(measured, MAX_POINTS)
    means = [p.test if split == "test" else p.validation for p in shown]
    quantiles = [p.test_quantiles if split == "test" else p.validation_quantiles for p in shown]
    xs = [float(p.round) for p in shown]
    lines = [v for line in peers.values() for _, v in line]
    every = [*xs, *(x for x, _ in baseline.line)] if baseline else xs
    plot = Plot((min(1.0, *every), max(rounds, *every)), ends or tenths_around([*means, *lines]))
    plot.axes("round", f"{split} accuracy", tick, whole=True)
    plot.band(xs, [q[0] for q in quantiles], [q[3] for q in quantiles], split)
    most = max(2, min(MAX_POINTS, MAX_LINE_POINTS // max(1, len(peers))))
    kind = "peer unseen" if len(peers) > MAX_LINES else "peer crowd" if len(peers) > CROWD else "peer"
    for peer, line in peers.items():
        some = spread_out(line, most)
        plot.line([r for r, _ in some], [v for _, v in some], f"{split} {kind}", peer_name(peer, names), dot=False)
    plot.line(xs, means, "halo", dot=False)
    if baseline:
        baseline.draw(plot)
    plot.line(xs, means, f"{split} mean", "mean of all peers")
    longest = max(len(line) for line in peers.values())
    data = "Each peer on its own test data." if split == "test" else "Rounds are selected on this data, not on test."
    caption = ["Thick line: mean over peers. Band: the middle 80% of peers.", data]
    if len(peers) > MAX_LINES:
        caption.append(f"Highlight a peer to see its line; {len(peers):,} lines would hide each other.")
    if longest > most:
        caption.append(f"{most} of each peer's {longest} measured rounds are drawn.")
    label = f"Mean {split} accuracy over rounds: {percent(means[-1])} in round {shown[-1].round}"
    one = [] if len(peers) > MAX_LINES else [Key(f"{split} peer", "one peer")]
    keys = (Key(f"{split} mean", "mean"), *one, *([baseline.key()] if baseline else []))
    return Figure(f"accuracy-{split}", "Accuracy over rounds", plot.svg(label), " ".join(caption), keys)


def architectures(lines: Mapping[str, Sequence[tuple[int, float]]], rounds: int, split: str, ends: Ends) -> Figure:
    """The mean accuracy of each architecture, round by round, where peers have several."""
    lines = {name: spread_out(line, MAX_POINTS) for name, line in lines.items() if line}
    if not lines:
        raise NothingToDraw("All peers have the same architecture, each peer has several, or no peer was measured.")
    every = [float(round) for line in lines.values() for round, _ in line]
    plot = Plot((min(1.0, *every), max(rounds, *every)), ends)
    plot.axes("round", f"{split} accuracy", tick, whole=True)
    for i, (name, line) in enumerate(lines.items()):
        plot.line([float(r) for r, _ in line], [v for _, v in line], f"{colour_and_dash(i)} mean", name)
    ending = ", ".join(f"{name} {percent(line[-1][1])}" for name, line in lines.items())
    keys = tuple(Key(f"{colour_and_dash(i)} mean", name) for i, name in enumerate(lines))
    caption = "Mean over the peers with the architecture, each on its own data."
    label = f"Mean {split} accuracy by architecture over rounds: finally {ending}"
    return Figure(f"accuracy-architectures-{split}", "Accuracy by architecture", plot.svg(label), caption, keys)


def over_bytes(measured: Sequence[Point], ends: Ends | None = None, baseline: BaselineLine | None = None) -> Figure:
    """Mean accuracy against the bytes exchanged so far, on a logarithmic axis."""
    if not measured or not measured[-1].bytes:
        raise NothingToDraw("Nothing was exchanged.")
    shown = spread_out(measured, MAX_POINTS)
    xs = [float(p.bytes) for p in shown]
    axis = ByteAxis([*xs, *(x for x, _ in baseline.line)] if baseline else xs)
    means = {"validation": [p.validation for p in shown], "test": [p.test for p in shown]}
    plot = Plot(axis.ends, ends or tenths_around([v for line in means.values() for v in line]))
    axis.draw(plot, "exchanged by all peers so far, logarithmic", "mean accuracy", tick)
    if baseline:
        baseline.draw(plot, axis)
    for split, line in means.items():
        draw_line(plot, xs, line, split, split, axis)
    label = f"Mean accuracy against bytes exchanged, up to {size(shown[-1].bytes)}"
    caption = "Mean over peers, against all bytes exchanged by the end of the round."
    if axis.has_nothing:
        caption += " Left of the break, at 0: nothing exchanged yet."
    keys = _split_keys(baseline)
    return Figure("accuracy-bytes", "Accuracy against bytes exchanged", plot.svg(label), caption, keys)


def over_time(curves: Mapping[str, Curve], ends: Ends | None = None, baseline: BaselineLine | None = None) -> Figure:
    """Mean accuracy against simulated time."""
    curves = {split: curve for split, curve in curves.items() if curve}
    if not curves or not curves["test"][-1][0]:
        raise NothingToDraw("Not every peer was measured, or no simulated time has passed.")
    end = max(curve[-1][0] for curve in [*curves.values(), *([baseline.line] if baseline and baseline.line else [])])
    plot = Plot((0.0, end), ends or tenths_around([v for curve in curves.values() for _, v in curve]))
    plot.axes("simulated seconds", "mean accuracy", tick)
    if baseline:
        baseline.draw(plot)
    for split, curve in curves.items():
        plot.line([t for t, _ in curve], [v for _, v in curve], split, split)
    label = f"Mean accuracy against simulated time, up to {end:.3g} seconds"
    caption = "Mean over peers' latest measurements, once all have been measured. Measuring takes no simulated time."
    return Figure("accuracy-time", "Accuracy against simulated time", plot.svg(label), caption, _split_keys(baseline))


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


def tenths_around(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: whole tenths around all values."""
    low, high = math.floor(min(values) * 10 + 1e-6) / 10, math.ceil(max(values) * 10 - 1e-6) / 10
    return (low, high) if high > low else (max(0.0, low - 0.1), min(1.0, high + 0.1))


def _split_keys(baseline: BaselineLine | None) -> tuple[Key, ...]:
    return (*(Key(split, split) for split in SPLITS), *([baseline.key("test")] if baseline else []))
