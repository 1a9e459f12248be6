"""Sums over the rows of one peer, from which all peers together compute one scaling, without exchanging rows.

Of each feature (or channel) there are the number of its values, their mean, and the sum of squared distances from it.
Chan's formula merges these without the cancellation that plain sums of squares suffer from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.errors import DataError
from coterie.data.dataset import Array
from coterie.data.scaling import Scaling

KEYS = ("count", "mean", "squares")
FEWEST = 5  # rows that a peer's sums of a feature cover: from the sums of one or two, their values can be worked out
MOST = 1e12  # values of a feature; no peer has more
LARGEST = float(np.finfo(np.float32).max)  # magnitude of a value: models take float32


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """Float64 arrays with one number for each feature or channel."""

    count: Array  # of its values
    mean: Array
    squares: Array  # the sum of squared distances from the mean

    @classmethod
    def of(cls, values: Array, present: Array | None = None) -> FeatureSums:
        """Of rows (N, F) or (N, C, ...), where `present` (N, F) marks the values that count; None: all of them.

        A feature that fewer than `FEWEST` rows have does not count at all.
        """
        marks = np.ones(values.shape, bool) if present is None else present
        rows = marks.reshape(*marks.shape[:2], -1).any(axis=2).sum(axis=0)
        by_feature, marks = (np.moveaxis(a, 1, 0).reshape(values.shape[1], -1) for a in (values, marks))
        by_feature, marks = by_feature.astype(np.float64), marks & (rows >= FEWEST)[:, None]
        count = marks.sum(axis=1).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # `fault` tells
            least = by_feature.min(axis=1, where=marks, initial=np.inf)
            most = by_feature.max(axis=1, where=marks, initial=-np.inf)
            mean = by_feature.sum(axis=1, where=marks) / np.maximum(count, 1)
            # the computed mean of equal values can be off by a rounding error, and then they seem to deviate from it
            mean = np.where(least == most, least, mean)
            squares = np.square(by_feature - mean[:, None]).sum(axis=1, where=marks)
        return cls(count, mean, squares)

    def followed_by(self, other: FeatureSums) -> FeatureSums:
        """The sums of these features and of further ones."""
        return FeatureSums(*(np.concatenate([getattr(s, key) for s in (self, other)]) for key in KEYS))

    def tensors(self) -> dict[str, Tensor]:
        return {key: torch.from_numpy(getattr(self, key)) for key in KEYS}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> FeatureSums:
        return cls(*(tensors[key].cpu().numpy() for key in KEYS))

    def fault(self) -> str:
        """Why these cannot be the sums of any rows, without a value of them; empty if they can."""
        if not ((self.count >= 0) & (self.count <= MOST)).all():
            return "the number of values of some feature is negative or impossibly large"
        if not (np.abs(self.mean) <= LARGEST).all():
            return "the mean of some feature is not finite, or too large for float32"
        if not ((self.squares >= 0) & (self.squares <= self.count * LARGEST**2)).all():
            return "the sum of squares of some feature is negative, not finite, or too large for its number of values"
        return ""

    def with_more(self, other: FeatureSums) -> FeatureSums:
        """The sums over the rows of both, by Chan's formula."""
        total = self.count + other.count
        share, apart = other.count / np.maximum(total, 1), other.mean - self.mean
        mean = self.mean + apart * share
        return FeatureSums(total, mean, self.squares + other.squares + apart**2 * self.count * share)

    def scaling(self) -> Scaling:
        """By mean and deviation. A constant feature is only shifted, and one without values is left as it is."""
        spread = np.sqrt(self.squares / np.maximum(self.count, 1))
        mean, deviation = np.where(self.count > 0, self.mean, 0.0), np.where(spread > 0, spread, 1.0)
        return Scaling(tuple(mean.tolist()), tuple(deviation.tolist()))


def scaling_of_all(by_peer: Sequence[FeatureSums]) -> Scaling:
    """The common scaling of these peers, in ascending order: the result depends on the order in its last digits."""
    total = by_peer[0]
    for sums in by_peer[1:]:
        total = total.with_more(sums)
    if len(by_peer) > 1 and not total.count.any():
        raise DataError(
            f"data.scale = 'pooled': no peer has {FEWEST} training rows with a value of any feature: use 'standard'"
        )
    return total.scaling()
