"""DenseNet-121 (Huang et al. 2017, with bottlenecks and compression) for small images: a 3x3 stem."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coterie.models.layers import Backbone, conv_block, convolution, global_average, norm_layers

_GROWTH = 32
_BOTTLENECK = 4 * _GROWTH
_STEM = 2 * _GROWTH
_BLOCKS = (6, 12, 24, 16)  # dense layers in each block


def _preactivated(inputs: int, outputs: int, kernel: int, norm: str) -> list[nn.Module]:
    """Normalisation, ReLU, convolution: DenseNet's order."""
    return [*norm_layers(norm, inputs), nn.ReLU(), convolution(inputs, outputs, kernel, norm)]


class DenseLayer(nn.Module):
    """Appends `_GROWTH` new feature maps, computed from all earlier ones."""

    def __init__(self, inputs: int, norm: str) -> None:
        super().__init__()
        self.grow = nn.Sequential(
            *_preactivated(inputs, _BOTTLENECK, 1, norm),
            *_preactivated(_BOTTLENECK, _GROWTH, 3, norm),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(x)], dim=1)


def _transition(inputs: int, norm: str) -> nn.Sequential:
    """Halves the channels, then the image (rounded up, so that a 1x1 map survives)."""
    return nn.Sequential(
        *_preactivated(inputs, inputs // 2, 1, norm),
        nn.AvgPool2d(2, ceil_mode=True),
    )


def densenet121(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Stem, four dense blocks with three transitions between them, global average: 1024 features."""
    layers: list[nn.Module] = [conv_block(input_shape[0], _STEM, 3, norm)]
    channels = _STEM
    for number, depth in enumerate(_BLOCKS):
        if number > 0:
            layers.append(_transition(channels, norm))
            channels //= 2
        layers += [DenseLayer(channels + i * _GROWTH, norm) for i in range(depth)]
        channels += depth * _GROWTH
    layers += [*norm_layers(norm, channels), nn.ReLU(), global_average()]
    return Backbone(nn.Sequential(*layers), channels)
