"""Gain or loss of each peer against the same peer in another run, usually the `local` baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from coterie.core.errors import CoterieError, unknown
from coterie.core.events import RunStarted
from coterie.core.formatting import count, peer_label, peer_name
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.summary import Summary
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.measures import spread_out
from coterie.report.svg import Plot, number, ticks

MAX_BARS = 400  # above this, bars would be narrower than a pixel
NAMED = 8  # peers: up to this many, each bar has its peer's name below it
NUMBERED = 30  # peers: up to this many, each bar has its peer's number below it
ROUNDS = {"last": "in the last round measured", "selected": "at its round of best validation"}
OPTIONS = {"Last": "last", "Selected by validation": "selected"}  # how a page names them
HEADING = "Gain per peer"
LOCAL = "local"  # the method whose peers train alone


class Counts(NamedTuple):
    """The number of peers that gain, lose, and do neither."""

    gain: int
    lose: int
    neither: int


def gains(summary: Summary, other: Summary, at: str = "last", metric: MeasuredMetric | None = None) -> dict[int, float]:
    """How much better each peer is than the same peer in the other run, for peers with a value in both: by the main
    metric, or a given one, on test data.

    `at` names the round of each peer that counts: "last" or "selected" (by validation).
    """
    if at not in ROUNDS:
        raise CoterieError(unknown("choice of rounds", at, ROUNDS))
    metric = metric or summary.main_metric
    if not (summary.measures(metric.name) and other.measures(metric.name)):
        return {}
    both = zip(summary.of(metric.name).at(at).per_peer, other.of(metric.name).at(at).per_peer, strict=True)
    return {peer: metric.gain(a, b) for peer, (a, b) in enumerate(both) if a is not None and b is not None}


def counts(gained: Iterable[float]) -> Counts:
    values = list(gained)
    gain, lose = sum(v > 0 for v in values), sum(v < 0 for v in values)
    return Counts(gain, lose, len(values) - gain - lose)


def same_peers(one: RunStarted, other: RunStarted) -> bool:
    """Whether peers with the same number hold the same data in both runs, as far as the events show."""
    return all(getattr(one, key) == getattr(other, key) for key in ("seed", "peers", "samples", "classes", "data"))


def with_unit(metric: MeasuredMetric, gain: float) -> str:
    """A gain with its sign and unit: +1.2 points."""
    return f"{metric.difference(gain)} {metric.difference_unit}".rstrip()


def gain_sentence(gained: Iterable[float], against: str, metric: MeasuredMetric) -> str:
    """How many peers gain and lose, and the mean gain, in one sentence."""
    values = list(gained)
    return f"Against {against}, {gain_counts(values)}; the mean is {with_unit(metric, float(np.mean(values)))}."


def gain_counts(gained: Iterable[float]) -> str:
    n = counts(gained)
    neither = f", {n.neither} neither" if n.neither else ""
    return f"{n.gain} of {count(sum(n), 'peer')} gain, {n.lose} lose{neither}"


def bars(
    summary: Summary,
    other: Summary,
    against: str,
    at: str = "last",
    names: Sequence[str] = (),
    metric: MeasuredMetric | None = None,
) -> Figure:
    """A bar for each peer, from the largest gain to the largest loss: of the main metric, or a given one. `against` is
    the method of the other run, `names` are those of the peers' sites."""
    metric = metric or summary.main_metric
    gained = gains(summary, other, at, metric)
    if not gained:
        raise NothingToDraw(f"No peer was measured both in this run and in the run of {against}.")
    ranked = sorted(gained, key=lambda peer: (-gained[peer], peer))
    shown = spread_out(ranked, MAX_BARS)
    plot = Plot((-0.5, len(shown) - 0.5), around(gained.values(), metric))
    named = len(shown) <= (NAMED if names else NUMBERED)
    plot.axes(
        "peers, from the largest gain to the largest loss", axis_label(metric), tick,
        x_tick=lambda place: peer_label(shown[int(place)], names), x_at=range(len(shown)) if named else [],
    )  # fmt: skip
    tests = [run.of(metric.name).at(at).per_peer for run in (summary, other)]
    for place, peer in enumerate(shown):
        own, others = (metric.text(run[peer]) for run in tests)
        name = peer_name(peer, names)
        about = f"{name}: {with_unit(metric, gained[peer])} ({own}; {against} {others})"
        plot.parts.append(_bar(plot, place, metric.scale * gained[peer], name, about))
    zero(plot)
    mean = float(np.mean(list(gained.values())))
    plot.line(plot.x, [metric.scale * mean] * 2, "plain d1", dot=False)
    sentence = gain_sentence(gained.values(), against, metric)
    caption = f"{sentence} {definition(metric, at, against)}"
    if len(shown) < len(ranked):
        caption += f" {len(shown)} of {len(ranked):,} bars are drawn, evenly spaced."
    missing = len(tests[0]) - len(gained)
    if missing:
        caption += f" Left out because not measured in both runs: {count(missing, 'peer')}."
    keys = (Key("c0", "gains", "dot"), Key("c1", "loses", "dot"), Key("plain d1", f"mean {with_unit(metric, mean)}"))
    name = f"gain-{at}" if metric == summary.main_metric else f"{metric.name}-gain-{at}"
    return Figure(name, f"{HEADING} against {against}", plot.svg(sentence), caption, keys)


