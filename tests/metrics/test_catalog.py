"""Every metric against scikit-learn, called here in its own way, and against values derived by hand."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from coterie.core.task import CLASSIFICATION, REGRESSION
from coterie.metrics import METRICS, Scores
from coterie.metrics.catalog import ranking
from coterie.metrics.metric import Array

OF_CLASSES = [m for m in METRICS.values() if m.task == CLASSIFICATION]
LEVELS = 5  # few different values: many ties


@st.composite
def outputs(draw: st.DrawFn, classes: int | None = None, peers: int = 1) -> tuple[Array, Array]:
    """Probabilities (peers, samples, classes) with ties, and labels that may lack classes; down to a single row."""
    many = classes or draw(st.integers(2, 5))
    samples = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    raw = (
        rng.integers(1, LEVELS + 1, (peers, samples, many))
        if draw(st.booleans())
        else rng.random((peers, samples, many))
    )
    present = rng.choice(many, rng.integers(1, many + 1), replace=False)
    return raw / raw.sum(2, keepdims=True), rng.choice(present, (peers, samples))


def by_sklearn(name: str, p: Array, y: Array, positive: int) -> float | None:
    """The documented value, computed by scikit-learn alone; None where it is documented as undefined."""
    classes, predicted, present = p.shape[1], p.argmax(1), sorted(set(y.tolist()))
    actual, decided = (y == positive).astype(int), (p[:, positive] >= 0.5).astype(int)
    one_class = len(present) < 2
    if name == "accuracy":
        return sk.accuracy_score(y, predicted)
    if name == "balanced_accuracy":
        return sk.balanced_accuracy_score(y, predicted)
    if name in ("auroc", "auprc"):
        area = sk.roc_auc_score if name == "auroc" else sk.average_precision_score
        if one_class:
            return None
        columns = [positive] if classes == 2 else present
        return float(np.mean([area((y == c).astype(int), p[:, c]) for c in columns]))
    if name == "f1":
        return sk.f1_score(y, predicted, average="macro", zero_division=0)
    if name == "f1_positive":
        return sk.f1_score(actual, decided, pos_label=1, zero_division=0) if actual.any() else None
    if name == "sensitivity":
        return sk.recall_score(actual, decided, pos_label=1) if actual.any() else None
    if name == "specificity":
        return sk.recall_score(actual, decided, pos_label=0) if not actual.all() else None
    if name == "log_loss":
        return sk.log_loss(y, p, labels=list(range(classes)))
    if name == "brier":
        return (
            sk.brier_score_loss(actual, p[:, positive])
            if classes == 2
            else sk.brier_score_loss(y, p, labels=list(range(classes)))
        )
    raise KeyError(name)


SAME_AS_SKLEARN = [m.name for m in OF_CLASSES if m.tune is None and m.name != "ece"]


@pytest.mark.parametrize("name", SAME_AS_SKLEARN)
@given(drawn=outputs(), data=st.data())
def test_equals_scikit_learn(name: str, drawn: tuple[Array, Array], data: st.DataObject) -> None:
    (p,), (y,) = drawn
    positive = data.draw(st.integers(0, p.shape[1] - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of predicted classes without samples: not from our functions, see below
        expected = by_sklearn(name, p, y, positive)
    value = METRICS[name].value(Scores(p, positive), y)  # a warning is an error here
    assert value == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize("metric", [m for m in OF_CLASSES if m.stacked], ids=lambda m: m.name)
@pytest.mark.parametrize("by_sorting", [False, True])
@given(drawn=outputs(peers=3), data=st.data())
def test_the_form_for_stacks_is_the_same(metric: Any, by_sorting: bool, drawn: tuple[Array, Array], data: Any) -> None:
    p, y = drawn
    positive = data.draw(st.integers(0, p.shape[2] - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "PAIRWISE", 0 if by_sorting else 99)
        together = metric.values(p, y, positive)
        alone = [metric.values(p[i : i + 1], y[i : i + 1], positive)[0] for i in range(3)]
    assert together == alone  # to the bit: results must not depend on which peers are in a process
    for value, scores, labels in zip(together, p, y, strict=True):
        expected = metric.value(Scores(scores, positive), labels)
        assert value == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(drawn=outputs(classes=2))
def test_tuned_threshold_has_the_largest_youden(drawn: tuple[Array, Array]) -> None:
    (p,), (y,) = drawn
    threshold = METRICS["sensitivity_tuned"].tuned(Scores(p), y)
    if len(set(y.tolist())) < 2:
        assert threshold is None
        return

    def youden(at: float) -> Fraction:
        decided, positives = [q >= at for q in p[:, 1]], int(y.sum())
        true = sum(d for d, label in zip(decided, y, strict=True) if label)
        return Fraction(true, positives) - Fraction(sum(decided) - true, len(y) - positives)

    candidates = set(p[:, 1].tolist())
    best = max(map(youden, candidates))
    assert threshold == max(t for t in candidates if youden(t) == best)


def test_tuned_by_hand() -> None:
    # Validation: positives at 0.3 and 0.4, negatives at 0.1 and 0.35. J is 1/2 at 0.4 (one of two positives, no
    # negative) and 1/2 at 0.3 (both, and one negative): the higher threshold, 0.4.
    def probabilities(*positive: float) -> Array:
        return np.array([[1 - q, q] for q in positive])

    validation, labels = Scores(probabilities(0.3, 0.4, 0.1, 0.35)), np.array([1, 1, 0, 0])
    for name, expected in (("sensitivity_tuned", 1.0), ("specificity_tuned", 0.5)):
        metric = METRICS[name]
        threshold = metric.tuned(validation, labels)
        assert threshold == pytest.approx(0.4)
        # Test: 0.45 is positive at 0.4 (not at 0.5), and so is the negative 0.6, but not the negative 0.2.
        assert metric.value(Scores(probabilities(0.45, 0.6, 0.2), 1, threshold or 0.0), np.array([1, 0, 0])) == expected


def test_calibration_error_by_hand() -> None:
    # Confidences 0.9, 0.92 fall into (13/15, 14/15], one of two is right: |1/2 - 0.91| = 0.41 for 2 of 3 samples. 0.6
    # is the upper bound of (8/15, 9/15] and right: 0.4 for the third. (2 x 0.41 + 0.4) / 3.
    p = np.array([[0.9, 0.1], [0.08, 0.92], [0.4, 0.6]])
    assert METRICS["ece"].value(Scores(p), np.array([0, 0, 1])) == pytest.approx((0.82 + 0.4) / 3)


def test_perfect_confidence_is_calibrated() -> None:
    assert METRICS["ece"].value(Scores(np.array([[1.0, 0.0], [0.0, 1.0 + 2e-16]])), np.array([0, 1])) == pytest.approx(
        0
    )


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3).map(lambda x: round(x, 3))), min_size=1, max_size=9)
)
def test_regression_equals_scikit_learn(pairs: list[tuple[float, float]]) -> None:
    predicted, actual = np.array(pairs).T
    expected = {
        "mae": sk.mean_absolute_error(actual, predicted),
        "rmse": sk.mean_squared_error(actual, predicted) ** 0.5,
        "pinball": sk.mean_absolute_error(actual, predicted) / 2,
        "r2": sk.r2_score(actual, predicted) if len(set(actual.tolist())) > 1 else None,
    }
    assert set(expected) == {m.name for m in METRICS.values() if m.task == REGRESSION}
    for name, value in expected.items():
        assert METRICS[name].value(Scores(predicted), actual) == (
            None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)
        )


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda m: m.name)
def test_undefined_without_samples_or_with_predictions_that_are_not_finite(metric: Any) -> None:
    shape = (3,) if metric.task == REGRESSION else (3, 2)
    values, labels = np.full(shape, np.nan), np.array([0, 1, 1])
    assert metric.value(Scores(values), labels) is None
    assert metric.value(Scores(values[:0]), labels[:0]) is None
    assert metric.values(np.stack([values, values]), np.stack([labels, labels]), 1) == [None, None]
    assert metric.values(np.stack([values[:0]]), np.stack([labels[:0]]), 1) == [None]
    good = np.full(shape, 0.5)
    first, second = metric.values(np.stack([values, good]), np.stack([labels, labels]), 1)
    assert first is None
    assert second == metric.value(Scores(good), labels)
