"""FedRoD: a common representation with a balanced head, and a private head beside it (Chen and Chao 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood
from coterie.core.net import Output, Seen
from coterie.core.peer import Peer
from coterie.core.task import CLASSIFICATION
from coterie.methods.private_heads import WithOwnHead
from coterie.models.parts import Part, Site


def _private(site: Site) -> nn.Linear:
    return nn.Linear(site.net.d_z, site.classes)


def _add_logits(private: nn.Linear, seen: Seen, out: Output) -> Output:
    return out._replace(logits=out.logits + private(seen.head_input)).plus(common=out.logits)


PRIVATE = Part("private", _private, _add_logits, predicts=True)  # a second head: its logits are added to the first's


def fedrod_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Balanced softmax of the common head, and cross entropy of both heads' sum, which trains the private one.

    `given` holds "prior": for each class, the logarithm of the peer's number of samples.
    """
    out = net(batch.x)
    common: Tensor = out.of("common")
    private = F.linear(out.features.detach(), net.parameters["private.weight"], net.parameters["private.bias"])
    balanced = negative_log_likelihood(common + given["prior"], batch.y)
    return balanced + negative_log_likelihood(common.detach() + private, batch.y)


def private_head_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """Cross entropy of both heads' sum, on features: for training the private head alone."""
    common, private = (
        F.linear(batch.x, net.parameters[f"{head}.weight"], net.parameters[f"{head}.bias"])
        for head in ("head", "private")
    )
    return negative_log_likelihood(common + private, batch.y)


@dataclass(frozen=True)
class FedRoD(WithOwnHead):
    summary: ClassVar[str] = "a common model with a balanced loss; the logits of a private head are added to its own"
    paper: ClassVar[str] = "Chen and Chao, On Bridging Generic and Personalized Federated Learning, 2022"
    shared: ClassVar[tuple[str, ...]] = ("backbone", "head")
    parts: ClassVar[tuple[str | Part, ...]] = (PRIVATE,)
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)

    async def train_head(self, me: Peer, on: tuple[Tensor, Tensor]) -> None:
        await me.train(private_head_loss, on=on, only="private", epochs=self.head_epochs)

    async def train(self, me: Peer) -> None:
        counts = torch.bincount(me.labels(), minlength=len(me.model["head.weight"]))
        await me.train(fedrod_loss, given={"prior": counts.to(me.model.vector.dtype).log()})
