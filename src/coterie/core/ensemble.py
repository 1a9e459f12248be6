"""Ensembles: several models, a peer's own or received, that predict by vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.model import Model
from coterie.core.portable_model import Portable

VOTES = {"soft": "by the members' mean probability", "hard": "by the class that most predict"}


@dataclass(frozen=True, eq=False)
class Member:
    """A model with a name that is never reused: "3/model-0", from peer 3."""

    name: str
    model: Model | Portable


@dataclass(frozen=True, eq=False)
class Ensemble:
    members: tuple[Member, ...]
    vote: str = "soft"
    weights: tuple[float, ...] = ()  # of the members in a soft vote; empty: all equal


def voted(probabilities: Sequence[Tensor], vote: str, weights: Sequence[float] = ()) -> Tensor:
    """The ensemble's probabilities, (samples, classes), from those of its members; or its numbers, (samples, 1).

    A soft vote is their mean (weighted, if there are weights). A hard vote is the share of members that predict each
    class, with ties broken by the mean.
    """
    stacked = torch.stack(list(probabilities))
    if weights:
        shares = stacked.new_tensor(weights).view(-1, 1, 1)
        return (shares * stacked).sum(0) / shares.sum()
    mean = stacked.mean(0)
    if vote == "soft":
        return mean
    votes = torch.nn.functional.one_hot(stacked.argmax(2), stacked.shape[2]).to(mean.dtype).mean(0)
    tie_break = 1.0 / (10 * len(stacked))
    return (votes + tie_break * mean) / (1 + tie_break)
