"""Metrics of predicted numbers."""

from __future__ import annotations

from coterie.core.task import REGRESSION
from coterie.metrics.metric import Array, Metric, Scores


def mae(scores: Scores, labels: Array) -> float:
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(labels, scores.values))


def rmse(scores: Scores, labels: Array) -> float:
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(labels, scores.values))


def r2(scores: Scores, labels: Array) -> float | None:
    from sklearn.metrics import r2_score

    return float(r2_score(labels, scores.values)) if (labels != labels[0]).any() else None


def pinball(scores: Scores, labels: Array) -> float:
    from sklearn.metrics import mean_pinball_loss

    return float(mean_pinball_loss(labels, scores.values, alpha=0.5))


METRICS = (
    Metric("mae", "mean absolute error", False, "label", mae, "mean of |prediction - label|", REGRESSION),
    Metric("rmse", "root mean squared error", False, "label", rmse, "root of the mean squared error", REGRESSION),
    Metric(
        "r2", "R²", True, "", r2, "share of the labels' variance that is explained; undefined for equal labels",
        REGRESSION,
    ),
    Metric("pinball", "pinball loss", False, "label", pinball, "half of the mean absolute error", REGRESSION),
)  # fmt: skip
