"""The projection onto the probability simplex, for weights that must sum to one."""

from __future__ import annotations

import numpy as np


def project_to_simplex(point: np.ndarray) -> np.ndarray:
    """The nearest point (Euclidean) whose entries are not negative and sum to one.

    Subtracts the same amount from every entry and cuts at zero. By sorting, which in NumPy is faster than Condat's scan
    (2016), with the same result.
    """
    descending = np.sort(point)[::-1]
    excess = np.cumsum(descending) - 1
    counts = np.arange(1, len(point) + 1)
    kept = int(np.flatnonzero(descending * counts > excess)[-1])
    projected: np.ndarray = np.maximum(point - excess[kept] / counts[kept], 0.0)
    return projected
