"""An AlexNet (Krizhevsky et al. 2012) for small images.

The five convolutions (64-192-384-256-256 channels, close to Krizhevsky's one-GPU net of 2014) and three
poolings. Kernels and strides shrink with the image; the dense layers have 1024 and 512 units instead of
4096; the chosen normalisation replaces local response normalisation.
"""

from __future__ import annotations

from torch import nn

from coterie.models.layers import Backbone, conv_block, halve, halved


def alexnet(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Five convolutions, three poolings, two dense layers: 512 features."""
    channels, height, width = input_shape
    flat = 256 * halved(height, 3) * halved(width, 3)
    layers = nn.Sequential(
        conv_block(channels, 64, 5, norm),
        halve(),
        conv_block(64, 192, 5, norm),
        halve(),
        conv_block(192, 384, 3, norm),
        conv_block(384, 256, 3, norm),
        conv_block(256, 256, 3, norm),
        halve(),
        nn.Flatten(),
        nn.Linear(flat, 1024),
        nn.ReLU(),
        nn.Linear(1024, 512),
        nn.ReLU(),
    )
    return Backbone(layers, 512)
