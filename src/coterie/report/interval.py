"""A mean over seeds with its 95% confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95% interval (Student's t); None with a single seed."""

    mean: float
    half: float | None


def estimate(values: Sequence[float]) -> Estimate:
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Estimate(mean, None)
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    return Estimate(mean, float(half))
