"""Who gains by working with others and who loses: each peer against the same peer in another run, mostly Local's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from coterie.core.errors import CoterieError, unknown
from coterie.core.events import RunStarted
from coterie.core.formatting import count, percent
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.measures import spread_out
from coterie.report.svg import Plot, number, ticks

MAX_BARS = 400  # above this, bars would be narrower than a pixel
NUMBERED = 30  # peers: up to so many, each bar has its peer's number below it
ROUNDS = {"last": "in the last round measured", "selected": "at its round of best validation"}
OPTIONS = {"Last": "last", "Selected by validation": "selected"}  # how a page names them
HEADING = "Gain per peer"
LOCAL = "local"  # the method whose peers train alone


class Counts(NamedTuple):
    """How many peers gain, lose, and do neither."""

    gain: int
    lose: int
    neither: int


def gains(mine: Mapping[str, Any], other: Mapping[str, Any], at: str = "last") -> dict[int, float]:
    """Test accuracy of each peer minus that of the same peer in the other run, of peers measured in both.

    Both are summaries; `at` says which of a peer's rounds counts, "last" or "selected" (by validation).
    """
    if at not in ROUNDS:
        raise CoterieError(unknown("choice of rounds", at, ROUNDS))
    both = zip(mine["accuracy"][at]["per_peer"], other["accuracy"][at]["per_peer"], strict=True)
    return {peer: m - o for peer, (m, o) in enumerate(both) if m is not None and o is not None}


def counts(found: Iterable[float]) -> Counts:
    values = list(found)
    gain, lose = sum(v > 0 for v in values), sum(v < 0 for v in values)
    return Counts(gain, lose, len(values) - gain - lose)


def same_peers(one: RunStarted, other: RunStarted) -> bool:
    """Whether peers of one number hold the same data in both runs, as far as the events tell."""
    return all(getattr(one, key) == getattr(other, key) for key in ("seed", "peers", "samples", "classes", "data"))


def points(share: float) -> str:
    """A difference of accuracies in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


def told(found: Iterable[float], against: str) -> str:
    """In one sentence: how many gain, how many lose, and how much in the mean."""
    values = list(found)
    return f"Against {against}, {who(values)}; the mean is {points(float(np.mean(values)))} points."


def who(found: Iterable[float]) -> str:
    n = counts(found)
    neither = f", {n.neither} neither" if n.neither else ""
    return f"{n.gain} of {count(sum(n), 'peer')} gain, {n.lose} lose{neither}"


def bars(mine: Mapping[str, Any], other: Mapping[str, Any], against: str, at: str = "last") -> Figure:
    """A bar for each peer, from the largest gain to the largest loss; `against` names the other run's method."""
    found = gains(mine, other, at)
    if not found:
        raise NothingToDraw(f"No peer was measured both in this run and in {against}'s.")
    ranked = sorted(found, key=lambda peer: (-found[peer], peer))
    shown = spread_out(ranked, MAX_BARS)
    plot = Plot((-0.5, len(shown) - 0.5), around(found.values()))
    named = len(shown) <= NUMBERED
    plot.axes(
        "peers, from the largest gain to the largest loss", "gain in test accuracy, points", tick,
        x_tick=lambda place: str(shown[int(place)]), x_at=range(len(shown)) if named else [],
    )  # fmt: skip
    tests = [run["accuracy"][at]["per_peer"] for run in (mine, other)]
    for place, peer in enumerate(shown):
        own, its = (percent(run[peer]) for run in tests)
        about = f"peer {peer}: {points(found[peer])} points ({own}; {against} {its})"
        plot.parts.append(_bar(plot, place, 100 * found[peer], peer, about))
    zero(plot)
    mean = float(np.mean(list(found.values())))
    plot.line(plot.x, [100 * mean] * 2, "plain d1", dot=False)
    said = told(found.values(), against)
    caption = f"{said} A bar is one peer's test accuracy {ROUNDS[at]}, minus its accuracy in the run of {against}."
    if len(shown) < len(ranked):
        caption += f" Of {len(ranked):,} bars {len(shown)} are drawn, evenly spread in order."
    missing = len(tests[0]) - len(found)
    if missing:
        caption += f" {count(missing, 'peer')} not measured in both runs: left out."
    keys = (Key("c0", "gains", "dot"), Key("c1", "loses", "dot"), Key("plain d1", f"mean {points(mean)} points"))
    return Figure(f"gain-{at}", f"{HEADING} against {against}", plot.svg(said), caption, keys)


def tick(value: float) -> str:
    """A mark of an axis of gains: with its sign, but for zero."""
    return f"{value:+.3g}" if value else "0"


def around(found: Iterable[float]) -> tuple[float, float]:
    """The ends of an axis in points: round numbers around all gains and zero."""
    values = [0.0, *(100 * v for v in found)]
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


def table_rows(found: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """For a table: of each label how many gain and lose, and by how much."""
    rows = []
    for label, values in found.items():
        n = counts(values)
        spread = [points(v) for v in (float(np.mean(values)), min(values), max(values))]
        rows.append([label, f"{len(values):,}", f"{n.gain:,}", f"{n.lose:,}", f"{n.neither:,}", *spread])
    return rows


TABLE_HEAD = ["method", "peers", "gain", "lose", "neither", "mean, points", "least", "most"]


def _bar(plot: Plot, place: float, height: float, peer: int, about: str) -> str:
    (left, top), (right, bottom) = plot.at(place - 0.4, max(height, 0.0)), plot.at(place + 0.4, min(height, 0.0))
    css = "c1" if height < 0 else "c0"
    box = f"M{number(left)} {number(top)}H{number(right)}V{number(bottom)}H{number(left)}Z"
    return f'<path class="gain {css}" d="{box}" data-name="peer {peer}"><title>{escape(about)}</title></path>'
