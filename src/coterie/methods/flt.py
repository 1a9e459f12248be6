"""FLT: a server finds related peers once, from embeddings, and averages among these (Jamali-Rad et al. 2022)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.core.peer import Peer
from coterie.core.release import FEATURES
from coterie.methods.base import parameter
from coterie.methods.components.personal_averages import own_average, send_averages
from coterie.methods.components.relatedness import related
from coterie.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FLT(FedAvg):
    summary: ClassVar[str] = "a server compares peers' embeddings once, and averages models among related peers"
    paper: ClassVar[str] = "Jamali-Rad et al., Federated Learning with Taskonomy for Non-IID Data, 2022"
    mixed: ClassVar[bool] = False
    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "which peers are related: a few bytes of every average that is sent"

    embeddings: int = parameter(50, "number of samples whose features a peer sends, once; all if it has fewer", least=1)
    related: float = parameter(
        0.0,
        "share of the pairs of peers that are related, nearest first; 0: by Otsu's threshold; 1: FedAvg",
        least=0,
        most=1,
    )

    async def setup(self, me: Peer) -> None:
        me.state["features"] = {}  # by peer: a peer holds its own, the server those of all peers
        me.state["related"] = []  # at the server: pairs of peers

    async def round(self, me: Peer) -> None:
        if me.round == 1:
            await super().round(me)
        elif self.takes_part(me):
            await self.embed(me)
            before = self.reference(me)
            await me.train()
            embedded = me.id in me.state["features"]
            me.shelve("update", me.model, reference=before, samples=me.samples, embedded=embedded)
            average = await own_average(me, "average", like=me.model)
            if average:
                me.model.load(average.tensors)
                me.note(weights=average.shares, neighbours=[j for j in average.shares if j != me.id])

    async def embed(self, me: Peer) -> None:
        """Shelve the features of some samples under the average of round 1, with which the peer then continues."""
        features: dict[int, Tensor] = me.state["features"]
        if not features and await self.follow(me):
            [prediction] = await me.predict()
            drawn = np.sort(me.rng("embeddings").permutation(me.samples)[: self.embeddings])
            features[me.id] = prediction.features[torch.from_numpy(drawn).to(prediction.features.device)]
        if features:
            me.shelve("embeddings", {"features": features[me.id]}, made_from=FEATURES)

    async def serve(self, me: Peer) -> None:
        if me.round == 1:
            await super().serve(me)
            return
        self.publish(me)  # the average of round 1
        updates = await me.fetch(self.participants(me), "update", like=me.model, facts=["samples"])
        features: dict[int, Tensor] = me.state["features"]
        new = [j for j, update in updates.items() if update.facts.get("embedded") and j not in features]
        if new:
            embeddings = await me.fetch(new, "embeddings")
            features.update({j: sent["features"] for j, sent in embeddings.items() if _is_embedding(sent, me)})
            me.state["related"] = related(features, self.related)
        samples = {j: float(update.facts["samples"]) for j, update in updates.items()}
        await send_averages(me, "average", updates, shares_of_related(samples, me.state["related"]))


def _is_embedding(sent: Mapping[str, Tensor], me: Peer) -> bool:
    """Whether it holds features of at least one sample, of the head's input size: never trust received data."""
    features = sent.get("features", torch.empty(0))
    return features.dim() == 2 and len(features) > 0 and features.shape[1] == me.model["head.weight"].shape[1]


def shares_of_related(samples: Mapping[int, float], pairs: Iterable[tuple[int, int]]) -> dict[int, dict[int, float]]:
    """For each peer that takes part: the shares of itself and of the related peers that take part, by their data."""
    groups = {j: {j} for j in samples}
    for i, j in pairs:
        if i in groups and j in groups:
            groups[i].add(j)
            groups[j].add(i)
    total = {j: sum(samples[k] for k in sorted(groups[j])) for j in groups}
    return {j: {k: samples[k] / total[j] for k in sorted(groups[j])} for j in groups}
