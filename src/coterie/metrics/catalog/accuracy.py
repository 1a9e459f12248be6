"""Accuracy, and accuracy with every class counting the same."""

from __future__ import annotations

import numpy as np

from coterie.core.merit import by_accuracy
from coterie.metrics.metric import Array, Metric, Scores


def accuracy(scores: Scores, labels: Array) -> float:
    return float((scores.predicted == labels).mean())


def balanced_accuracy(scores: Scores, labels: Array) -> float:
    from sklearn.metrics import recall_score

    present = np.unique(labels)  # a class without samples has no recall
    return float(recall_score(labels, scores.predicted, labels=present, average="macro"))


def stacked_accuracy(values: Array, labels: Array, positive: int) -> Array:  # noqa: ARG001
    return by_accuracy(values, labels)


def stacked_balanced_accuracy(values: Array, labels: Array, positive: int) -> Array:  # noqa: ARG001
    of_class = labels[:, :, None] == np.arange(values.shape[2])
    correct = (values.argmax(2) == labels)[:, :, None] & of_class
    samples = of_class.sum(1)
    recalls = correct.sum(1) / np.maximum(samples, 1)
    means: Array = recalls.sum(1) / (samples > 0).sum(1)
    return means


METRICS = (
    Metric(
        "accuracy", "accuracy", True, "%", accuracy,
        help="share of samples whose most probable class is the label; measured in every run",
        stacked=stacked_accuracy,
    ),
    Metric(
        "balanced_accuracy", "balanced accuracy", True, "%", balanced_accuracy,
        help="mean over the classes present of the share of their samples that are predicted correctly",
        stacked=stacked_balanced_accuracy,
    ),
)  # fmt: skip
