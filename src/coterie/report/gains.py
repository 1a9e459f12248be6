"""Gain or loss of each peer against the same peer in another run, usually the `local` baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from coterie.core.errors import CoterieError, unknown
from coterie.core.events import RunStarted
from coterie.core.formatting import count, peer_label, peer_name, percent
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


def gains(summary: Summary, other: Summary, at: str = "last") -> dict[int, float]:
    """Test accuracy of each peer minus that of the same peer in the other run, for peers measured in both.

    `at` names the round of each peer that counts: "last" or "selected" (by validation).
    """
    if at not in ROUNDS:
        raise CoterieError(unknown("choice of rounds", at, ROUNDS))
    both = zip(summary.accuracy.at(at).per_peer, other.accuracy.at(at).per_peer, strict=True)
    return {peer: a - b for peer, (a, b) in enumerate(both) if a is not None and b is not None}


def counts(gained: Iterable[float]) -> Counts:
    values = list(gained)
    gain, lose = sum(v > 0 for v in values), sum(v < 0 for v in values)
    return Counts(gain, lose, len(values) - gain - lose)


def same_peers(one: RunStarted, other: RunStarted) -> bool:
    """Whether peers with the same number hold the same data in both runs, as far as the events show."""
    return all(getattr(one, key) == getattr(other, key) for key in ("seed", "peers", "samples", "classes", "data"))


def points(share: float) -> str:
    """A difference of accuracies in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


def gain_sentence(gained: Iterable[float], against: str) -> str:
    """How many peers gain and lose, and the mean gain, in one sentence."""
    values = list(gained)
    return f"Against {against}, {gain_counts(values)}; the mean is {points(float(np.mean(values)))} points."


def gain_counts(gained: Iterable[float]) -> str:
    n = counts(gained)
    neither = f", {n.neither} neither" if n.neither else ""
    return f"{n.gain} of {count(sum(n), 'peer')} gain, {n.lose} lose{neither}"


def bars(summary: Summary, other: Summary, against: str, at: str = "last", names: Sequence[str] = ()) -> Figure:
    """A bar for each peer, from the largest gain to the largest loss. `against` is the method of the other run, `names`
    are those of the peers' sites."""
    gained = gains(summary, other, at)
    if not gained:
        raise NothingToDraw(f"No peer was measured both in this run and in the run of {against}.")
    ranked = sorted(gained, key=lambda peer: (-gained[peer], peer))
    shown = spread_out(ranked, MAX_BARS)
    plot = Plot((-0.5, len(shown) - 0.5), around(gained.values()))
    named = len(shown) <= (NAMED if names else NUMBERED)
    plot.axes(
        "peers, from the largest gain to the largest loss", "gain in test accuracy, points", tick,
        x_tick=lambda place: peer_label(shown[int(place)], names), x_at=range(len(shown)) if named else [],
    )  # fmt: skip
    tests = [run.accuracy.at(at).per_peer for run in (summary, other)]
    for place, peer in enumerate(shown):
        accuracy, other_accuracy = (percent(run[peer]) for run in tests)
        name = peer_name(peer, names)
        about = f"{name}: {points(gained[peer])} points ({accuracy}; {against} {other_accuracy})"
        plot.parts.append(_bar(plot, place, 100 * gained[peer], name, about))
    zero(plot)
    mean = float(np.mean(list(gained.values())))
    plot.line(plot.x, [100 * mean] * 2, "plain d1", dot=False)
    sentence = gain_sentence(gained.values(), against)
    caption = f"{sentence} A bar is one peer's test accuracy {ROUNDS[at]}, minus its accuracy in the run of {against}."
    if len(shown) < len(ranked):
        caption += f" {len(shown)} of {len(ranked):,} bars are drawn, evenly spaced."
    missing = len(tests[0]) - len(gained)
    if missing:
        caption += f" Left out because not measured in both runs: {count(missing, 'peer')}."
    keys = (Key("c0", "gains", "dot"), Key("c1", "loses", "dot"), Key("plain d1", f"mean {points(mean)} points"))
    return Figure(f"gain-{at}", f"{HEADING} against {against}", plot.svg(sentence), caption, keys)


def tick(value: float) -> str:
    """A tick label on an axis of gains: with its sign, except for zero."""
    return f"{value:+.3g}" if value else "0"


def around(gained: Iterable[float]) -> tuple[float, float]:
    """The ends of an axis in points: round numbers around all gains and zero."""
    values = [0.0, *(100 * v for v in gained)]
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


def table_rows(gains_by_label: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Table rows: for each label how many peers gain and lose, and by how much."""
    rows = []
    for label, values in gains_by_label.items():
        n = counts(values)
        spread = [points(v) for v in (float(np.mean(values)), min(values), max(values))]
        rows.append([label, f"{len(values):,}", f"{n.gain:,}", f"{n.lose:,}", f"{n.neither:,}", *spread])
    return rows


TABLE_HEAD = ["method", "peers", "gain", "lose", "neither", "mean, points", "least", "most"]


def _bar(plot: Plot, place: float, height: float, name: str, about: str) -> str:
    (left, top), (right, bottom) = plot.at(place - 0.4, max(height, 0.0)), plot.at(place + 0.4, min(height, 0.0))
    css = "c1" if height < 0 else "c0"
    box = f"M{number(left)} {number(top)}H{number(right)}V{number(bottom)}H{number(left)}Z"
    return f'<path class="gain {css}" d="{box}" data-name="{escape(name)}"><title>{escape(about)}</title></path>'
