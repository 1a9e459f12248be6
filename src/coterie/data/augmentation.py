"""Makes random views of samples, a whole batch at once, for methods that learn by comparing views (MAPL).

A view is a pure function of a sample and of uniform random numbers that the caller draws by key. So the same key gives
the same view in a plain loop and in a batched one, and no generator changes state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from coterie.core.errors import DataError

_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R BT.601)


class Augmentation(Protocol):
    """How a view of a sample is made."""

    @property
    def numbers(self) -> int:
        """How many uniform random numbers a view of one sample needs."""

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """One view of each sample: x is (N, ...), u is (N, numbers) in [0, 1); the result is shaped as x."""


@dataclass(frozen=True)
class ImageAugmentation:
    """Crop, flip, colour jitter, greyscale and blur, as in MAPL's Table 8 (SimCLR's list).

    Each step is linear, so the steps become three small matrices per image: for its rows, its columns and its colours.
    This causes the differences from torchvision: colours are clamped once, at the end, and not after each step; the
    steps of the jitter have a fixed order; hue rotates colours about the grey axis instead of in HSV; contrast is
    relative to the mean of the blurred image; and crops are not rounded to whole pixels.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Per channel: x is (raw - mean) / std, where raw goes from 0 to 1."""
    scale: tuple[float, float] = (0.2, 1.0)
    """The share of the area that a crop keeps."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width divided by height of a crop, before it is clipped to the image."""
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    """The largest rotation, in full circles."""
    grey: float = 0.2
    blur: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)
    numbers: ClassVar[int] = 13

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise DataError(f"augmentation: {len(self.mean)} means, but {len(self.std)} standard deviations")

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != len(self.mean):
            raise DataError(f"augmentation: expected (N, {len(self.mean)}, H, W), not {tuple(x.shape)}")
        u = u.to(x.dtype)
        n, channels, height, width = x.shape
        rows, columns = self._sampling(u, height, width)
        # Two matrix products: for small images on a CPU faster than grid_sample, and they include the blur.
        view = (rows[:, None] @ x).view(n, channels * height, width) @ columns.mT
        view = view.view(n, channels, height * width)
        matrix, offset = self._colours(u, view.mean(2))
        black, white = ((level - x.new_tensor(self.mean)) / x.new_tensor(self.std) for level in (0, 1))
        view = (matrix @ view).add_(offset[:, :, None])
        # clamp is slower with a limit per channel.
        return view.maximum(black[:, None]).minimum(white[:, None]).view(x.shape)

    def _sampling(self, u: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Matrices from the rows (columns) of an image to those of its view: crop, flip and blur."""
        small, large = self.scale
        root = (large - (large - small) * u[:, 0]).sqrt()  # decreasing: the number 0 keeps the whole image
        low, high = (math.log(ratio) / 2 for ratio in self.ratio)
        stretch = (low + (high - low) * u[:, 1]).exp()
        size = math.sqrt(height * width)
        tall, wide = (root / stretch * size).clamp(max=height), (root * stretch * size).clamp(max=width)
        direction = 1 - 2 * (u[:, 4] < self.flip).to(u.dtype)
        rows = _interpolation(tall / 2 + u[:, 2] * (height - tall), tall / height, height)
        columns = _interpolation(wide / 2 + u[:, 3] * (width - wide), direction * wide / width, width)
        low, high = self.sigma
        radius = max(1, min(height, width) // 20)  # the kernel covers a tenth of the image, as in SimCLR
        kernel = _gaussian(low + (high - low) * u[:, 12], u[:, 11] < self.blur, radius)
        return _blurring(kernel, height) @ rows, _blurring(kernel, width) @ columns

    def _colours(self, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, C) and (N, C): jitter and greyscale, for colours scaled like x; `average`: mean colour per image."""
        channels = len(self.mean)
        mean, std = u.new_tensor(self.mean), u.new_tensor(self.std)
        strength = u.new_tensor((self.brightness, self.contrast, self.saturation, self.hue))
        change = (2 * u[:, 6:10] - 1) * strength * (u[:, 5:6] < self.jitter)
        bright, contrast = 1 + change[:, 0], 1 + change[:, 1]
        mix = torch.eye(channels, dtype=u.dtype, device=u.device).expand(len(u), -1, -1)
        luma = u.new_full((channels,), 1 / channels)
        if channels == 3:
            luma = u.new_tensor(_LUMA)
            kept = (u[:, 10] >= self.grey).to(u.dtype)
            mix = _towards_grey(kept, luma) @ _rotated(change[:, 3]) @ _towards_grey(1 + change[:, 2], luma)
        # Contrast blends with the mean grey of the brightened image. No other step changes a grey, so it may come last.
        pivot = (1 - contrast) * bright * ((average * std + mean) @ luma)
        matrix = (bright * contrast)[:, None, None] * mix
        return matrix * (std / std[:, None]), (matrix @ mean + pivot[:, None] - mean) / std


@dataclass(frozen=True)
class FeatureAugmentation:
    """Gaussian noise and dropped features, for samples of any shape whose features have mean 0 and deviation 1."""

    features: int
    """The number of features of a sample."""
    noise: float = 0.1
    """Standard deviation of the noise, relative to that of the features."""
    dropout: float = 0.1
    """The share of features that are set to 0, their mean; the others are not rescaled."""

    @property
    def numbers(self) -> int:
        return 2 * self.features

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        if math.prod(x.shape[1:]) != self.features:
            raise DataError(f"augmentation: expected {self.features} features a row, not {tuple(x.shape)}")
        u = u.to(x.dtype)
        chance, drop = u[:, : self.features], u[:, self.features :]
        normal: Tensor = torch.special.ndtri(chance.clamp(2**-24, 1 - 2**-24))  # infinite at 0 and 1
        return (x.flatten(1) + self.noise * normal).masked_fill(drop < self.dropout, 0.0).view(x.shape)


class NoAugmentation:
    """For integers such as word ids, which have no views: noise would turn them into other ids."""

    @property
    def numbers(self) -> int:
        raise DataError(
            "this method or train.augment trains on views of the samples, but integers that are not scaled have no "
            "views: use another method; or, if the integers are measurements, data.scale = 'standard'"
        )

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:  # noqa: ARG002
        raise AssertionError  # unreachable: callers ask for `numbers` first


def _interpolation(centre: Tensor, step: Tensor, size: int) -> Tensor:
    """(N, size, size): linear interpolation at points `step` apart around `centre`; the border extends outwards."""
    pixel = torch.arange(size, dtype=centre.dtype, device=centre.device)
    # The centre of pixel i is at i + 1/2.
    at = centre[:, None] - 0.5 + step[:, None] * (pixel + (0.5 - size / 2))
    return (1 - (at.clamp(0, size - 1)[:, :, None] - pixel).abs()).relu()


def _gaussian(sigma: Tensor, wanted: Tensor, radius: int) -> Tensor:
    """(N, radius + 1): the right half of each kernel, beginning with half of its centre; no blur: the centre only."""
    distance = torch.arange(radius + 1, dtype=sigma.dtype, device=sigma.device)
    share = torch.where(distance == 0, 0.5, wanted[:, None].to(sigma.dtype))
    weight = share * (-0.5 * (distance / sigma[:, None]) ** 2).exp()
    return weight / (2 * weight.sum(1, keepdim=True))


def _blurring(half: Tensor, size: int) -> Tensor:
    """(N, size, size): the convolution with each kernel, mirrored at the border, as a matrix."""
    pixel = torch.arange(size, device=half.device)
    distance = torch.arange(half.shape[1], device=half.device)[:, None, None]
    left, right = (_mirrored(pixel[:, None] + sign * distance, size) == pixel for sign in (-1, 1))
    taken = left.to(half.dtype) + right  # (radius + 1, size, size): how often a pixel reads another at this distance
    return (half @ taken.flatten(1)).view(-1, size, size)


def _mirrored(pixel: Tensor, size: int) -> Tensor:
    """Pixel indices with those beyond the border reflected into the image: -1 becomes 1."""
    last = size - 1
    return (last - (last - pixel.abs()).abs()).clamp(min=0)


def _towards_grey(kept: Tensor, luma: Tensor) -> Tensor:
    """(N, 3, 3): blend each colour with its grey; 1 keeps it, 0 is greyscale."""
    kept = kept[:, None, None]
    return kept * torch.eye(3, dtype=luma.dtype, device=luma.device) + (1 - kept) * luma


def _rotated(circles: Tensor) -> Tensor:
    """(N, 3, 3): rotate the colours about the grey axis (Rodrigues' formula)."""
    angle = (2 * math.pi * circles)[:, None, None]
    cosine = angle.cos()
    across = circles.new_tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)
    return cosine * torch.eye(3, dtype=angle.dtype, device=angle.device) + angle.sin() * across + (1 - cosine) / 3