def axis_label(metric: MeasuredMetric) -> str:
    """For an axis of gains."""
    unit = f", {metric.difference_unit}" if metric.difference_unit else ""
    return f"gain in test {metric.label}{unit}"


def definition(metric: MeasuredMetric, at: str, against: str) -> str:
    """What a gain is, in a sentence."""
    if metric.higher_is_better:
        return f"A gain is one peer's test {metric.label} {ROUNDS[at]}, minus that in the run of {against}."
    return f"A gain is one peer's test {metric.label} in the run of {against}, minus that of this run {ROUNDS[at]}."


def tick(value: float) -> str:
    """A tick label on an axis of gains: with its sign, except for zero."""
    return f"{value:+.3g}" if value else "0"


def around(gained: Iterable[float], metric: MeasuredMetric) -> tuple[float, float]:
    """The ends of an axis of gains: round numbers around all of them and zero."""
    values = [0.0, *(metric.scale * v for v in gained)]
    low, high = min(values), max(values)
    if low == high:
        return -1.0, 1.0
    at = ticks(low, high)
    step = at[1] - at[0] if len(at) > 1 else high - low
    return (at[0] if at[0] <= low else at[0] - step), (at[-1] if at[-1] >= high else at[-1] + step)


def zero(plot: Plot) -> None:
    """The line between gain and loss."""
    (left, y), (right, _) = plot.at(plot.x[0], 0.0), plot.at(plot.x[1], 0.0)
    plot.parts.append(f'<path class="axis" d="M{number(left)} {number(y)}H{number(right)}"/>')


def table_rows(gains_by_label: Mapping[str, Sequence[float]], metric: MeasuredMetric) -> list[list[str]]:
    """Table rows: for each label how many peers gain and lose, and by how much."""
    rows = []
    for label, values in gains_by_label.items():
        n = counts(values)
        spread = [metric.difference(v) for v in (float(np.mean(values)), min(values), max(values))]
        rows.append([label, f"{len(values):,}", f"{n.gain:,}", f"{n.lose:,}", f"{n.neither:,}", *spread])
    return rows


def table_head(metric: MeasuredMetric) -> list[str]:
    unit = f", {metric.difference_unit}" if metric.difference_unit else ""
    return ["method", "peers", "gain", "lose", "neither", f"mean{unit}", "least", "most"]


def _bar(plot: Plot, place: float, height: float, name: str, about: str) -> str:
    (left, top), (right, bottom) = plot.at(place - 0.4, max(height, 0.0)), plot.at(place + 0.4, min(height, 0.0))
    css = "c1" if height < 0 else "c0"
    box = f"M{number(left)} {number(top)}H{number(right)}V{number(bottom)}H{number(left)}Z"
    return f'<path class="gain {css}" d="{box}" data-name="{escape(name)}"><title>{escape(about)}</title></path>'
