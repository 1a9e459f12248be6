"""The figures of a sweep: a metric at each value of the varied keys, with confidence intervals.

Two keys give a heat map. One key, or more than two, give a chart per key: the mean over all runs with a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from coterie.core.formatting import count, short_name
from coterie.core.measured_metric import MeasuredMetric, short_number
from coterie.report.figure import Figure, NothingToDraw
from coterie.report.interval import Estimate, estimate
from coterie.report.metric_axis import Ends, direction, ends_around, interval, tick_of
from coterie.report.seeds import Seeds, figure_name
from coterie.report.svg import WIDTH, Plot, circle, figure, number, text

Places = Mapping[str, Mapping[str, str]]  # label -> varied key -> value
Make = Callable[[Sequence[Seeds], MeasuredMetric, str], Figure]

WIDE = 10.0  # ratio of the largest to the smallest positive value from which an axis is logarithmic
MAX_NAME = 18  # characters of a value, at the side of a heat map
LETTER = 6.6  # width of a character
ROW, TOP, SIDE = 40.0, 20.0, 74.0  # in a heat map: height of a row, space above the cells, width of the colour bar
ROOM_FOR_VALUE, ROOM_FOR_INTERVAL = 34.0, 46.0  # least widths of a cell
FAINTEST, FULL = 0.06, 0.62  # opacities: text stays readable on both
STEPS = 12  # of the colour bar


@dataclass(frozen=True)
class Axis:
    """A varied key and its values: numbers sorted, other values in the order given."""

    key: str
    values: tuple[str, ...]
    numbers: tuple[float, ...]  # empty where some value is not a number

    @property
    def logarithmic(self) -> bool:
        return bool(self.numbers) and self.numbers[0] > 0 and self.numbers[-1] >= WIDE * self.numbers[0]

    @property
    def at(self) -> list[float]:
        """The position of each value: to scale, or evenly spaced."""
        if not self.numbers:
            return [float(i) for i in range(len(self.values))]
        return [math.log10(n) for n in self.numbers] if self.logarithmic else list(self.numbers)

    @property
    def names(self) -> list[str]:
        names = (short_name(value) for value in self.values)
        return [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for name in names]


def axes(places: Places) -> list[Axis]:
    """An axis for each key with more than one value."""
    keys = list(dict.fromkeys(key for place in places.values() for key in place))
    every = [_axis(key, list(dict.fromkeys(place[key] for place in places.values()))) for key in keys]
    return [axis for axis in every if len(axis.values) > 1]


def _axis(key: str, values: list[str]) -> Axis:
    numbers = {value: n for value in values if (n := _number(value)) is not None}
    if len(numbers) < len(values) or len(set(numbers.values())) < len(values):
        return Axis(key, tuple(values), ())
    ordered = sorted(values, key=numbers.__getitem__)
    return Axis(key, tuple(ordered), tuple(numbers[value] for value in ordered))


def _number(value: str) -> float | None:
    try:
        parsed = float(value)
    except ValueError:
        return None
    return parsed if math.isfinite(parsed) else None


def figures(places: Places) -> Iterator[tuple[str, Make]]:
    """The heading without the metric, and the drawing function, of each figure at the top of a sweep's page."""
    varied = axes(places)
    if len(varied) == 2:
        x, y = varied
        yield f"over {x.key} and {y.key}", partial(heat_map, places, x, y)
    else:
        for axis in varied:
            yield f"over {axis.key}", partial(marginal, places, axis)


# -- one key ---------------------------------------------------------------------------------------


