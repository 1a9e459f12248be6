"""Computes the metrics of a run for many peers at once: those with equally many samples as one stack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.metrics.evaluation import Evaluation
from coterie.metrics.metric import Array, Metric, Scores

VALIDATION, TEST = 0, 1
ByMetric = dict[str, list[float | None]]  # by metric: its value on the validation data and on the test data


class Outputs(NamedTuple):
    """What one model predicts for the samples of one split."""

    values: Array  # (samples, classes); for regression (samples,), in the unit of the label
    labels: Array


class _Stack(NamedTuple):
    """Outputs of equal shapes: which of all they are, and their arrays along a first axis."""

    places: list[int]
    values: Array
    labels: Array


def scores_of(evaluation: Evaluation, pairs: Sequence[tuple[Outputs, Outputs]]) -> list[ByMetric]:
    """The scores of each pair of outputs, on validation data and on test data."""
    outputs = [one for pair in pairs for one in pair]
    stacks = _stacked(outputs)
    scores: list[ByMetric] = [{} for _ in pairs]
    for metric in evaluation.metrics:
        values = (
            _tuned(metric, pairs, evaluation.positive)
            if metric.tune
            else _over_stacks(metric, stacks, len(outputs), evaluation.positive)
        )
        for i, of_pair in enumerate(scores):
            of_pair[metric.name] = values[2 * i : 2 * i + 2]
    return scores


def _stacked(outputs: Sequence[Outputs]) -> list[_Stack]:
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, one in enumerate(outputs):
        alike[one.values.shape].append(i)
    return [
        _Stack(
            places,
            np.concatenate([outputs[i].values for i in places]).reshape(len(places), *shape),
            np.concatenate([outputs[i].labels for i in places]).reshape(len(places), shape[0]),
        )
        for shape, places in alike.items()
    ]


def _over_stacks(metric: Metric, stacks: Sequence[_Stack], count: int, positive: int) -> list[float | None]:
    values: list[float | None] = [None] * count
    for stack in stacks:
        for i, value in zip(stack.places, metric.values(stack.values, stack.labels, positive), strict=True):
            values[i] = value
    return values


def _tuned(metric: Metric, pairs: Sequence[tuple[Outputs, Outputs]], positive: int) -> list[float | None]:
    values: list[float | None] = []
    for pair in pairs:
        threshold = metric.tuned(Scores(pair[VALIDATION].values, positive), pair[VALIDATION].labels)
        values += [
            None if threshold is None else metric.value(Scores(one.values, positive, threshold), one.labels)
            for one in pair
        ]
    return values
