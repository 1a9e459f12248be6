"""A small transformer encoder for series."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from coterie.models.layers import Backbone, as_series, scaled

_HEADS = 4
_BLOCKS = 2


class Attention(nn.Module):
    """Self-attention (Vaswani et al. 2017) in plain matrix products, which vmap turns into batched ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        by_head = self.queries_keys_values(x).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = by_head.unbind(0)  # each (B, heads, T, width / heads)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(self.out.in_features / _HEADS)
        attended: Tensor = self.out((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))
        return attended


class Block(nn.Module):
    """Attention, then two dense layers; each normalises its input and adds to it (Xiong et al. 2020, "pre-LN")."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width))
        self.dense = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        change: Tensor = self.dense(x)
        return x + change


class Steps(nn.Module):
    """The steps of a series as vectors, with their sinusoidal positions added: (B, C, T) to (B, T, width)."""

    def __init__(self, channels: int, length: int, width: int) -> None:
        super().__init__()
        self.length = length
        self.project = nn.Linear(channels, width)

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.project(x.transpose(1, 2))
        # computed each time: a buffer would be sent and averaged with the weights
        return steps + positions(self.length, self.project.out_features).to(x.device)


class MeanOverTime(nn.Module):
    """(B, T, width) to (B, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def positions(steps: int, width: int) -> Tensor:
    """Vaswani et al.'s encoding, (steps, width): the sines, then the cosines, of width / 2 frequencies."""
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(steps)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def transformer(input_shape: tuple[int, ...], width: float = 1.0, vocabulary: int = 0) -> Backbone:
    """Two blocks of width 64 with four heads; the features are the mean over time."""
    (d,) = scaled((64,), width)
    start, channels = as_series(input_shape, vocabulary, d)
    blocks = [Block(d) for _ in range(_BLOCKS)]
    steps = Steps(channels, input_shape[-1], d)
    return Backbone(nn.Sequential(*start, steps, *blocks, nn.LayerNorm(d), MeanOverTime()), d)