def marginal(places: Places, axis: Axis, variants: Sequence[Seeds], metric: MeasuredMetric, split: str) -> Figure:
    """For each value of one key: the mean over the combinations of other keys that all values share, with the interval
    over seeds."""
    by_label = {seeds.label: seeds.final(metric.name, split) for seeds in variants if seeds.label in places}
    drawn = _compared(places, axis, by_label)
    if not drawn.combinations:
        raise NothingToDraw(f"No combination of the other keys has a finished run at every value of {axis.key}.")
    if not drawn.seeds:
        raise NothingToDraw("No seed has a finished run at every point of the grid.")
    if len(drawn.axis.values) < 2:
        raise NothingToDraw(f"Only {axis.key}={drawn.axis.values[0]} has finished runs.")
    every = [_compared(places, a, by_label).means(by_label) for a in axes(places)]
    shown = [v for means_of_key in every for m in means_of_key for v in _edges(m, metric)]
    ends = ends_around(metric, shown)  # for all charts
    means, unfinished = drawn.means(by_label), [value for value in axis.values if value not in drawn.axis.values]
    axis = drawn.axis
    xs = axis.at
    margin = 0.06 * (xs[-1] - xs[0]) if axis.numbers else 0.5
    plot = Plot((xs[0] - margin, xs[-1] + margin), ends)
    names = dict(zip(xs, axis.names, strict=True))
    scale = f"{axis.key}, logarithmic" if axis.logarithmic else axis.key
    x_at = _with_room(xs, axis.names, plot)
    plot.axes(scale, f"{split} {metric.axis_label}", tick_of(metric), x_tick=names.__getitem__, x_at=x_at)
    plot.facts = ""  # the page's script would take positions along the axis for values
    if axis.numbers:
        plot.line(xs, [m.mean for m in means], split, dot=False)
    for x, m in zip(xs, means, strict=True):
        low, high = _edges(m, metric)
        across, top = plot.at(x, high)
        if high > low:
            plot.parts.append(f'<path class="mark" d="M{number(across)} {number(top)}V{number(plot.at(x, low)[1])}"/>')
        plot.parts.append(circle(*plot.at(x, m.mean), 4, f"dot {split}"))
    values = ", ".join(f"{value} {metric.text(m.mean)}" for value, m in zip(axis.values, means, strict=True))
    caption = [
        f"Last round, mean over peers{_over_what(drawn)}.{direction(metric)}",
        *([f"No finished run: {', '.join(f'{axis.key}={value}' for value in unfinished)}."] if unfinished else []),
        *_about_seeds({label: by_label[label] for label in drawn.places}, drawn.seeds),
        *_about(places, metric, split),
    ]
    label = f"Mean {split} {metric.label} by {axis.key}: {values}"
    name = figure_name(metric, variants, f"sweep-{axis.key}-{split}")
    return Figure(name, f"{metric.title} over {axis.key}", plot.svg(label), " ".join(caption))


@dataclass(frozen=True)
class _Compared:
    """The data of one key's chart: only runs that all values share, since other means are not comparable."""

    axis: Axis  # without values that have no finished run
    places: Places
    seeds: Sequence[int]  # with a run at each of these places
    combinations: int  # of the other keys
    of: int  # combinations in the grid

    def means(self, by_label: Mapping[str, Mapping[int, float]]) -> list[Estimate]:
        if not self.seeds:
            return []
        return [mean_at(self.places, self.axis.key, value, by_label, self.seeds) for value in self.axis.values]


def _compared(places: Places, axis: Axis, by_label: Mapping[str, Mapping[int, float]]) -> _Compared:
    finished = {label for label, by_seed in by_label.items() if by_seed}
    values = [value for value in axis.values if any(places[label][axis.key] == value for label in finished)]
    others: dict[tuple[str, ...], list[str]] = {}
    for label, place in places.items():
        others.setdefault(tuple(value for key, value in place.items() if key != axis.key), []).append(label)
    there = [[label for label in labels if label in finished] for labels in others.values()]
    whole = [labels for labels in there if labels and {places[label][axis.key] for label in labels} == set(values)]
    used = {label: places[label] for labels in whole for label in labels}
    seeds = sorted(set.intersection(*(set(by_label[label]) for label in used))) if used else []
    return _Compared(_axis(axis.key, values), used, seeds, len(whole), len(others))


