"""Training on few cases of some classes: weights of samples, and sampling by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from coterie.core.randomness import uniforms

BALANCES = NONE, WEIGHTS, SAMPLING = "none", "weights", "sampling"


def balanced_weights(labels: Tensor) -> Tensor:
    """A weight for each sample, inversely proportional to the number of samples of its class; their mean is 1."""
    counts = torch.bincount(labels).to(torch.get_default_dtype())
    present = (counts > 0).sum()
    return len(labels) / (present * counts[labels])


def balanced_draws(labels: Sequence[np.ndarray], keys: Sequence[int], count: int) -> np.ndarray:
    """For each key, `count` positions drawn with replacement, (keys, count): all classes present are equally likely.

    `labels` are the classes of each key's samples.
    """
    numbers = uniforms(keys, 2 * count).astype(np.float64).reshape(len(keys), 2, count)
    return np.stack([positions_at(its, *pair) for its, pair in zip(labels, numbers, strict=True)])


def positions_at(labels: np.ndarray, of_class: np.ndarray, within: np.ndarray) -> np.ndarray:
    """The positions that numbers in [0, 1) pick: first a class present, then a sample of this class."""
    _, counts = np.unique(labels, return_counts=True)
    by_class = labels.argsort(kind="stable")
    starts = counts.cumsum() - counts
    picked = (of_class * len(counts)).astype(np.int64)
    positions: np.ndarray = by_class[starts[picked] + (within * counts[picked]).astype(np.int64)]
    return positions
