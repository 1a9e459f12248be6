"""Sensitivity and specificity of the positive class, at a threshold of 0.5 or at one tuned on the validation data."""

from __future__ import annotations

import numpy as np

from coterie.metrics.metric import Array, Metric, Scores


def sensitivity(scores: Scores, labels: Array) -> float | None:
    actual = labels == scores.positive
    return float(scores.predicted_positive[actual].mean()) if actual.any() else None


def specificity(scores: Scores, labels: Array) -> float | None:
    others = labels != scores.positive
    return float((~scores.predicted_positive[others]).mean()) if others.any() else None


def by_youden(scores: Scores, labels: Array) -> float | None:
    """The threshold with the largest sensitivity + specificity - 1 (Youden's J); of several, the highest."""
    actual = labels == scores.positive
    if actual.all() or not actual.any():
        return None
    thresholds = np.unique(scores.of_positive)[::-1]
    true, false = (_count_from(scores.of_positive[kind], thresholds) for kind in (actual, ~actual))
    # J times the numbers of both kinds of samples: whole numbers, in which ties are exact.
    youden = true * (~actual).sum() - false * actual.sum()
    return float(thresholds[youden.argmax()])


def _count_from(values: Array, thresholds: Array) -> Array:
    """How many of the values reach each threshold."""
    counts: Array = len(values) - np.searchsorted(np.sort(values), thresholds)
    return counts


TUNED = "at the threshold with the largest Youden's J on the peer's validation data"
METRICS = (
    Metric(
        "sensitivity", "sensitivity", True, "%", sensitivity, needs_positive=True,
        help="share of positive samples with a positive probability of at least 0.5",
    ),
    Metric(
        "specificity", "specificity", True, "%", specificity, needs_positive=True,
        help="share of other samples with a positive probability below 0.5",
    ),
    Metric(
        "sensitivity_tuned", "sensitivity (tuned)", True, "%", sensitivity, needs_positive=True, tune=by_youden,
        help=f"sensitivity {TUNED}",
    ),
    Metric(
        "specificity_tuned", "specificity (tuned)", True, "%", specificity, needs_positive=True, tune=by_youden,
        help=f"specificity {TUNED}",
    ),
)  # fmt: skip
