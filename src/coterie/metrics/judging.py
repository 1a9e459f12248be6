"""Judges predictions by the metric that selects rounds: one rule for rounds, ensembles and gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.core.merit import Floats, Judge, by_accuracy
from coterie.data.scaling import Scaling
from coterie.metrics.evaluation import Evaluation
from coterie.metrics.metric import Array, Metric, Scores
from coterie.metrics.selection import ACCURACY


def judge_of(evaluation: Evaluation, label_scaling: Callable[[], Scaling | None] = lambda: None) -> Judge:
    """The judge of one peer. `label_scaling` returns how its numbers to predict are scaled: real peers that pool their
    scaling know it later."""
    chosen = evaluation.selection.metric
    if chosen == ACCURACY:
        return by_accuracy
    [metric] = [metric for metric in evaluation.metrics if metric.name == chosen]
    return JudgeByMetric(metric, evaluation.positive, label_scaling)


@dataclass(frozen=True, eq=False)
class JudgeByMetric:
    metric: Metric
    positive: int
    label_scaling: Callable[[], Scaling | None]  # of numbers; None: classes

    def __call__(self, answers: Floats, labels: Array) -> Floats:
        """The metric of each model, negated if lower is better; minus infinity for a model without a value.

        Where these labels do not define it, such as the AUROC of one class, all models are judged by accuracy, or by
        their mean squared error.
        """
        scaling = self.label_scaling()
        if scaling is None:
            sums = answers.sum(-1, keepdims=True)  # of float32 probabilities, 1 only approximately; 0 without members
            answers = answers / np.where(sums > 0, sums, 1.0)
        else:
            answers, labels = scaling.restored(answers[..., 0]), scaling.restored(labels)
        if self._values(self._perfect(answers, labels), labels) == [None]:
            return by_accuracy(answers, labels) if scaling is None else -np.square(answers - labels).mean(1)
        sign = 1.0 if self.metric.higher_is_better else -1.0
        values = self._values(answers, labels)
        return np.array([-np.inf if value is None else sign * value for value in values])

    def _perfect(self, answers: Floats, labels: Array) -> Floats:
        """The answers of a model that is always right: the metric is defined for them if the labels define it."""
        return (labels if answers.ndim == 2 else np.eye(answers.shape[2])[labels])[None]

    def _values(self, answers: Floats, labels: Array) -> list[float | None]:
        return self._tuned(answers, labels) if self.metric.tune else self._stacked(answers, labels)

    def _stacked(self, answers: Floats, labels: Array) -> list[float | None]:
        return self.metric.values(answers, np.broadcast_to(labels, (len(answers), *labels.shape)), self.positive)

    def _tuned(self, answers: Floats, labels: Array) -> list[float | None]:
        """With a threshold that is set on the same samples."""
        values: list[float | None] = []
        for of_model in answers:
            threshold = self.metric.tuned(Scores(of_model, self.positive), labels)
            scores = None if threshold is None else Scores(of_model, self.positive, threshold)
            values.append(None if scores is None else self.metric.value(scores, labels))
        return values
