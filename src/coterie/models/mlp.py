"""Multilayer perceptrons, for feature vectors and for flattened images."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from coterie.models.layers import Backbone


def mlp(input_shape: tuple[int, ...], hidden: tuple[int, ...]) -> Backbone:
    """Linear and ReLU for each hidden width; the last hidden layer is the feature vector.

    Without hidden layers the features are the inputs, and the net is a linear classifier.
    """
    widths = (math.prod(input_shape), *hidden)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return Backbone(nn.Sequential(*layers), widths[-1])
