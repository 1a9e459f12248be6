"""Gossip that merges by the coordinate-wise median: a few peers with wild models cannot move it far.

coterie run panm-digits method.name=examples/median_gossip.py:MedianGossip
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.merging import Models, Rule, Shares
from coterie.methods.gossip import Gossip


def median(models: Models, shares: Shares, own: int) -> dict[str, Tensor]:  # noqa: ARG001
    """Of each number, the median over peers; of an even number of peers, the lower of the two in the middle."""
    names = next(iter(models.values()))
    return {name: torch.stack([model[name] for model in models.values()]).median(0).values for name in names}


@dataclass(frozen=True)
class MedianGossip(Gossip):
    summary: ClassVar[str] = "gossip that takes the median of models instead of their mean"

    def merge_rule(self) -> Rule:
        return median
