"""Figures and tables from the peers' saved predictions: what their figures are made of, and how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from coterie.core import randomness
from coterie.core.errors import CoterieError
from coterie.core.events import RunStarted
from coterie.core.formatting import NOTHING, count, first_few
from coterie.core.measured_metric import MeasuredMetric
from coterie.metrics import Metric, Scores, find
from coterie.metrics.diagnostics import (
    FEWEST,
    REPEATS,
    Curve,
    bootstrap,
    calibration_curve,
    confusion,
    only_class,
    precision_recall_curve,
    rare_classes,
    roc_curve,
)
from coterie.report.figure import Figure, Key, NothingToDraw
from coterie.report.marks import colour_and_dash
from coterie.report.matrix import Scale, heat_map
from coterie.report.predictions import SavedPredictions, require
from coterie.report.regression import is_regression, no_better_than_the_mean
from coterie.report.svg import Plot, tick
from coterie.report.tables import table

Predicted = Mapping[int, SavedPredictions]
MOST_MATRICES = 12  # confusion matrices on a page
MOST_LINES = 24  # curves in a figure
NOT_CLASSES = "The labels are numbers, not classes."


def roc(predicted: Predicted, start: RunStarted) -> Figure:
    """The ROC curve of each peer."""
    chance = ((0.0, 1.0), (0.0, 1.0))
    return _curves(
        "roc", "ROC curves", predicted, start, roc_curve, "false positive rate", "true positive rate", chance
    )


def precision_recall(predicted: Predicted, start: RunStarted) -> Figure:
    """The precision-recall curve of each peer."""
    return _curves(
        "precision-recall", "Precision and recall", predicted, start, precision_recall_curve, "recall", "precision"
    )


def calibration(predicted: Predicted, start: RunStarted) -> Figure:
    """How often the positive class is right, against the probability that the model gives it."""
    ideal = ((0.0, 1.0), (0.0, 1.0))
    return _curves(
        "calibration", "Calibration", predicted, start, calibration_curve, "mean predicted probability",
        "share of positive samples", ideal,
    )  # fmt: skip


def _curves(
    name: str,
    heading: str,
    predicted: Predicted,
    start: RunStarted,
    curve_of: Callable[[Scores, np.ndarray], Curve | None],
    x_label: str,
    y_label: str,
    reference: tuple[tuple[float, float], tuple[float, float]] | None = None,
) -> Figure:
    positive = _positive(predicted, start)
    curves = {peer: curve_of(p.scores(), p.test.labels) for peer, p in predicted.items()}
    drawn = {peer: curve for peer, curve in curves.items() if curve is not None}
    if not drawn:
        raise NothingToDraw("No peer has test samples of both classes, and a model that did not diverge.")
    plot = Plot((0.0, 1.0), (0.0, 1.0))
    plot.axes(x_label, y_label, tick, x_tick=tick)
    if reference:
        plot.line(*reference, "plain d2", dot=False)
    for i, (peer, curve) in enumerate(list(drawn.items())[:MOST_LINES]):
        plot.line(curve.x, curve.y, colour_and_dash(i), start.called(peer), dot=False)
    keys = tuple(Key(colour_and_dash(i), start.called(peer)) for i, peer in enumerate(list(drawn)[:MOST_LINES]))
    without = len(curves) - len(drawn)
    caption = f"Each peer on its own test data, last round. Positive: {positive}."
    if without:
        caption += f" {count(without, 'peer')} left out: no samples of both classes, or a model that diverged."
    caption += f" The first {MOST_LINES} of {len(drawn)} peers." if len(drawn) > MOST_LINES else ""
    return Figure(name, heading, plot.svg(f"{heading} of {count(len(drawn), 'peer')}"), caption, keys)


def _positive(predicted: Predicted, start: RunStarted) -> str:
    """The positive class; raises NothingToDraw if there are no predictions, or more than two classes."""
    require(predicted, start)
    first = next(iter(predicted.values()))
    if not first.classes:
        raise NothingToDraw(NOT_CLASSES)
    if len(first.classes) != 2:
        raise NothingToDraw(f"The data have {len(first.classes)} classes: these curves are for two.")
    return first.classes[first.positive]


def confusion_matrices(predicted: Predicted, start: RunStarted) -> list[Figure]:
    """The confusion matrix of each peer on its test data."""
    require(predicted, start)
    if is_regression(start):
        raise NothingToDraw(NOT_CLASSES)
    figures = []
    for peer, p in list(predicted.items())[:MOST_MATRICES]:
        if not p.scores().are_finite:  # the model diverged, which the top of the page says
            continue
        counts = confusion(p.scores(), p.test.labels)
        name = start.called(peer)
        side = min(300.0, max(190.0, 26.0 * len(p.classes)))
        most = float(counts.max())
        rows = "; ".join(_row_in_words(p.classes, c, row) for c, row in enumerate(counts))
        label = f"Confusion matrix of {name}: {rows}"
        drawn = heat_map(
            counts / (most or 1.0), (side, side), label, ("label", "predicted"), (), (), p.classes, p.classes,
            Scale(most, "samples", whole=True),
        )  # fmt: skip
        figures.append(Figure(f"confusion-{peer}", name, drawn, rows if len(p.classes) < 6 else ""))
    if not figures:
        raise NothingToDraw("The models of all peers diverged.")
    return figures


def _row_in_words(classes: Sequence[str], label: int, row: np.ndarray) -> str:
    return f"of {int(row.sum())} {classes[label]}, {int(row[label])} correct"


def intervals_table(predicted: Predicted, start: RunStarted, given: Sequence[str] = ()) -> str:
    """Each metric of each peer with its bootstrap interval; empty without predictions. `given` are the metrics as the
    run's settings name them: a user's own is found by its file."""
    if not predicted:
        return ""
    metrics = list(_metrics(start, given))
    of_classes = [] if is_regression(start) else ["of each class"]
    head = ["peer", "test samples", *of_classes, *(measured.label for measured, _ in metrics)]
    rows = []
    for peer, p in predicted.items():
        cells = [_cell(measured, metric, p, start.seed, peer) for measured, metric in metrics]
        by_class = [_class_counts(p)] if of_classes else []
        rows.append([start.called(peer), str(len(p.test.labels)), *by_class, *cells])
    caption = (
        f"On each peer's own test data, last round, with 95% intervals over {REPEATS} bootstrap samples of its rows. "
        "They say how much the figure depends on which rows were drawn, not how much on the seed."
    )
    return table("Peer by peer, with intervals", caption, head, rows, names=(0, 2) if of_classes else (0,))


def _class_counts(p: SavedPredictions) -> str:
    counts = np.bincount(p.test.labels, minlength=len(p.classes))
    return ", ".join(f"{name} {n}" for name, n in zip(p.classes, counts, strict=True))


def _metrics(start: RunStarted, given: Sequence[str]) -> Iterator[tuple[MeasuredMetric, Metric]]:
    """The metrics of a run that can still be found: a user's file may be gone."""
    found: dict[str, Metric] = {}
    for name in (*(measured.name for measured in start.measured), *given):
        with suppress(CoterieError):
            metric = find(name)
            found[metric.name] = metric
    return ((measured, found[measured.name]) for measured in start.measured if measured.name in found)


