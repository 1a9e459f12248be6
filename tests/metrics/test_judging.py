"""Methods judge predictions by the metric that selects rounds: one rule, with its direction and its unit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

from coterie.core.merit import WORST, by_accuracy
from coterie.data.scaling import Scaling
from coterie.methods.components.ensemble_selection import Bench, choose, cosines_of_errors
from coterie.metrics import Metric, Scores, evaluation_of
from coterie.metrics.judging import JudgeByMetric, judge_of

LABELS = np.array([0, 1, 1, 0, 1])
POSITIVE = np.array([[0.1, 0.8, 0.6, 0.4, 0.9], [0.45, 0.4, 0.46, 0.3, 0.47]])  # by model
ANSWERS = np.stack([1 - POSITIVE, POSITIVE], axis=2)


def test_accuracy_by_default() -> None:
    assert judge_of(evaluation_of((), "auto", "", ("a", "b"))) is by_accuracy
    assert by_accuracy(ANSWERS, LABELS).tolist() == [1.0, 0.4]  # the second calls everything class 0


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("auroc", [roc_auc_score(LABELS, p) for p in POSITIVE]),
        ("log_loss", [-log_loss(LABELS, p) for p in POSITIVE]),  # lower is better, so it is negated
    ],
)
def test_by_the_selecting_metric(metric: str, expected: list[float]) -> None:
    judge = judge_of(evaluation_of((metric,), metric, "", ("a", "b")))
    assert judge(ANSWERS.astype(np.float32).astype(float), LABELS).tolist() == pytest.approx(expected, rel=1e-5)


def test_where_the_labels_do_not_define_it_accuracy_decides() -> None:
    judge = judge_of(evaluation_of(("auroc",), "auroc", "", ("a", "b")))
    assert judge(ANSWERS, np.ones(5, dtype=int)).tolist() == [0.6, 0.0]


def test_a_tuned_threshold_is_set_on_the_same_samples() -> None:
    judge = judge_of(evaluation_of(("sensitivity_tuned",), "sensitivity_tuned", "", ("a", "b")))
    # At its best threshold the first separates the classes; the second's best is 0.46: 2 of 3 positive samples.
    assert judge(ANSWERS, LABELS).tolist() == pytest.approx([1.0, 2 / 3])


def test_numbers_are_judged_in_their_unit() -> None:
    labels, answers = np.array([0.0, 1.0, 2.0]), np.array([[[0.0], [1.0], [1.0]]])
    judge = judge_of(evaluation_of((), "auto", "", (), task="regression"), lambda: Scaling((100.0,), (10.0,)))
    expected = -root_mean_squared_error([100, 110, 120], [100, 110, 110])
    assert judge(answers, labels).tolist() == pytest.approx([expected])


def test_an_ensemble_is_chosen_by_the_metric() -> None:
    """By accuracy the peer's own model is as good as any; by AUROC the other one is better."""
    judge = judge_of(evaluation_of(("auroc",), "auroc", "", ("a", "b")))
    own, other = np.array([0.6, 0.7, 0.55, 0.52, 0.51]), np.array([0.55, 0.7, 0.8, 0.52, 0.9])
    answers = np.stack([np.stack([1 - p, p], axis=1) for p in (own, other)])
    mine = np.array([True, False])
    assert choose(Bench(answers, LABELS, mine), 1).members == (0,)
    assert choose(Bench(answers, LABELS, mine, judge), 1).members == (1,)


def test_numbers_are_diverse_if_their_errors_differ() -> None:
    """The mean over samples is the cosine between two models' errors: here of (1, 0), (0, 1) and (2, 0)."""
    labels = np.array([5.0, 7.0])
    answers = np.array([[[6.0], [7.0]], [[5.0], [8.0]], [[7.0], [7.0]]])
    cosines = cosines_of_errors(Bench(answers, labels, np.array([True, False, False]))).mean(2)
    np.testing.assert_allclose(cosines, [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-12)


def test_a_model_without_a_value_is_the_worst_if_the_labels_define_the_metric() -> None:
    """Precision is undefined for a model that never predicts the positive class; for others it stays precision."""

    def precision(scores: Scores, labels: np.ndarray) -> float | None:
        positive = scores.predicted_positive
        return float((labels == scores.positive)[positive].mean()) if positive.any() else None

    metric = Metric("precision", "precision", higher_is_better=True, unit="%", of=precision)
    judge = JudgeByMetric(metric, 1, lambda: None)
    assert judge(ANSWERS, LABELS).tolist() == [1.0, -np.inf]
    assert judge(ANSWERS[1:], LABELS).tolist() == [-np.inf]
    assert Bench(ANSWERS, LABELS, np.array([True, False]), judge).merits.tolist() == [1.0, WORST]
