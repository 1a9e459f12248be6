"""How good the probabilities themselves are, not only their order."""

from __future__ import annotations

import numpy as np

from coterie.metrics.metric import Array, Metric, Scores

BINS = 15


def log_loss(scores: Scores, labels: Array) -> float:
    from sklearn import metrics

    return float(metrics.log_loss(labels, scores.values, labels=np.arange(scores.classes)))


def brier(scores: Scores, labels: Array) -> float:
    if scores.classes == 2:
        return float(((scores.of_positive - (labels == scores.positive)) ** 2).mean())
    actual = labels[:, None] == np.arange(scores.classes)
    return float(((scores.values - actual) ** 2).sum(1).mean())


def ece(scores: Scores, labels: Array) -> float:
    """Bins of the highest probability p: (0, 1/15], (1/15, 2/15], ..., (14/15, 1]. The error is the mean over samples
    of |accuracy - mean p| of their bin."""
    confidence, correct = scores.values.max(1), scores.predicted == labels
    bins = np.minimum(np.ceil(confidence * BINS), BINS).astype(int)  # a sum to 1 may be rounded up
    surplus = np.bincount(bins, weights=correct - confidence)  # of a bin: samples x (accuracy - mean p)
    return float(np.abs(surplus).sum() / len(labels))


METRICS = (
    Metric("log_loss", "log loss", False, "", log_loss, help="mean of -log of the probability of the label"),
    Metric(
        "brier", "Brier score", False, "", brier,
        help="mean squared difference between the probability of the positive class and 1 or 0; with more than two "
        "classes, summed over the classes",
    ),
    Metric(
        "ece", "calibration error", False, "%", ece,
        help=f"expected calibration error: |accuracy - mean highest probability| in {BINS} bins of equal width, "
        "weighted by their samples",
    ),
)  # fmt: skip
