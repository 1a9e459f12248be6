"""Figures and warnings about predicted numbers, from the peers' saved predictions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from coterie.core.events import RunStarted
from coterie.core.formatting import count, first_few
from coterie.metrics import METRICS
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour
from coterie.report.predictions import SavedPredictions, require
from coterie.report.svg import Plot, circle, plain, ticks

MOST_PEERS = 24  # in the figure
MOST_DOTS = 200  # of a peer


def predicted_against_label(predicted: Mapping[int, SavedPredictions], start: RunStarted) -> Figure:
    """Each test sample's predicted number against its label."""
    require(predicted, start)
    if not is_regression(start):
        raise NothingToDraw("The labels are classes, not numbers.")
    shown = dict(list(predicted.items())[:MOST_PEERS])
    values = np.concatenate([v for p in shown.values() for v in (p.test.labels, p.scores().values)])
    values = values[np.isfinite(values)]
    if not len(values):
        raise NothingToDraw("No prediction is a finite number.")
    ends = _around(float(values.min()), float(values.max()))
    plot = Plot(ends, ends)
    unit = f" ({start.label_unit})" if start.label_unit else ""
    plot.axes(f"label{unit}", f"predicted{unit}", plain)
    plot.line(ends, ends, "plain d2", dot=False)
    for i, (peer, p) in enumerate(shown.items()):
        pairs = np.stack([p.test.labels, p.scores().values], axis=1)
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        for label, number in pairs[:: max(1, -(-len(pairs) // MOST_DOTS))].tolist():
            plot.parts.append(circle(*plot.at(label, number), 2.5, f"dot {colour(i)}", start.called(peer)))
    caption = "Each peer on its own test data, last round; on the dotted line, a prediction is exact."
    if len(predicted) > MOST_PEERS:
        caption += f" The first {MOST_PEERS} of {len(predicted)} peers."
    keys = tuple(Key(colour(i), start.called(peer)) for i, peer in enumerate(shown))
    label = f"Predicted numbers against labels, {count(len(shown), 'peer')}"
    return Figure("predicted", "Predicted against label", plot.svg(label), caption, keys)


def is_regression(start: RunStarted) -> bool:
    return bool(start.task)


def no_better_than_the_mean(predicted: Mapping[int, SavedPredictions], start: RunStarted) -> list[str]:
    """A warning about peers whose model is no better than predicting the mean of their test labels."""
    r2 = {peer: METRICS["r2"].value(p.scores(), p.test.labels) for peer, p in predicted.items()}
    useless = [start.called(peer) for peer, value in r2.items() if value is not None and value <= 0]
    if not useless:
        return []
    return [
        f"At {len(useless)} of {len(predicted)} peers ({first_few(useless)}) the model is no better than a constant, "
        "the mean of the test labels (R² is not above 0)."
    ]


def _around(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis that holds these values, at round numbers."""
    step = ticks(low, high)[-1] - ticks(low, high)[0] or abs(high) or 1.0
    step /= max(1, len(ticks(low, high)) - 1)
    return float(np.floor(low / step) * step), float(np.ceil(high / step) * step + (step if low == high else 0.0))
