"""pFedSim: after a warm-up, a server averages each peer's backbone over peers with similar heads (Tan et al. 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.base import parameter
from coterie.methods.components.personal_averages import own_average, send_averages
from coterie.methods.fedavg import FedAvg

CEILING = 0.9999  # a similarity of 1 would have infinite weight; also a peer's similarity to itself


@dataclass(frozen=True)
class PFedSim(FedAvg):
    title: ClassVar[str] = "pFedSim"
    summary: ClassVar[str] = "FedAvg first; then a personal backbone for each peer, averaged by the similarity of heads"
    paper: ClassVar[str] = "Tan et al., pFedSim: Similarity-Aware Model Aggregation, 2023"
    mixed: ClassVar[bool] = False
    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "which heads are similar: a few bytes of every average that is sent"

    t_warm: int = parameter(10, "rounds of FedAvg at the start (the authors' code: half of all)", least=0)

    async def round(self, me: Peer) -> None:
        if me.round <= self.t_warm:
            await super().round(me)
        elif self.takes_part(me):
            before = self.reference(me)
            await me.train()
            me.shelve("update", me.model, reference=before, samples=me.samples)
            average = await own_average(me, "body", like=me.model.part("backbone"))
            if average:
                me.model.load(average.tensors)
                me.note(weights=average.shares)

    async def serve(self, me: Peer) -> None:
        if me.round <= self.t_warm:
            await super().serve(me)
            return
        updates = await me.fetch(self.participants(me), "update", like=me.model, facts=["samples"])
        backbones = {j: me.architecture.view(update).part("backbone") for j, update in updates.items()}
        await send_averages(
            me, "body", backbones, similarity_weights({j: u["head.weight"] for j, u in updates.items()})
        )


def similarity_weights(heads: Mapping[int, Tensor]) -> dict[int, dict[int, float]]:
    """Each peer's weights of all peers: -log(1 - s), normalised to sum to one; s is the mean cosine of class weights.

    Heads that point away from each other (s below 0) or are not finite get no weight.
    """
    if not heads:
        return {}
    unit = F.normalize(torch.stack([heads[j].double() for j in sorted(heads)]), dim=-1)
    similar = torch.einsum("ick,jck->ij", unit, unit) / unit.shape[1]
    similar = torch.nan_to_num(similar, nan=0.0).clamp(0.0, CEILING).fill_diagonal_(CEILING)
    weights = -torch.log1p(-similar)
    rows = (weights / weights.sum(1, keepdim=True)).tolist()
    return {j: dict(zip(sorted(heads), row, strict=True)) for j, row in zip(sorted(heads), rows, strict=True)}
