"""How methods judge predictions: by one number each, higher is better. By default accuracy.

A run that selects its rounds by another metric (`evaluate.select`) also judges by that one: see `metrics.judging`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Array = NDArray[Any]

# From answers (models, samples, outputs), which are probabilities or scaled numbers, and labels (samples,) to a merit
# for each model. Several models are judged at once, because ensembles are chosen among thousands.
Judge = Callable[[Floats, Array], Floats]


WORST = -1e9  # of a model without a value; finite, because merits are averaged and rescaled


def by_accuracy(answers: Floats, labels: Array) -> Floats:
    """The share of samples whose most probable class is the label."""
    shares: Floats = (answers.argmax(2) == labels).mean(1)
    return shares
