"""Judges predictions by the metric that selects rounds: one rule for rounds, ensembles and gates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.merit import Floats, Judge, by_accuracy
from coterie.core.task import REGRESSION
from coterie.data.scaling import Scaling
from coterie.metrics.evaluation import Evaluation
from coterie.metrics.metric import Array, Metric, Scores
from coterie.metrics.selection import ACCURACY


def judge_of(evaluation: Evaluation, label_scaling: Scaling | None = None) -> Judge:
    """The judge of one peer, whose numbers to predict are scaled like this."""
    chosen = evaluation.selection.metric
    if chosen == ACCURACY:
        return by_accuracy
    [metric] = [metric for metric in evaluation.metrics if metric.name == chosen]
    return JudgeByMetric(metric, evaluation.positive, label_scaling if evaluation.task == REGRESSION else None)


@dataclass(frozen=True, eq=False)
class JudgeByMetric:
    metric: Metric
    positive: int
    label_scaling: Scaling | None  # of numbers; None: classes

    def __call__(self, answers: Floats, labels: Array) -> Floats:
        """The metric of each model, negated if lower is better.

        Where these labels do not define it, such as the AUROC of one class, models are judged by accuracy, or by their
        mean squared error.
        """
        if self.label_scaling is None:
            sums = answers.sum(-1, keepdims=True)  # of float32 probabilities, 1 only approximately; 0 without members
            answers = answers / np.where(sums > 0, sums, 1.0)
        else:
            answers, labels = self.label_scaling.restored(answers[..., 0]), self.label_scaling.restored(labels)
        values = self._tuned(answers, labels) if self.metric.tune else self._stacked(answers, labels)
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            return np.array(known) if self.metric.higher_is_better else -np.array(known)
        return by_accuracy(answers, labels) if self.label_scaling is None else -np.square(answers - labels).mean(1)

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
