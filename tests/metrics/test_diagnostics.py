"""Curves, counts, intervals and warnings behind the figures of a classifier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.metrics import Scores, find
from coterie.metrics.diagnostics import (
    bootstrap,
    calibration_curve,
    confusion,
    only_class,
    precision_recall_curve,
    rare_classes,
    roc_curve,
)


def scores(*of_positive: float) -> Scores:
    positive = np.array(of_positive)
    return Scores(np.stack([1 - positive, positive], axis=1))


def test_curves_by_hand() -> None:
    """From the highest score down: positive, negative, positive, negative."""
    given, labels = scores(0.9, 0.8, 0.7, 0.1), np.array([1, 0, 1, 0])
    curve = roc_curve(given, labels)
    assert curve is not None
    assert list(zip(curve.x, curve.y, strict=True)) == [(0, 0), (0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1)]
    # Predicted positive from 0.9, 0.8, 0.7 and 0.1 on: precision 1, 1/2, 2/3, 2/4 at recall 1/2, 1/2, 1, 1.
    pr = precision_recall_curve(given, labels)
    assert pr is not None
    np.testing.assert_allclose(pr.x, [0, 0.5, 0.5, 1, 1])
    np.testing.assert_allclose(pr.y, [1, 1, 0.5, 2 / 3, 0.5])


def test_curves_need_both_classes() -> None:
    assert roc_curve(scores(0.2, 0.4), np.array([1, 1])) is None
    assert precision_recall_curve(scores(0.2, 0.4), np.array([0, 0])) is None


def test_calibration_by_hand() -> None:
    """0.12 and 0.18 are in the second of ten bins, with mean 0.15 and one of two positive; 1.0 is in the last."""
    curve = calibration_curve(scores(0.12, 0.18, 1.0), np.array([0, 1, 1]))
    np.testing.assert_allclose(curve.x, [0.15, 1.0])
    assert curve.y == [0.5, 1.0]


def test_confusion_by_hand() -> None:
    assert confusion(scores(0.9, 0.8, 0.2, 0.4), np.array([1, 0, 1, 0])).tolist() == [[1, 1], [1, 1]]


def test_intervals() -> None:
    """All correct: every draw gives 1. Half of 100 correct: the interval of a share, about 0.5 ± 1.96 * 0.05."""
    rng = np.random.default_rng(0)
    sure = bootstrap(find("accuracy"), scores(0.9, 0.1, 0.8), np.array([1, 0, 1]), rng)
    assert sure == (1.0, 1.0)
    half = bootstrap(find("accuracy"), scores(*[0.9] * 100), np.array([0, 1] * 50), rng)
    assert half is not None
    assert half.low == pytest.approx(0.402, abs=0.03)
    assert half.high == pytest.approx(0.598, abs=0.03)
    assert bootstrap(find("auroc"), scores(0.9, 0.1), np.array([1, 1]), rng) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=2, max_size=30))
def test_the_interval_covers_only_possible_values(rows: list[tuple[float, int]]) -> None:
    values, labels = scores(*(p for p, _ in rows)), np.array([y for _, y in rows])
    found = bootstrap(find("balanced_accuracy"), values, labels, np.random.default_rng(1))
    if found is not None:
        assert 0 <= found.low <= found.high <= 1


def test_few_samples_and_one_class_only() -> None:
    assert rare_classes(np.array([0] * 10 + [1] * 3), ("well", "ill")) == {"ill": 3}
    assert only_class(scores(*[0.1] * 20)) == 0
    assert only_class(scores(0.9, *[0.1] * 9)) is None
