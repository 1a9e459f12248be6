"""Defines a metric: a number computed from the scores that a model gives to samples, and from their labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.core.task import CLASSIFICATION

Array = npt.NDArray[Any]

UNITS = {
    "%": "a share, from 0 to 1, shown in percent",
    "": "a number without a unit",
    "label": "a number in the unit of the label",
}
EVEN_CHANCE = 0.5


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model predicts for each sample, with what a decision between two classes needs."""

    values: Array  # (samples, classes), probabilities that sum to 1; for regression (samples,), predictions
    positive: int = 1  # the number of the positive class
    threshold: float = EVEN_CHANCE  # a sample is predicted positive from this probability on

    @property
    def are_finite(self) -> bool:
        """Whether all are numbers: a model that diverged predicts NaN."""
        return bool(np.isfinite(self.values).all())

    @property
    def classes(self) -> int:
        return int(self.values.shape[1])

    @property
    def predicted(self) -> Array:
        """The most probable class of each sample."""
        predicted: Array = self.values.argmax(1)
        return predicted

    @property
    def of_positive(self) -> Array:
        """The probability of the positive class."""
        return self.values[:, self.positive]

    @property
    def predicted_positive(self) -> Array:
        decided: Array = self.of_positive >= self.threshold
        return decided


Of = Callable[[Scores, Array], float | None]
Tune = Callable[[Scores, Array], float | None]
Stacked = Callable[[Array, Array, int], Array]


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric by name. Its functions get at least one sample, and scores that are finite."""

    name: str  # in evaluate.metrics, in events and in summary.json
    label: str  # in reports
    higher_is_better: bool
    unit: str  # one of UNITS
    # The value for one peer's samples; None or NaN: undefined for these labels, such as labels of one class only.
    of: Of
    help: str = ""  # one line for the reference
    task: str = CLASSIFICATION  # what the models predict: one of TASKS of `core.task`
    needs_positive: bool = False  # whether it needs a positive class, also if there are more than two classes
    # The threshold to decide with, from the scores and labels of the validation data; None: undefined for these.
    tune: Tune | None = None
    # The same as `of` for several peers at once: from values (peers, samples, classes), labels (peers, samples) and the
    # positive class to one value for each peer, NaN where undefined. The value of a peer must not depend on the others.
    stacked: Stacked | None = None

    def value(self, scores: Scores, labels: Array) -> float | None:
        """The value for one peer, None where undefined."""
        return defined(self.of(scores, labels)) if len(labels) and scores.are_finite else None

    def tuned(self, validation: Scores, labels: Array) -> float | None:
        """The threshold that the validation data give, None where undefined."""
        assert self.tune is not None
        return defined(self.tune(validation, labels)) if len(labels) and validation.are_finite else None

    def values(self, values: Array, labels: Array, positive: int) -> list[float | None]:
        """The values for several peers with equally many samples; the arguments are those of `stacked`."""
        if self.stacked is None:
            return [self.value(Scores(v, positive), y) for v, y in zip(values, labels, strict=True)]
        found: list[float | None] = [None] * len(values)
        usable = np.flatnonzero(np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
        if len(usable) and labels.shape[1]:
            some = slice(None) if len(usable) == len(values) else usable
            results = self.stacked(values[some], labels[some], positive).tolist()
            for i, value in zip(usable.tolist(), results, strict=True):
                found[i] = defined(value)
        return found


def defined(value: float | None) -> float | None:
    """The value as a number; None if it is undefined, as JSON has no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None
