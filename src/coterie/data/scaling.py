"""Scales raw values (pixels, the numbers of a table) to what models see, also for samples that come later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from coterie.data.dataset import Array

POOLED = "pooled"  # data.scale: by the mean and deviation of all peers' training rows


@dataclass(frozen=True)
class Scaling:
    """`(value - mean) / deviation`, for each feature (N, F) or each channel (N, C, ...)."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def standard(cls, values: Array) -> Scaling:
        """The scaling that gives each feature or channel mean 0 and deviation 1; a constant one becomes 0."""
        values = values.astype(np.float64)
        within = (0, *range(2, values.ndim))
        # the computed deviation of equal values can be a rounding error: never divide by it
        constant = values.min(axis=within) == values.max(axis=within)
        spread = np.where(constant, 1.0, values.std(axis=within))
        return cls(tuple(values.mean(axis=within).tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist()))

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[float, float]]) -> Scaling:
        """From the mean and the deviation of each feature."""
        means, deviations = zip(*pairs, strict=True)
        return cls(means, deviations)

    @classmethod
    def none(cls, count: int) -> Scaling:
        """The scaling that changes nothing."""
        return cls((0.0,) * count, (1.0,) * count)

    def of_images(self, pixels: Array) -> Array:
        """Float32 images (N, C, H, W), scaled in place: there may be gigabytes of them."""
        mean, deviation = (np.asarray(v, dtype=np.float32)[:, None, None] for v in (self.mean, self.deviation))
        pixels -= mean
        pixels /= deviation
        return pixels

    def of_numbers(self, values: Array) -> Array:
        """Rows (N, F) or (N, C, ...) as float32; computed in double precision, as large numbers may differ little."""
        mean, deviation = (np.reshape(v, (-1,) + (1,) * (values.ndim - 2)) for v in (self.mean, self.deviation))
        scaled: Array = (values.astype(np.float64) - mean) / deviation
        return scaled.astype(np.float32)

    def restored(self, scaled: Array) -> Array:
        """Scaled numbers (N,) of a single feature, such as a label, in their own unit; float64."""
        numbers: Array = scaled.astype(np.float64) * self.deviation[0] + self.mean[0]
        return numbers

    def of_raw(self, raw: Array) -> Array:
        """Images (bytes) or rows, scaled to float32; the input is not changed."""
        are_images = raw.dtype == np.uint8 and raw.ndim == 4
        return self.of_images(raw.astype(np.float32)) if are_images else self.of_numbers(raw)
