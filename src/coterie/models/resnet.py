"""Residual networks (He et al. 2016) for small images: a 3x3 stem, no pooling before the first block."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from coterie.models.layers import Backbone, conv_block, conv_norm, global_average, halve, scaled


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, norm: str, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv_block(inputs, outputs, 3, norm, stride=stride),
            conv_norm(outputs, outputs, 3, norm),
        )
        same_shape = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = nn.Identity() if same_shape else conv_norm(inputs, outputs, 1, norm, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.residual(x))


class Residual(nn.Module):
    """Adds the output of `branch` to its input (ResNet-9's block: the branch ends in a ReLU)."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.branch(x)
        return x + changed


class GlobalMax(nn.Module):
    """Each feature map's maximum, times `scale`: (B, C, H, W) to (B, C)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x.amax(dim=(-2, -1))


def resnet18(input_shape: tuple[int, ...], norm: str, width: float = 1.0) -> Backbone:
    """Four stages of two basic blocks, 64-128-256-512 channels; all but the first halve the image."""
    channels = scaled((64, 128, 256, 512), width)
    layers: list[nn.Module] = [conv_block(input_shape[0], channels[0], 3, norm)]
    inputs = channels[0]
    for outputs, stride in zip(channels, (1, 2, 2, 2), strict=True):
        layers += [BasicBlock(inputs, outputs, norm, stride), BasicBlock(outputs, outputs, norm)]
        inputs = outputs
    return Backbone(nn.Sequential(*layers, global_average()), inputs)


def resnet8(input_shape: tuple[int, ...], norm: str, width: float = 1.0) -> Backbone:
    """The paper's CIFAR network of 6n + 2 layers, n = 1: three stages of one basic block, 16-32-64 channels.

    If the shape changes, the shortcut is a 1x1 convolution, as in the other networks here; the paper's CIFAR networks
    pad with zeros.
    """
    channels = scaled((16, 32, 64), width)
    layers: list[nn.Module] = [conv_block(input_shape[0], channels[0], 3, norm)]
    inputs = channels[0]
    for outputs, stride in zip(channels, (1, 2, 2), strict=True):
        layers.append(BasicBlock(inputs, outputs, norm, stride))
        inputs = outputs
    return Backbone(nn.Sequential(*layers, global_average()), inputs)


def resnet9(input_shape: tuple[int, ...], norm: str, width: float = 1.0) -> Backbone:
    """The eight convolutions and one dense layer known from DAWNBench's fast CIFAR-10 entries.

    As there, the dense layer gets an eighth of the maxima: these are large, and would make its steps too long.
    """
    a, b, c, d = scaled((64, 128, 256, 512), width)
    layers = nn.Sequential(
        conv_block(input_shape[0], a, 3, norm),
        conv_block(a, b, 3, norm),
        halve(),
        _plain_residual(b, norm),
        conv_block(b, c, 3, norm),
        halve(),
        conv_block(c, d, 3, norm),
        halve(),
        _plain_residual(d, norm),
        GlobalMax(scale=0.125),
    )
    return Backbone(layers, d)


def _plain_residual(channels: int, norm: str) -> Residual:
    return Residual(nn.Sequential(conv_block(channels, channels, 3, norm), conv_block(channels, channels, 3, norm)))
