"""FedProto: peers exchange the mean feature of each class, and are drawn to everybody's (Tan et al. 2021)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.methods.base import Method, need, parameter
from coterie.peer import Peer
from coterie.training.losses import Batch, BoundNet, Given, negative_log_likelihood


def fedproto_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + lam * the mean squared difference of features from the prototype of their class.

    `given` holds "prototypes" (K x d_z), "known" (K: 1 where there is one, else 0) and "lam".
    """
    out = net(batch.x)
    apart = (out.features - given["prototypes"][batch.y]).square().mean(1)
    return negative_log_likelihood(out.logits, batch.y) + given["lam"] * (given["known"][batch.y] * apart).mean()


@dataclass(frozen=True)
class FedProto(Method):
    summary: ClassVar[str] = "any architectures: a server averages the classes' mean features, and peers draw near them"
    paper: ClassVar[str] = "Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, 2021"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True

    lam: float = parameter(1.0, "weight of the distance to prototypes (the paper: 1; 0.1 for CIFAR-10)")

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(0 <= self.lam < math.inf, "lam", f"must be at least 0, not {self.lam}")

    async def setup(self, me: Peer) -> None:
        """Nobody has sent anything yet: no class has a prototype. The head's weights are of their shape, K x d_z."""
        head = me.model["head.weight"]
        me.state["prototypes"] = torch.zeros_like(head)
        me.state["counts"] = torch.zeros(len(head), dtype=torch.int64, device=head.device)

    async def round(self, me: Peer, t: int) -> None:  # noqa: ARG002
        prototypes: Tensor = me.state["prototypes"]
        known = (me.state["counts"] > 0).to(prototypes.dtype)
        lam = torch.tensor(self.lam, device=prototypes.device)
        await me.train(fedproto_loss, given={"prototypes": prototypes, "known": known, "lam": lam})
        [said] = await me.predict()
        me.shelve("prototypes", class_means(said.features, me.labels(), len(prototypes)))
        assert me.server is not None
        for found in (await me.fetch(me.server, "global", like=_averages(me))).values():
            me.state.update(found)

    async def serve(self, me: Peer, t: int) -> None:  # noqa: ARG002
        theirs = (await me.fetch(me.peers, "prototypes", like=_averages(me))).values()
        me.state.update(average(_averages(me), theirs))
        me.shelve("global", _averages(me))


def _averages(me: Peer) -> dict[str, Tensor]:
    return {key: me.state[key] for key in ("prototypes", "counts")}


def class_means(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """The mean feature of each class and how many samples it is of; zeros where there are none."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, features.shape[1], dtype=features.dtype, device=features.device)
    sums.index_add_(0, labels, features)
    return {"prototypes": sums / counts.clamp(min=1).unsqueeze(1), "counts": counts}


def average(last: Mapping[str, Tensor], theirs: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each class's mean over those who have it, weighted by their samples; the last one where nobody has."""
    sums, counts = torch.zeros_like(last["prototypes"]), torch.zeros_like(last["counts"])
    for one in theirs:
        own = one["counts"].to(counts.dtype).clamp(min=0)
        sums += own.unsqueeze(1) * one["prototypes"]
        counts += own
    there = (counts > 0).unsqueeze(1)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return {
        "prototypes": torch.where(there, means, last["prototypes"]),
        "counts": torch.where(counts > 0, counts, last["counts"]),
    }
