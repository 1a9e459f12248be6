"""What a peer predicts with when it is not one model of its own: several, anybody's, that vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.model import Model
from coterie.core.portable_model import Portable

VOTES = ("soft", "hard")


@dataclass(frozen=True, eq=False)
class Member:
    """A model, and a name that no other and no later one has: "3/model-0", of peer 3."""

    name: str
    model: Model | Portable


@dataclass(frozen=True, eq=False)
class Ensemble:
    members: tuple[Member, ...]
    vote: str = "soft"
    weights: tuple[float, ...] = ()  # of the members' voices in a soft vote; none: all equal


def voted(probabilities: Sequence[Tensor], vote: str, weights: Sequence[float] = ()) -> Tensor:
    """The ensemble's probabilities, (samples, classes), of those of its members.

    By their mean (soft; weighted, where there are weights), or by the share of the members that name a class (hard);
    where those are equal, by the mean.
    """
    stacked = torch.stack(list(probabilities))
    if weights:
        shares = stacked.new_tensor(weights).view(-1, 1, 1)
        return (shares * stacked).sum(0) / shares.sum()
    mean = stacked.mean(0)
    if vote == "soft":
        return mean
    named = torch.nn.functional.one_hot(stacked.argmax(2), stacked.shape[2]).to(mean.dtype).mean(0)
    tie_break = 1.0 / (10 * len(stacked))
    return (named + tie_break * mean) / (1 + tie_break)
