"""F1: the harmonic mean of precision and recall."""

from __future__ import annotations

from coterie.metrics.metric import Array, Metric, Scores


def f1(scores: Scores, labels: Array) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, scores.predicted, average="macro", zero_division=0.0))


def f1_positive(scores: Scores, labels: Array) -> float | None:
    from sklearn.metrics import f1_score

    actual = labels == scores.positive
    return float(f1_score(actual, scores.predicted_positive, zero_division=0.0)) if actual.any() else None


METRICS = (
    Metric("f1", "F1 (macro)", True, "%", f1, help="mean of F1 over the classes that are present or predicted"),
    Metric(
        "f1_positive", "F1", True, "%", f1_positive, needs_positive=True,
        help="F1 of the positive class, predicted from a probability of 0.5 on",
    ),
)  # fmt: skip
