"""Charts of metrics other than accuracy over rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from coterie.core.events import Event, PeerRound, RunStarted, of_kind
from coterie.core.notes import mean
from coterie.report.charts import tenths_around
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.measures import MAX_POINTS, spread_out
from coterie.report.scores import TEST, shown
from coterie.report.svg import Plot, plain, tick

VALIDATION = 0
MAX_LINES = 40  # with more peers, only their mean is drawn


def metric_figure(events: Sequence[Event], start: RunStarted, about: Mapping[str, object], split: str) -> Figure:
    """Every peer's line and the mean over the peers with a value, round by round."""
    name, label, unit = (str(about[key]) for key in ("name", "label", "unit"))
    lines = _lines(events, start, name, TEST if split == "test" else VALIDATION)
    if not lines:
        raise NothingToDraw(f"{label} is undefined at all peers.")
    rounds = sorted({round for line in lines.values() for round, _ in line})
    means = [
        (r, mean([v for line in lines.values() for at, v in line if at == r])) for r in spread_out(rounds, MAX_POINTS)
    ]
    values = [v for line in lines.values() for _, v in line]
    is_share = unit == "%"
    low, high = tenths_around(values) if is_share else (min(values), max(values))
    plot = Plot((float(rounds[0]), float(max(rounds[-1], rounds[0] + 1))), (low, high if high > low else low + 1.0))
    plot.axes("round", f"{split}: {label}", tick if is_share else plain, whole=True)
    for peer, line in lines.items() if len(lines) <= MAX_LINES else ():
        some = spread_out(line, MAX_POINTS)
        plot.line([float(r) for r, _ in some], [v for _, v in some], f"{split} peer", start.called(peer), dot=False)
    plot.line([float(r) for r, _ in means], [v for _, v in means], f"{split} mean", "mean of the peers with a value")
    better = "Higher" if about["higher_is_better"] else "Lower"
    caption = f"Each peer on its own {split} data; thick: mean over the peers with a value. {better} is better."
    title = f"Mean {label} over rounds: {shown(means[-1][1], unit)} in round {means[-1][0]}"
    keys = (Key(f"{split} mean", "mean"), *([Key(f"{split} peer", "one peer")] if len(lines) <= MAX_LINES else []))
    return Figure(f"{name}-{split}", label, plot.svg(title), caption, keys)


def _lines(events: Sequence[Event], start: RunStarted, name: str, place: int) -> dict[int, list[tuple[int, float]]]:
    lines: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for r in sorted(of_kind(events, PeerRound), key=lambda r: r.round):
        value = r.scores.get(name, (None, None))[place]
        if value is not None and r.peer < start.peers:
            lines[r.peer].append((r.round, float(value)))
    return dict(sorted(lines.items()))