def _cell(measured: MeasuredMetric, metric: Metric, p: SavedPredictions, seed: int, peer: int) -> str:
    try:
        return _with_interval(measured, metric, p, seed, peer)
    except CoterieError:  # a user's metric, whose file has changed since the run
        return NOTHING


def _with_interval(measured: MeasuredMetric, metric: Metric, p: SavedPredictions, seed: int, peer: int) -> str:
    scores, labels = p.scores(), p.test.labels
    if metric.tune:
        threshold = metric.tuned(p.scores("validation"), p.validation.labels)
        if threshold is None:
            return NOTHING
        scores = Scores(scores.values, scores.positive, threshold)
    value = metric.value(scores, labels)
    if value is None:
        return NOTHING
    interval = bootstrap(metric, scores, labels, randomness.generator(seed, "bootstrap", metric.name, peer))
    if interval is None:
        return measured.text(value)
    return f"{measured.text(value)} ({measured.text(interval.low)} to {measured.text(interval.high)})"


def warnings(predicted: Predicted, start: RunStarted) -> list[str]:
    """What a reader must know before reading any figure."""
    if is_regression(start):
        return no_better_than_the_mean(predicted, start)
    return [*_useless(predicted, start), *_few_samples(predicted, start)]


def _useless(predicted: Predicted, start: RunStarted) -> Iterator[str]:
    """Models that predict one class only, which accuracy alone hides where classes are imbalanced."""
    same = {peer: c for peer, p in predicted.items() if (c := only_class(p.scores())) is not None}
    blind = [peer for peer in same if len(np.unique(predicted[peer].test.labels)) > 1]
    if blind:
        names, peers = predicted[blind[0]].classes, [start.called(peer) for peer in blind]
        which = " or ".join(f"'{names[c]}'" for c in sorted({same[peer] for peer in blind}))
        yield (
            f"The model predicts only the class {which} at {len(blind)} of {len(predicted)} peers "
            f"({first_few(peers)}). Its accuracy there is the share of that class; look at balanced accuracy "
            "and AUROC. train.balance=weights or sampling may help."
        )


def _few_samples(predicted: Predicted, start: RunStarted) -> Iterator[str]:
    yield from _rare(predicted, start, "test", "measures of that class mean little there")
    yield from _rare(predicted, start, "validation", "the round that they select means little there")


def _rare(predicted: Predicted, start: RunStarted, split: str, so: str) -> Iterator[str]:
    """A sentence for each class of which some peers have too few samples in this split."""
    rare: dict[str, dict[int, int]] = {}
    for peer, p in predicted.items():
        for name, n in rare_classes(getattr(p, split).labels, p.classes).items():
            rare.setdefault(name, {})[peer] = n
    for name, peers in rare.items():
        some = first_few([f"{start.called(peer)} {n}" for peer, n in peers.items()])
        yield (
            f"Too few {split} samples of '{name}' (fewer than {FEWEST}) at {len(peers)} of {len(predicted)} peers "
            f"({some}): {so}."
        )
