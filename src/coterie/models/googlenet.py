"""GoogLeNet (Szegedy et al. 2015) for small images.

The nine inception blocks are the paper's. The stem is one 3x3 convolution to the 192 channels that the
paper's stem ends in (the paper's shrinks the image eightfold, too much for 32x32), and the two auxiliary
classifiers, which the authors later found of little use, are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from coterie.models.layers import Backbone, conv_block, global_average


class Widths(NamedTuple):
    """Output channels inside an inception block, as the columns of the paper's Table 1."""

    one: int
    three_reduce: int
    three: int
    five_reduce: int
    five: int
    pool: int

    @property
    def total(self) -> int:
        return self.one + self.three + self.five + self.pool


# Rows 3a-3b, 4a-4e and 5a-5b of Table 1; the image is halved between the stages.
_STAGES = (
    (Widths(64, 96, 128, 16, 32, 32), Widths(128, 128, 192, 32, 96, 64)),
    (
        Widths(192, 96, 208, 16, 48, 64),
        Widths(160, 112, 224, 24, 64, 64),
        Widths(128, 128, 256, 24, 64, 64),
        Widths(112, 144, 288, 32, 64, 64),
        Widths(256, 160, 320, 32, 128, 128),
    ),
    (Widths(256, 160, 320, 32, 128, 128), Widths(384, 192, 384, 48, 128, 128)),
)


class Inception(nn.Module):
    """Four parallel branches, 1x1, 3x3, 5x5 and pooled, each narrowed by a 1x1 convolution."""

    def __init__(self, inputs: int, widths: Widths, norm: str) -> None:
        super().__init__()
        self.one = conv_block(inputs, widths.one, 1, norm)
        self.three = nn.Sequential(
            conv_block(inputs, widths.three_reduce, 1, norm),
            conv_block(widths.three_reduce, widths.three, 3, norm),
        )
        self.five = nn.Sequential(
            conv_block(inputs, widths.five_reduce, 1, norm),
            conv_block(widths.five_reduce, widths.five, 5, norm),
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_block(inputs, widths.pool, 1, norm))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1)


def googlenet(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Stem, nine inception blocks in three stages, global average: 1024 features."""
    channels = 192
    layers: list[nn.Module] = [conv_block(input_shape[0], channels, 3, norm)]
    for number, stage in enumerate(_STAGES):
        if number > 0:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        for widths in stage:
            layers.append(Inception(channels, widths, norm))
            channels = widths.total
    return Backbone(nn.Sequential(*layers, global_average()), channels)
