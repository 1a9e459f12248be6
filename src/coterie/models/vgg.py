"""VGG (Simonyan & Zisserman 2015), configuration A, for small images.

The eight convolutions are the paper's. A 32x32 image is 1x1 after its five poolings, so the paper's two
dense layers of 4096 (made for 7x7) are left out, as is usual for CIFAR: the 512 maps are the features.
"""

from __future__ import annotations

from torch import nn

from coterie.models.layers import Backbone, conv_block, global_average, halve

# Output channels of the convolutions of each stage; a pooling ends every stage.
_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


def vgg11(input_shape: tuple[int, ...], norm: str) -> Backbone:
    """Eight 3x3 convolutions in five stages, global average: 512 features."""
    channels = input_shape[0]
    layers: list[nn.Module] = []
    for stage in _STAGES:
        for outputs in stage:
            layers.append(conv_block(channels, outputs, 3, norm))
            channels = outputs
        layers.append(halve())
    return Backbone(nn.Sequential(*layers, global_average()), channels)
