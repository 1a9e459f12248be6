"""A recurrent network for series."""

from __future__ import annotations

from torch import Tensor, nn

from coterie.models.layers import Backbone, as_series, scaled


class LastState(nn.Module):
    """The state after the last step of a gated recurrent unit (Cho et al. 2014): (B, C, T) to (B, width).

    It loops over the steps because vmap has no rule for `nn.GRU`, which computes the same.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(channels, width)

    def forward(self, x: Tensor) -> Tensor:
        first, *later = x.unbind(-1)
        state: Tensor = self.cell(first)
        for step in later:
            state = self.cell(step, state)
        return state


def gru(input_shape: tuple[int, ...], width: float = 1.0, vocabulary: int = 0) -> Backbone:
    """One gated recurrent layer of 64 units; the features are its last state."""
    (units,) = scaled((64,), width)
    start, channels = as_series(input_shape, vocabulary, units)
    return Backbone(nn.Sequential(*start, LastState(channels, units)), units)