def _over_what(drawn: _Compared) -> str:
    if drawn.of == 1:
        return " and seeds"
    if drawn.combinations == drawn.of:
        return ", seeds and all values of the other keys"
    some = f"{drawn.combinations} of the {drawn.of} combinations of the other keys"
    return f", seeds and {some}: those with a finished run at every value drawn"


def _edges(mean: Estimate, metric: MeasuredMetric) -> tuple[float, float]:
    """The ends of the interval."""
    return interval(metric, mean.mean, mean.half or 0.0)


def _with_room(xs: Sequence[float], names: Sequence[str], plot: Plot) -> list[float]:
    """The values whose labels do not overlap."""
    shown: list[float] = []
    end = -math.inf
    for x, name in zip(xs, names, strict=True):
        middle, half = plot.at(x, plot.y[0])[0], LETTER * len(name) / 2
        if middle - half > end + 4:
            shown.append(x)
            end = middle + half
    return shown


def mean_at(
    places: Places, key: str, value: str, by_label: Mapping[str, Mapping[int, float]], seeds: Sequence[int]
) -> Estimate:
    """The mean over all runs with this value per seed, then over seeds."""
    here = [label for label, place in places.items() if place[key] == value]
    return estimate([float(np.mean([by_label[label][seed] for label in here])) for seed in seeds])


def _about_seeds(by_label: Mapping[str, Mapping[int, float]], common: Sequence[int]) -> list[str]:
    every = {seed for by_seed in by_label.values() for seed in by_seed}
    sentences = ["Strokes: the 95% interval over seeds (Student's t)." if len(common) > 1 else "One seed: no interval."]
    if len(common) < len(every):
        sentences.append(f"Only the {len(common)} of {count(len(every), 'seed')} with all runs.")
    return sentences


def _about(places: Places, metric: MeasuredMetric, split: str) -> list[str]:
    by_this = f"Choose by this chart, not by test {metric.label}."
    sentences = [by_this if split == "validation" else f"Choose by validation {metric.label}."]
    if any(key.startswith("data.") or key == "peers" for place in places.values() for key in place):
        sentences.append("Runs with different data are measured on different samples.")
    return sentences


# -- two keys --------------------------------------------------------------------------------------


def heat_map(places: Places, x: Axis, y: Axis, variants: Sequence[Seeds], metric: MeasuredMetric, split: str) -> Figure:
    """A cell for each pair of values: the mean over seeds with its interval. The full colour is the best mean."""
    cells = _cells(places, x, y, variants, metric, split)
    if not cells:
        raise NothingToDraw("No run of the grid is finished.")
    by_validation = _cells(places, x, y, variants, metric, "validation")
    best = max(by_validation, key=lambda at: metric.merit(by_validation[at].mean)) if by_validation else None
    means = [cell.mean for cell in cells.values()]
    worst, top = metric.worst(means), metric.best(means)
    left = 30 + LETTER * max(map(len, y.names))
    unit = (WIDTH - left - SIDE) / len(x.values)
    bottom = TOP + ROW * len(y.values)
    parts = []
    for (column, row), cell in cells.items():
        share = (cell.mean - worst) / (top - worst) if top != worst else 1.0
        place = left + unit * column, TOP + ROW * row
        parts += _cell(cell, metric, place, unit, share, split, (column, row) == best)
    for row, name in enumerate(y.names):
        parts.append(text(left - 6, TOP + ROW * (row + 0.5) + 4, name, "end"))
    every = math.ceil((LETTER * max(map(len, x.names)) + 6) / unit)
    for column, name in list(enumerate(x.names))[::every]:
        parts.append(text(left + unit * (column + 0.5), bottom + 16, name))
    parts.append(text(left + unit * len(x.values) / 2, bottom + 34, x.key))
    parts.append(text(12, (TOP + bottom) / 2, y.key, turn=-90))
    parts += _colour_bar(WIDTH - SIDE + 18, bottom, (worst, top), metric, split)
    pairs = ((f"{x.values[c]} and {y.values[r]} {metric.text(cell.mean)}") for (c, r), cell in cells.items())
    label = f"Mean {split} {metric.label} by {x.key} and {y.key}: {', '.join(pairs)}"
    in_unit = "%" if metric.is_share else metric.shown_unit
    caption = [f"Last round, mean over peers and seeds{f', in {in_unit}' if in_unit else ''}.{direction(metric)}"]
    if any(cell.half is not None for cell in cells.values()):
        caption.append("±: the 95% interval over seeds (Student's t).")
    if best is not None:
        caption.append(f"Outlined: the best by validation, {x.key}={x.values[best[0]]} {y.key}={y.values[best[1]]}.")
    if len(cells) < len(places) or len(cells) < len(x.values) * len(y.values):
        caption.append("Empty: no finished run.")
    drawn = figure(WIDTH, bottom + 42, label, parts)
    name = figure_name(metric, variants, f"sweep-{x.key}-{y.key}-{split}")
    heading = f"{metric.title} over {x.key} and {y.key}"
    return Figure(name, heading, drawn, " ".join([*caption, *_about(places, metric, split)]))


