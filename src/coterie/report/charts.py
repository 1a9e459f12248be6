"""The charts of one run: accuracy over rounds, bytes and time, and neighbours against the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coterie.graph import Neighbourhood
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.measures import MAX_POINTS, Point, spread_out
from coterie.report.svg import Plot, tick
from coterie.report.timing import Curve
from coterie.report.words import UNITS, percent

MAX_LINE_POINTS = 40_000  # of all peers' lines together: each is thinned if there are more
MAX_LINES = 200  # above this, peers' lines would only darken the picture: they show when picked out
CROWD = 40  # above this, they are fainter
SPLITS = ("test", "validation")

PeerLines = Mapping[int, Sequence[tuple[int, float]]]


def over_rounds(found: Sequence[Point], peers: PeerLines, rounds: int, split: str) -> Figure:
    """Every peer's line and the mean, round by round, on the test or on the validation data."""
    if not found:
        raise NothingToDraw("No peer was measured.")
    shown = spread_out(found, MAX_POINTS)
    means = [p.test if split == "test" else p.validation for p in shown]
    quantiles = [p.test_quantiles if split == "test" else p.validation_quantiles for p in shown]
    xs = [float(p.round) for p in shown]
    lines = [v for line in peers.values() for _, v in line]
    plot = Plot((min(1.0, xs[0]), max(rounds, xs[-1])), tenths_around([*means, *lines]))
    plot.axes("round", f"{split} accuracy", tick, whole=True)
    plot.band(xs, [q[0] for q in quantiles], [q[3] for q in quantiles], split)
    most = max(2, min(MAX_POINTS, MAX_LINE_POINTS // max(1, len(peers))))
    kind = "peer unseen" if len(peers) > MAX_LINES else "peer crowd" if len(peers) > CROWD else "peer"
    for peer, line in peers.items():
        some = spread_out(line, most)
        plot.line([r for r, _ in some], [v for _, v in some], f"{split} {kind}", f"peer {peer}", dot=False)
    plot.line(xs, means, "halo", dot=False)
    plot.line(xs, means, f"{split} mean", "mean of all peers")
    longest = max(len(line) for line in peers.values())
    own = "Each peer on its own test data." if split == "test" else "Rounds are selected on this data, never on test."
    caption = ["Thick line: mean over peers. Band: the middle 80% of peers.", own]
    if len(peers) > MAX_LINES:
        caption.append(f"The lines of the {len(peers):,} peers show when they are picked out.")
    if longest > most:
        caption.append(f"Of each peer's {longest} measured rounds, {most} are drawn.")
    label = f"Mean {split} accuracy over rounds: {percent(means[-1])} in round {shown[-1].round}"
    keys = [Key(f"{split} mean", "mean"), *([] if len(peers) > MAX_LINES else [Key(f"{split} peer", "one peer")])]
    return Figure(f"accuracy-{split}", "Accuracy over rounds", plot.svg(label), " ".join(caption), tuple(keys))


def over_bytes(found: Sequence[Point]) -> Figure:
    """Mean accuracy against what had been exchanged by then."""
    if not found or not found[-1].bytes:
        raise NothingToDraw("Nothing was exchanged.")
    shown = spread_out(found, MAX_POINTS)
    power = power_of(shown[-1].bytes)
    xs = [p.bytes / 1000**power for p in shown]
    means = {"validation": [p.validation for p in shown], "test": [p.test for p in shown]}
    plot = Plot((0.0, xs[-1]), tenths_around([v for line in means.values() for v in line]))
    plot.axes(f"exchanged by all peers so far, {UNITS[power]}", "mean accuracy", tick)
    for split, line in means.items():
        plot.line(xs, line, split, split)
    label = f"Mean accuracy against bytes exchanged, up to {xs[-1]:.3g} {UNITS[power]}"
    caption = "Mean over peers, against all bytes by the end of that round."
    return Figure("accuracy-bytes", "Accuracy against bytes exchanged", plot.svg(label), caption, _split_keys())


def over_time(curves: Mapping[str, Curve]) -> Figure:
    """Mean accuracy against simulated time."""
    curves = {split: curve for split, curve in curves.items() if curve}
    if not curves or not curves["test"][-1][0]:
        raise NothingToDraw("Not every peer was measured, or no simulated time has passed.")
    end = max(curve[-1][0] for curve in curves.values())
    plot = Plot((0.0, end), tenths_around([v for curve in curves.values() for _, v in curve]))
    plot.axes("simulated seconds", "mean accuracy", tick)
    for split, curve in curves.items():
        plot.line([t for t, _ in curve], [v for _, v in curve], split, split)
    label = f"Mean accuracy against simulated time, up to {end:.3g} seconds"
    caption = "Mean over peers, each as it was last measured, from when all have been. Measuring takes no time."
    return Figure("accuracy-time", "Accuracy against simulated time", plot.svg(label), caption, _split_keys())


def neighbours(scores: Mapping[int, Neighbourhood], masses: Mapping[int, float], rounds: int, known: bool) -> Figure:
    """Neighbour lists and averaging weights against the truth: a line for each that there is."""
    lines: dict[str, Mapping[int, float]] = {}
    told = []
    if scores:
        lines["precision"] = {r: s.precision for r, s in scores.items()}
        lines["recall"] = {r: s.recall for r, s in scores.items()}
        told.append("Precision: the share of a peer's neighbours that are of its true cluster.")
        told.append("Recall: the share of its true cluster that are its neighbours.")
    if masses:
        lines["mass"] = masses
        told.append("Mass: the share of a peer's averaging weight, its own included, that lies on its true cluster.")
    if not lines:
        raise NothingToDraw(
            "This method keeps no lists of neighbours." if known else "The true clusters are not known."
        )
    shown = {r for line in lines.values() for r in line}
    plot = Plot((min(1.0, *shown), max(rounds, *shown)), (0.0, 1.0))
    plot.axes("round", "share", tick, whole=True)
    for name, line in lines.items():
        xs = sorted(line)
        plot.line(xs, [line[x] for x in xs], name, name)
    ending = ", ".join(f"{name} {tick(line[max(line)])}" for name, line in lines.items())
    label = f"Neighbours against the true clusters over rounds: at last {ending}"
    caption = " ".join([*told, "Means over peers."])
    keys = tuple(Key(name, name) for name in lines)
    return Figure("neighbours", "Neighbours against the true clusters", plot.svg(label), caption, keys)


def tenths_around(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: whole tenths around all that is shown."""
    low, high = math.floor(min(values) * 10 + 1e-6) / 10, math.ceil(max(values) * 10 - 1e-6) / 10
    return (low, high) if high > low else (max(0.0, low - 0.1), min(1.0, high + 0.1))


def power_of(bytes: float) -> int:
    """Of 1000, for the unit that so many bytes are told in."""
    return min(len(UNITS) - 1, int(math.log10(bytes) / 3)) if bytes >= 1 else 0


def _split_keys() -> tuple[Key, ...]:
    return tuple(Key(split, split) for split in SPLITS)
