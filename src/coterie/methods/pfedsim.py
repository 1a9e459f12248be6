"""pFedSim: after a warm-up, a server averages each peer's backbone over those with similar heads (Tan et al. 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.base import need, parameter
from coterie.methods.fedavg import FedAvg
from coterie.methods.personal import answer, own_average

CEILING = 0.9999  # a similarity of 1 would weigh infinitely; this is also a peer's similarity with itself


@dataclass(frozen=True)
class PFedSim(FedAvg):
    title: ClassVar[str] = "pFedSim"
    summary: ClassVar[str] = "FedAvg first; then a backbone of one's own, averaged by the likeness of heads"
    paper: ClassVar[str] = "Tan et al., pFedSim: Similarity-Aware Model Aggregation, 2023"
    mixed: ClassVar[bool] = False
    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "whose heads are alike: a few bytes of every answer"

    t_warm: int = parameter(10, "rounds of FedAvg before that (the authors' code: half of all)")

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.t_warm >= 0, "t_warm", f"must be at least 0, not {self.t_warm}")

    async def round(self, me: Peer, t: int) -> None:
        if t <= self.t_warm:
            await super().round(me, t)
        elif self.takes_part(me, t):
            await me.train()
            me.shelve("update", me.model, samples=me.samples)
            mine = await own_average(me, "body", like=me.model.part("backbone"))
            if mine:
                me.model.load(mine.tensors)
                me.note(weights=mine.shares)

    async def serve(self, me: Peer, t: int) -> None:
        if t <= self.t_warm:
            await super().serve(me, t)
            return
        updates = await me.fetch(self.participants(me, t), "update", like=me.model, facts=["samples"])
        bodies = {j: me.architecture.view(update).part("backbone") for j, update in updates.items()}
        await answer(me, "body", bodies, similarity_weights({j: u["head.weight"] for j, u in updates.items()}))


def similarity_weights(heads: Mapping[int, Tensor]) -> dict[int, dict[int, float]]:
    """Who weighs how much for whom: -log(1 - s), made to sum to one; s is the mean cosine of the classes' weights.

    Heads that point away from each other (s below 0), or are no numbers, do not weigh.
    """
    if not heads:
        return {}
    unit = F.normalize(torch.stack([heads[j].double() for j in sorted(heads)]), dim=-1)
    similar = torch.einsum("ick,jck->ij", unit, unit) / unit.shape[1]
    similar = torch.nan_to_num(similar, nan=0.0).clamp(0.0, CEILING).fill_diagonal_(CEILING)
    weights = -torch.log1p(-similar)
    rows = (weights / weights.sum(1, keepdim=True)).tolist()
    return {j: dict(zip(sorted(heads), row, strict=True)) for j, row in zip(sorted(heads), rows, strict=True)}