def _cells(
    places: Places, x: Axis, y: Axis, variants: Sequence[Seeds], metric: MeasuredMetric, split: str
) -> dict[tuple[int, int], Estimate]:
    """The estimates by column and row."""
    cells = {}
    for seeds in variants:
        if seeds.label in places and (values := seeds.final(metric.name, split)):
            place = places[seeds.label]
            at = x.values.index(place[x.key]), y.values.index(place[y.key])
            cells[at] = estimate([values[seed] for seed in sorted(values)])
    return cells


def _cell(
    cell: Estimate,
    metric: MeasuredMetric,
    at: tuple[float, float],
    unit: float,
    share: float,
    split: str,
    best: bool,
) -> list[str]:
    left, top = at
    box = f'x="{number(left + 1)}" y="{number(top + 1)}" width="{number(unit - 2)}" height="{number(ROW - 2)}"'
    parts = [f'<rect class="side {split}" fill-opacity="{FAINTEST + (FULL - FAINTEST) * share:.2f}" {box}/>']
    if best:
        parts.append(f'<rect class="mark" {box}/>')
    has_interval = cell.half is not None and unit >= ROOM_FOR_INTERVAL
    middle, height = left + unit / 2, top + ROW / 2 + (-1 if has_interval else 4)
    if unit >= ROOM_FOR_VALUE:
        parts.append(text(middle, height, _short(metric, cell.mean), css="heading"))
    if has_interval and cell.half is not None:
        parts.append(text(middle, height + 14, f"±{_short(metric, cell.half)}", css="inside"))
    return parts


def _short(metric: MeasuredMetric, value: float) -> str:
    """A number of a cell: a share in percent, without the sign."""
    return f"{100 * value:.1f}" if metric.is_share else short_number(value)


def _colour_bar(left: float, bottom: float, ends: Ends, metric: MeasuredMetric, split: str) -> list[str]:
    """A colour bar from the worst mean to the best."""
    worst, best = ends
    height = (bottom - TOP) / STEPS
    parts = []
    for step in range(STEPS):
        opacity = FAINTEST + (FULL - FAINTEST) * (step + 0.5) / STEPS if best != worst else FULL
        box = f'x="{number(left)}" y="{number(bottom - height * (step + 1))}" width="12" height="{number(height)}"'
        parts.append(f'<rect class="side {split}" fill-opacity="{opacity:.2f}" {box}/>')
    parts.append(text(left + 17, TOP + 9, _short(metric, best), "start"))
    if best != worst:
        parts.append(text(left + 17, bottom - 1, _short(metric, worst), "start"))
    return parts
