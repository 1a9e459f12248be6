"""Layers that several architectures share. Those for images also serve series, with `axes=1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor, nn

NORMS = ("group", "batch", "none")

_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}
_BATCH_NORMS: dict[int, type[nn.BatchNorm1d] | type[nn.BatchNorm2d]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}
_MOST_GROUPS = 32
_FEWEST_CHANNELS_A_GROUP = 8


class Backbone(NamedTuple):
    """Layers that turn an input into a flat feature vector, and the width of that vector."""

    layers: nn.Module
    width: int


def group_count(channels: int) -> int:
    """The most groups (32 at most) that divide `channels` and leave each group at least 8 channels.

    Small images reach 1x1 in the deep layers; a group of one channel would then hold a single value,
    and normalising it would erase it.
    """
    most = min(_MOST_GROUPS, channels // _FEWEST_CHANNELS_A_GROUP)
    return next((groups for groups in range(most, 1, -1) if channels % groups == 0), 1)


def scaled(channels: Sequence[int], width: float) -> list[int]:
    """The channels multiplied by `width`, rounded to multiples of 8 (which normalisation groups divide)."""
    return [max(8, round(count * width / 8) * 8) for count in channels]


def norm_layers(kind: str, channels: int, axes: int = 2) -> list[nn.Module]:
    """The normalisation `kind` for `channels` feature maps: one layer, or none."""
    if kind == "group":
        return [nn.GroupNorm(group_count(channels), channels)]
    if kind == "batch":
        return [_BATCH_NORMS[axes](channels)]
    return []


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    norm: str,
    *,
    stride: int = 1,
    groups: int = 1,
    nonlinearity: Literal["relu", "linear"] = "relu",
    axes: int = 2,
) -> nn.Conv1d | nn.Conv2d:
    """A convolution that keeps height and width (divided by `stride`, rounded up), for odd kernels.

    It has a bias only without normalisation, which would cancel it. He initialisation for the `nonlinearity` that
    follows keeps signals from vanishing in deep nets without normalisation.
    """
    make = _CONVOLUTIONS[axes]
    layer = make(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=norm == "none")
    nn.init.kaiming_normal_(layer.weight, nonlinearity=nonlinearity)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def conv_norm(inputs: int, outputs: int, kernel: int, norm: str, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and normalisation, without an activation."""
    layer = convolution(inputs, outputs, kernel, norm, stride=stride, groups=groups, nonlinearity="linear")
    return nn.Sequential(layer, *norm_layers(norm, outputs))


def conv_block(inputs: int, outputs: int, kernel: int, norm: str, *, stride: int = 1, axes: int = 2) -> nn.Sequential:
    """Convolution, normalisation, ReLU."""
    layer = convolution(inputs, outputs, kernel, norm, stride=stride, axes=axes)
    return nn.Sequential(layer, *norm_layers(norm, outputs, axes), nn.ReLU())


def halve() -> nn.MaxPool2d:
    """2x2 max pooling that rounds up, so that a 1x1 map stays 1x1 instead of vanishing."""
    return nn.MaxPool2d(2, ceil_mode=True)


def halved(size: int, times: int) -> int:
    """The height or width that remains of `size` after `halve` is applied `times` times."""
    return -(-size // (1 << times))  # rounded up


def global_average() -> nn.Sequential:
    """Each feature map's mean: (B, C, H, W) to (B, C), for any H and W."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


class TokenEmbedding(nn.Module):
    """Token ids (B, T), which arrive as floats, as a series of their embeddings: (B, width, T)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, ids: Tensor) -> Tensor:
        embeddings: Tensor = self.table(ids.long())
        return embeddings.transpose(1, 2)


def as_series(input_shape: tuple[int, ...], vocabulary: int, width: int) -> tuple[list[nn.Module], int]:
    """Layers that turn inputs into series (B, channels, T), and the channels: none for series, else an embedding."""
    if len(input_shape) == 2:
        return [], input_shape[0]
    return [TokenEmbedding(vocabulary, width)], width
