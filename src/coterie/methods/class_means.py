"""FedProto, FedDistill and FedGH: peers share only the mean of each class, so they may have any architecture.

The mean of its samples' features (FedProto, FedGH), or of their logits (FedDistill).
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.jobs import Prediction
from coterie.core.loss import Batch, BoundNet, Given, Loss, negative_log_likelihood
from coterie.core.peer import Peer
from coterie.methods.base import Method, need, parameter


def fedproto_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + lam * the mean squared difference of features from the common mean of their class.

    `given` holds "means" (K x d_z), "known" (K: 1 where there is one, else 0) and "lam".
    """
    out = net(batch.x)
    return negative_log_likelihood(out.logits, batch.y) + given["lam"] * _apart(out.features, batch.y, given)


def feddistill_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same with logits: `given["means"]` is K x K."""
    out = net(batch.x)
    return negative_log_likelihood(out.logits, batch.y) + given["lam"] * _apart(out.logits, batch.y, given)


def _apart(vectors: Tensor, labels: Tensor, given: Given) -> Tensor:
    squares = (vectors - given["means"][labels]).square().mean(1)
    return (given["known"][labels] * squares).mean()


@dataclass(frozen=True)
class _ToCommonMeans(Method):
    """Draw each sample to the common mean of its class; a server averages everybody's means."""

    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    loss: ClassVar[Loss]
    artifact: ClassVar[str]  # its name

    lam: float = parameter(1.0, "weight of the distance to the common means")

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(0 <= self.lam < math.inf, "lam", f"must be at least 0, not {self.lam}")

    @abstractmethod
    def vectors(self, said: Prediction) -> Tensor:
        """What of a prediction is averaged."""

    @abstractmethod
    def width(self, me: Peer) -> int:
        """How many numbers such a vector has."""

    async def setup(self, me: Peer) -> None:
        """Nobody has sent anything yet: no class has a mean."""
        head = me.model["head.weight"]
        me.state["means"] = torch.zeros(len(head), self.width(me), dtype=head.dtype, device=head.device)
        me.state["counts"] = torch.zeros(len(head), dtype=torch.int64, device=head.device)

    async def round(self, me: Peer, t: int) -> None:  # noqa: ARG002
        means: Tensor = me.state["means"]
        known = (me.state["counts"] > 0).to(means.dtype)
        lam = torch.tensor(self.lam, device=means.device)
        await me.train(type(self).loss, given={"means": means, "known": known, "lam": lam})
        [said] = await me.predict()
        me.shelve(self.artifact, class_means(self.vectors(said), me.labels(), len(means)))
        assert me.server is not None
        for found in (await me.fetch(me.server, "global", like=_averages(me))).values():
            me.state.update(found)

    async def serve(self, me: Peer, t: int) -> None:  # noqa: ARG002
        theirs = (await me.fetch(me.peers, self.artifact, like=_averages(me))).values()
        me.state.update(average(_averages(me), theirs))
        me.shelve("global", _averages(me))


@dataclass(frozen=True)
class FedProto(_ToCommonMeans):
    summary: ClassVar[str] = "any architectures: a server averages the classes' mean features, and peers draw near them"
    paper: ClassVar[str] = "Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, 2021"
    same_features: ClassVar[bool] = True
    loss: ClassVar[Loss] = fedproto_loss
    artifact: ClassVar[str] = "prototypes"

    lam: float = parameter(
        1.0, "weight of the distance to prototypes (the paper: 1 for MNIST and FEMNIST, 0.1 for CIFAR-10)"
    )

    def vectors(self, said: Prediction) -> Tensor:
        return said.features

    def width(self, me: Peer) -> int:
        return int(me.model["head.weight"].shape[1])


@dataclass(frozen=True)
class FedDistill(_ToCommonMeans):
    summary: ClassVar[str] = "any architectures: a server averages the classes' mean logits, and peers draw near them"
    paper: ClassVar[str] = "Jeong et al., Federated Distillation and Augmentation under Non-IID Private Data, 2018"
    loss: ClassVar[Loss] = feddistill_loss
    artifact: ClassVar[str] = "logits"

    lam: float = parameter(1.0, "weight of the distance to the common logits of the class")

    def vectors(self, said: Prediction) -> Tensor:
        return said.logits

    def width(self, me: Peer) -> int:
        return len(me.model["head.weight"])


def head_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """Cross entropy of the head alone, on features."""
    logits = F.linear(batch.x, net.parameters["head.weight"], net.parameters["head.bias"])
    return negative_log_likelihood(logits, batch.y)


@dataclass(frozen=True)
class FedGH(Method):
    summary: ClassVar[str] = "any architectures: a server trains one head on the classes' mean features of all peers"
    paper: ClassVar[str] = "Yi et al., FedGH: Heterogeneous Federated Learning with Generalized Global Header, 2023"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True

    server_epochs: int = parameter(10, "passes of the server over the means that it got in a round")
    server_lr: float = parameter(0.01, "its learning rate; batch size and momentum are those of [train]")

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(self.server_epochs >= 1, "server_epochs", f"must be at least 1, not {self.server_epochs}")
        need(0 < self.server_lr < math.inf, "server_lr", f"must be above 0, not {self.server_lr}")

    async def round(self, me: Peer, t: int) -> None:  # noqa: ARG002
        await me.train()
        [said] = await me.predict()
        me.shelve("prototypes", class_means(said.features, me.labels(), len(me.model["head.weight"])))
        assert me.server is not None
        for head in (await me.fetch(me.server, "global", like=me.model.part("head"))).values():
            me.model.load(head)

    async def serve(self, me: Peer, t: int) -> None:  # noqa: ARG002
        weight = me.model["head.weight"]
        like = {"means": weight, "counts": torch.zeros(len(weight), dtype=torch.int64, device=weight.device)}
        theirs = (await me.fetch(me.peers, "prototypes", like=like)).values()
        rows = [(sent["means"][k], k) for sent in theirs for k in torch.nonzero(sent["counts"] > 0).flatten().tolist()]
        if rows:
            samples = torch.stack([mean for mean, _ in rows]), torch.tensor([k for _, k in rows], device=weight.device)
            await me.train(head_loss, on=samples, only="head", epochs=self.server_epochs, lr=self.server_lr)
        me.shelve("global", me.model.part("head"))


def _averages(me: Peer) -> dict[str, Tensor]:
    return {key: me.state[key] for key in ("means", "counts")}


def class_means(vectors: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """The mean vector of each class and how many samples it is of; zeros where there are none."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    sums.index_add_(0, labels, vectors)
    return {"means": sums / counts.clamp(min=1).unsqueeze(1), "counts": counts}


def average(last: Mapping[str, Tensor], theirs: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each class's mean over those who have it, weighted by their samples; the last one where nobody has."""
    sums, counts = torch.zeros_like(last["means"]), torch.zeros_like(last["counts"])
    for one in theirs:
        own = one["counts"].to(counts.dtype).clamp(min=0)
        sums += own.unsqueeze(1) * one["means"]
        counts += own
    there = (counts > 0).unsqueeze(1)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return {
        "means": torch.where(there, means, last["means"]),
        "counts": torch.where(counts > 0, counts, last["counts"]),
    }
