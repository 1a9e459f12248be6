"""ShuffleNetV2 at width 1x (Ma et al. 2018) for small images: the stem neither strides nor pools."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coterie.models.layers import Backbone, conv_block, conv_norm, global_average

# Output channels and number of units of stages 2 to 4, the paper's Table 5 at 1x.
_STAGES = ((116, 4), (232, 8), (464, 4))
_STEM = 24
_FEATURES = 1024


def shuffle(x: Tensor) -> Tensor:
    """Interleaves the two halves of the channels, so that the next unit's split mixes them."""
    batch, channels, height, width = x.shape
    halves = x.reshape(batch, 2, channels // 2, height, width)
    return halves.transpose(1, 2).reshape(batch, channels, height, width)


def _narrow_branch(inputs: int, outputs: int, norm: str, stride: int) -> nn.Sequential:
    """1x1, depthwise 3x3, 1x1: the branch of both kinds of unit."""
    return nn.Sequential(
        conv_block(inputs, outputs, 1, norm),
        conv_norm(outputs, outputs, 3, norm, stride=stride, groups=outputs),
        conv_block(outputs, outputs, 1, norm),
    )


class Unit(nn.Module):
    """Half of the channels pass unchanged, the other half through the branch."""

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.branch = _narrow_branch(channels // 2, channels // 2, norm, stride=1)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        return shuffle(torch.cat([kept, self.branch(changed)], dim=1))


class DownUnit(nn.Module):
    """Halves the image: all channels go through both branches, and each gives half of the outputs."""

    def __init__(self, inputs: int, outputs: int, norm: str) -> None:
        super().__init__()
        self.shortcut = nn.Sequential(
            conv_norm(inputs, inputs, 3, norm, stride=2, groups=inputs),
            conv_block(inputs, outputs // 2, 1, norm),
        )
        self.branch = _narrow_branch(inputs, outputs // 2, norm, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return shuffle(torch.cat([self.shortcut(x), self.branch(x)], dim=1))


def shufflenetv2(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Stem, three stages that each begin by halving the image, and a 1x1 convolution to 1024 features."""
    layers: list[nn.Module] = [conv_block(input_shape[0], _STEM, 3, norm)]
    channels = _STEM
    for outputs, units in _STAGES:
        layers.append(DownUnit(channels, outputs, norm))
        layers += [Unit(outputs, norm) for _ in range(units - 1)]
        channels = outputs
    layers += [conv_block(channels, _FEATURES, 1, norm), global_average()]
    return Backbone(nn.Sequential(*layers), _FEATURES)
