"""FedProto, FedDistill and FedGH: peers share only the mean of each class, so they may have any architecture.

The mean of its samples' features (FedProto, FedGH), or of their logits (FedDistill).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.jobs import Prediction
from coterie.core.loss import Batch, BoundNet, Given, Loss, negative_log_likelihood
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE, CLASS_MEANS
from coterie.methods.base import Method, parameter
from coterie.methods.components.heads import head_loss
from coterie.methods.components.prototypes import average, class_means, squared_distance


def fedproto_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + lam * the mean squared difference of features from the common mean of their class.

    `given` holds "means" (K x d_z), "known" (K: 1 where there is one, else 0) and "lam".
    """
    out = net(batch.x)
    entropy = negative_log_likelihood(out.logits, batch.y, batch.weights)
    return entropy + given["lam"] * squared_distance(out.features, batch.y, given)


def feddistill_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same with logits: `given["means"]` is K x K."""
    out = net(batch.x)
    entropy = negative_log_likelihood(out.logits, batch.y, batch.weights)
    return entropy + given["lam"] * squared_distance(out.logits, batch.y, given)


@dataclass(frozen=True)
class _ToCommonMeans(Method):
    """Pull each sample towards the common mean of its class; a server averages the peers' means."""

    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    loss: ClassVar[Loss]
    artifact: ClassVar[str]  # its name

    lam: float = parameter(1.0, "weight of the distance to the common means", least=0)

    @abstractmethod
    def vectors(self, prediction: Prediction) -> Tensor:
        """The part of a prediction that is averaged."""

    @abstractmethod
    def width(self, me: Peer) -> int:
        """The length of such a vector."""

    async def setup(self, me: Peer) -> None:
        """No class has a mean yet."""
        head = me.model["head.weight"]
        me.state["means"] = torch.zeros(len(head), self.width(me), dtype=head.dtype, device=head.device)
        me.state["counts"] = torch.zeros(len(head), dtype=torch.int64, device=head.device)

    async def round(self, me: Peer) -> None:
        means: Tensor = me.state["means"]
        known = (me.state["counts"] > 0).to(means.dtype)
        lam = torch.tensor(self.lam, device=means.device)
        await me.train(type(self).loss, given={"means": means, "known": known, "lam": lam})
        [prediction] = await me.predict()
        own = class_means(self.vectors(prediction), me.labels(), len(means))
        me.shelve(self.artifact, own, made_from=CLASS_MEANS)
        for common in (await me.fetch(me.server, "global", like=_averages(me))).values():
            me.state.update(common)

    async def serve(self, me: Peer) -> None:
        theirs = await me.fetch(me.peers, self.artifact, like=_averages(me))
        me.state.update(average(me, _averages(me), theirs))
        me.shelve("global", _averages(me), made_from=AVERAGE)


def _averages(me: Peer) -> dict[str, Tensor]:
    return {key: me.state[key] for key in ("means", "counts")}


@dataclass(frozen=True)
class FedProto(_ToCommonMeans):
    summary: ClassVar[str] = "any architectures: a server averages the classes' mean features, and peers align to them"
    paper: ClassVar[str] = "Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, 2021"
    same_features: ClassVar[bool] = True
    loss: ClassVar[Loss] = fedproto_loss
    artifact: ClassVar[str] = "prototypes"

    lam: float = parameter(
        1.0, "weight of the distance to prototypes (the paper: 1 for MNIST and FEMNIST, 0.1 for CIFAR-10)", least=0
    )

    def vectors(self, prediction: Prediction) -> Tensor:
        return prediction.features

    def width(self, me: Peer) -> int:
        return int(me.model["head.weight"].shape[1])


@dataclass(frozen=True)
class FedDistill(_ToCommonMeans):
    summary: ClassVar[str] = "any architectures: a server averages the classes' mean logits, and peers align to them"
    paper: ClassVar[str] = "Jeong et al., Federated Distillation and Augmentation under Non-IID Private Data, 2018"
    loss: ClassVar[Loss] = feddistill_loss
    artifact: ClassVar[str] = "logits"

    lam: float = parameter(1.0, "weight of the distance to the common logits of the class", least=0)

    def vectors(self, prediction: Prediction) -> Tensor:
        return prediction.logits

    def width(self, me: Peer) -> int:
        return len(me.model["head.weight"])


@dataclass(frozen=True)
class FedGH(Method):
    summary: ClassVar[str] = "any architectures: a server trains one head on the classes' mean features of all peers"
    paper: ClassVar[str] = "Yi et al., FedGH: Heterogeneous Federated Learning with Generalized Global Header, 2023"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True

    server_epochs: int = parameter(10, "epochs of the server over the means that it received in a round", least=1)
    server_lr: float = parameter(
        0.01, "the server's learning rate; batch size and momentum are those of [train]", above=0
    )

    async def round(self, me: Peer) -> None:
        await me.train()
        [prediction] = await me.predict()
        own = class_means(prediction.features, me.labels(), len(me.model["head.weight"]))
        me.shelve("prototypes", own, made_from=CLASS_MEANS)
        for head in (await me.fetch(me.server, "global", like=me.model.part("head"))).values():
            me.model.load(head)

    async def serve(self, me: Peer) -> None:
        weight = me.model["head.weight"]
        like = {"means": weight, "counts": torch.zeros(len(weight), dtype=torch.int64, device=weight.device)}
        theirs = (await me.fetch(me.peers, "prototypes", like=like)).values()
        rows = [(sent["means"][k], k) for sent in theirs for k in torch.nonzero(sent["counts"] > 0).flatten().tolist()]
        if rows:
            samples = torch.stack([mean for mean, _ in rows]), torch.tensor([k for _, k in rows], device=weight.device)
            await me.train(head_loss, on=samples, only="head", epochs=self.server_epochs, lr=self.server_lr)
        me.shelve("global", me.model.part("head"), made_from=AVERAGE)
