"""FLT: a server finds out once, from embeddings, who is related, and averages among them (Jamali-Rad et al. 2022)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.base import need, parameter
from coterie.methods.fedavg import FedAvg
from coterie.methods.personal import answer, own_average
from coterie.methods.relatedness import related


@dataclass(frozen=True)
class FLT(FedAvg):
    summary: ClassVar[str] = "a server compares peers' embeddings once, and averages models among related peers"
    paper: ClassVar[str] = "Jamali-Rad et al., Federated Learning with Taskonomy for Non-IID Data, 2022"
    mixed: ClassVar[bool] = False
    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "who is related to whom: a few bytes of every answer"

    embeddings: int = parameter(50, "samples whose features a peer sends, once; all if it has fewer")
    related: float = parameter(
        0.0, "share of the pairs of peers that are related, nearest first; 0: by Otsu's cut; 1: FedAvg"
    )

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.embeddings >= 1, "embeddings", f"must be at least 1, not {self.embeddings}")
        need(0 <= self.related <= 1, "related", f"must be from 0 (by Otsu's cut) to 1, not {self.related}")

    async def setup(self, me: Peer) -> None:
        me.state["features"] = {}  # by peer: a peer keeps its own, the server everybody's
        me.state["related"] = []  # the server's: pairs of peers

    async def round(self, me: Peer, t: int) -> None:
        if t == 1:
            await super().round(me, t)
        elif self.takes_part(me, t):
            await self.embed(me)
            await me.train()
            me.shelve("update", me.model, samples=me.samples, embedded=me.id in me.state["features"])
            mine = await own_average(me, "average", like=me.model)
            if mine:
                me.model.load(mine.tensors)
                me.note(weights=mine.shares, neighbours=[j for j in mine.shares if j != me.id])

    async def embed(self, me: Peer) -> None:
        """Shelve the features of some samples under the encoder: the average of round 1, from which one goes on."""
        features: dict[int, Tensor] = me.state["features"]
        if not features and await self.follow(me):
            [said] = await me.predict()
            drawn = np.sort(me.rng("embeddings").permutation(me.samples)[: self.embeddings])
            features[me.id] = said.features[torch.from_numpy(drawn).to(said.features.device)]
        if features:
            me.shelve("embeddings", {"features": features[me.id]})

    async def serve(self, me: Peer, t: int) -> None:
        if t == 1:
            await super().serve(me, t)
            return
        self.publish(me)  # as it was after round 1
        updates = await me.fetch(self.participants(me, t), "update", like=me.model, facts=["samples"])
        features: dict[int, Tensor] = me.state["features"]
        new = [j for j, update in updates.items() if update.facts.get("embedded") and j not in features]
        if new:
            found = await me.fetch(new, "embeddings")
            features.update({j: sent["features"] for j, sent in found.items() if _is_embedding(sent, me)})
            me.state["related"] = related(features, self.related)
        samples = {j: float(update.facts["samples"]) for j, update in updates.items()}
        await answer(me, "average", updates, shares_of_kin(samples, me.state["related"]))


def _is_embedding(sent: Mapping[str, Tensor], me: Peer) -> bool:
    """What others send is theirs to get wrong: features of at least one sample, as many as a head reads."""
    features = sent.get("features", torch.empty(0))
    return features.dim() == 2 and len(features) > 0 and features.shape[1] == me.model["head.weight"].shape[1]


def shares_of_kin(samples: Mapping[int, float], pairs: Iterable[tuple[int, int]]) -> dict[int, dict[int, float]]:
    """For each peer that is here: itself and who of its relatives is here, by their data."""
    kin = {j: {j} for j in samples}
    for i, j in pairs:
        if i in kin and j in kin:
            kin[i].add(j)
            kin[j].add(i)
    total = {j: sum(samples[k] for k in sorted(kin[j])) for j in kin}
    return {j: {k: samples[k] / total[j] for k in sorted(kin[j])} for j in kin}
