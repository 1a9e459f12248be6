"""Small plain convolutional networks.

`cnn3` and `lenet` follow their papers: they have no normalisation, whatever the settings say, and PyTorch's default
initialisation.
"""

from __future__ import annotations

from torch import nn

from coterie.models.layers import Backbone, conv_block, halve, halved


def cnn(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Four 3x3 convolutions, 32-32-pool-64-64-pool, and a dense layer of 256."""
    channels, height, width = input_shape
    flat = 64 * halved(height, 2) * halved(width, 2)
    layers = nn.Sequential(
        conv_block(channels, 32, 3, norm),
        conv_block(32, 32, 3, norm),
        halve(),
        conv_block(32, 64, 3, norm),
        conv_block(64, 64, 3, norm),
        halve(),
        nn.Flatten(),
        nn.Linear(flat, 256),
        nn.ReLU(),
    )
    return Backbone(layers, 256)


def cnn3(input_shape: tuple[int, ...]) -> Backbone:
    """PANM's CIFAR-10 network: 3x3 convolutions 32-64-64, each pooled, and a dense layer of 64."""
    channels, height, width = input_shape
    flat = 64 * halved(height, 3) * halved(width, 3)
    layers = nn.Sequential(
        *_plain_stage(channels, 32, kernel=3),
        *_plain_stage(32, 64, kernel=3),
        *_plain_stage(64, 64, kernel=3),
        nn.Flatten(),
        nn.Linear(flat, 64),
        nn.ReLU(),
    )
    return Backbone(layers, 64)


def lenet(input_shape: tuple[int, ...]) -> Backbone:
    """FedAvg's CNN (McMahan et al. 2017), FedPAE's "4-layer CNN": 5x5 convolutions 32-64, dense 512."""
    channels, height, width = input_shape
    flat = 64 * halved(height, 2) * halved(width, 2)
    layers = nn.Sequential(
        *_plain_stage(channels, 32, kernel=5),
        *_plain_stage(32, 64, kernel=5),
        nn.Flatten(),
        nn.Linear(flat, 512),
        nn.ReLU(),
    )
    return Backbone(layers, 512)


def _plain_stage(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    """Convolution, 2x2 max pooling, ReLU: gives the same as ReLU first, but on a quarter of the values."""
    return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), halve(), nn.ReLU()]
