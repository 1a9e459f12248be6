"""What lies behind a figure of a classifier: curves, counts, intervals, and whether there are enough samples for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.metrics.metric import Array, Metric, Scores, defined

FEWEST = 10  # test samples of a class below which measures of it mean little
REPEATS = 400  # of the bootstrap
LEVEL = 0.95
CALIBRATION_BINS = 10
ONE_CLASS = 0.99  # share of samples from which a model is said to predict one class only


class Curve(NamedTuple):
    x: list[float]
    y: list[float]


class Interval(NamedTuple):
    low: float
    high: float


def roc_curve(scores: Scores, labels: Array) -> Curve | None:
    """False positive rate and true positive rate over all thresholds; None if they are not defined."""
    from sklearn import metrics

    positive = labels == scores.positive
    if not _separates(scores, positive):
        return None
    false_rate, true_rate, _ = metrics.roc_curve(positive, scores.of_positive)
    return Curve(false_rate.tolist(), true_rate.tolist())


def precision_recall_curve(scores: Scores, labels: Array) -> Curve | None:
    """Recall and precision over all thresholds; None if they are not defined."""
    from sklearn import metrics

    positive = labels == scores.positive
    if not _separates(scores, positive):
        return None
    precision, recall, _ = metrics.precision_recall_curve(positive, scores.of_positive)
    return Curve(recall[::-1].tolist(), precision[::-1].tolist())


def _separates(scores: Scores, positive: Array) -> bool:
    """Whether there are samples of both classes, and finite scores: a model that diverged has none."""
    return scores.are_finite and bool(positive.any()) and not positive.all()


def calibration_curve(scores: Scores, labels: Array) -> Curve | None:
    """Mean probability of the positive class, and how often it was right, in bins of equal width that have samples;
    None for a model that diverged."""
    if not scores.are_finite:
        return None
    probability, positive = scores.of_positive, labels == scores.positive
    place = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    used = [b for b in range(CALIBRATION_BINS) if (place == b).any()]
    means = [float(probability[place == b].mean()) for b in used]
    return Curve(means, [float(positive[place == b].mean()) for b in used])


def confusion(scores: Scores, labels: Array) -> Array:
    """Samples by label (rows) and predicted class (columns)."""
    counts = np.zeros((scores.classes, scores.classes), dtype=np.int64)
    np.add.at(counts, (labels, scores.predicted), 1)
    return counts


def bootstrap(metric: Metric, scores: Scores, labels: Array, rng: np.random.Generator) -> Interval | None:
    """The 95% interval of a metric over samples drawn with replacement; None where it is undefined for most draws."""
    rows = rng.integers(len(labels), size=(REPEATS, len(labels)))
    if metric.tune:  # the threshold stays that of the validation data
        samples = (Scores(scores.values[r], scores.positive, scores.threshold) for r in rows)
        drawn = [defined(metric.of(sample, labels[r])) for sample, r in zip(samples, rows, strict=True)]
    else:
        drawn = metric.values(scores.values[rows], labels[rows], scores.positive)
    known = [value for value in drawn if value is not None]
    if len(known) < REPEATS / 2:
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def rare_classes(labels: Array, classes: Sequence[str]) -> dict[str, int]:
    """The classes with too few samples for measures of them to mean much, with their number."""
    counts = np.bincount(labels, minlength=len(classes))
    return {name: int(n) for name, n in zip(classes, counts, strict=True) if n < FEWEST}


def only_class(scores: Scores) -> int | None:
    """The class that a model predicts for practically all samples; None if there is none."""
    if not scores.are_finite:
        return None
    counts = np.bincount(scores.predicted, minlength=scores.classes)
    return int(counts.argmax()) if counts.max() >= ONE_CLASS * counts.sum() else None
