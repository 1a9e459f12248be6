"""From raw values (pixels, a table's numbers) to what models see, and the same again for samples that come later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.data.dataset import Array


@dataclass(frozen=True)
class Scaling:
    """`(value - mean) / deviation`: of each channel of images, or of each feature."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def standard(cls, values: Array) -> Scaling:
        """That which gives these features mean 0 and deviation 1; a constant one becomes 0."""
        spread = values.std(axis=0)
        return cls(tuple(values.mean(axis=0).tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist()))

    @classmethod
    def none(cls, count: int) -> Scaling:
        return cls((0.0,) * count, (1.0,) * count)

    def of_images(self, pixels: Array) -> Array:
        """Float32 images (N, C, H, W), scaled in place: there may be gigabytes of them."""
        mean, deviation = (np.asarray(v, dtype=np.float32)[:, None, None] for v in (self.mean, self.deviation))
        pixels -= mean
        pixels /= deviation
        return pixels

    def of_features(self, values: Array) -> Array:
        """Rows (N, F) as float32; computed in double, for a small difference of large numbers."""
        scaled: Array = (values.astype(np.float64) - np.asarray(self.mean)) / np.asarray(self.deviation)
        return scaled.astype(np.float32)

    def of_raw(self, raw: Array) -> Array:
        """Images or rows, as float32; what is given stays as it is."""
        return self.of_images(raw.astype(np.float32)) if raw.ndim == 4 else self.of_features(raw)
