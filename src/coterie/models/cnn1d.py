"""A convolutional network for series."""

from __future__ import annotations

from torch import nn

from coterie.models.layers import Backbone, as_series, conv_block, scaled


def cnn1d(input_shape: tuple[int, ...], norm: str, width: float = 1.0, vocabulary: int = 0) -> Backbone:
    """Wang et al.'s FCN (2017) with half its channels, 64-128-64, and kernels 7-5-3 (theirs: 8-5-3).

    The features are the mean over time.
    """
    a, b, c = scaled((64, 128, 64), width)
    start, channels = as_series(input_shape, vocabulary, a)
    layers = nn.Sequential(
        *start,
        conv_block(channels, a, 7, norm, axes=1),
        conv_block(a, b, 5, norm, axes=1),
        conv_block(b, c, 3, norm, axes=1),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )
    return Backbone(layers, c)
