"""A multilayer perceptron for tables, with a learned embedding of each category column."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coterie.data.schema import Blocks
from coterie.models.layers import Backbone
from coterie.models.mlp import mlp

_WIDEST = 16


class Embeddings(nn.Module):
    """Replaces the 0/1 features of each category column by its row of a table; other features pass: (B, F) to (B, D).

    A product with the table picks that row, so the input is the same as for any other network.
    """

    def __init__(self, features: int, blocks: Blocks) -> None:
        super().__init__()
        self.tables = nn.ModuleList(_table(stop - start) for start, stop in blocks)
        self.blocks, self.features = blocks, features
        self.width = features + sum(width(stop - start) - (stop - start) for start, stop in blocks)

    def forward(self, x: Tensor) -> Tensor:
        parts, at = [], 0
        for (start, stop), table in zip(self.blocks, self.tables, strict=True):
            parts += [x[:, at:start]] * (start > at) + [table(x[:, start:stop])]
            at = stop
        return torch.cat([*parts, x[:, at:]] if at < self.features else parts, 1)


def _table(features: int) -> nn.Linear:
    table = nn.Linear(features, width(features), bias=False)
    nn.init.normal_(table.weight)  # as torch's Embedding; standardised numbers have the same deviation
    return table


def width(features: int) -> int:
    """Numbers that embed a category of as many features: half as many, at most 16."""
    return min(_WIDEST, (features + 1) // 2)


def mlp_embedding(input_shape: tuple[int, ...], hidden: tuple[int, ...], blocks: Blocks) -> Backbone:
    """Embeddings, then the layers of `mlp`."""
    embeddings = Embeddings(input_shape[0], blocks)
    dense = mlp((embeddings.width,), hidden)
    return Backbone(nn.Sequential(embeddings, dense.layers), dense.width)
