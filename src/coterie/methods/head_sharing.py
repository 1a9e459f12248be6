"""FedSim, LG-FedAvg and FedClassAvg: a server averages only the heads, so backbones may be of any architecture."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.artifact import sample_counts
from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE
from coterie.core.task import CLASSIFICATION, TASKS
from coterie.methods.base import Method, parameter
from coterie.training.losses import supervised_contrastive


@dataclass(frozen=True)
class FedSim(Method):
    summary: ClassVar[str] = "any architectures: a server averages the heads, weighted by data; backbones stay local"
    paper: ClassVar[str] = "Pillutla et al., Federated Learning with Partial Model Personalization, 2022"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS

    async def round(self, me: Peer) -> None:
        before = me.reference("head")
        await self.learn(me)
        me.shelve("head", me.model.part("head"), reference=before, samples=me.samples)
        for head in (await me.fetch(me.server, "global", like=me.model.part("head"))).values():
            me.model.load(head)

    async def learn(self, me: Peer) -> None:
        await me.train()

    async def serve(self, me: Peer) -> None:
        """Only the head of the server's model is used: peers have backbones of different architectures."""
        heads = await me.fetch(me.peers, "head", like=me.model.part("head"), facts=["samples"])
        if heads:
            me.model.load(me.average(heads, sample_counts(heads)))
        me.shelve("global", me.model.part("head"), made_from=AVERAGE)


@dataclass(frozen=True)
class LGFedAvg(FedSim):
    """The same rule as FedSim, under the name that FedPAE uses for this baseline."""

    title: ClassVar[str] = "LG-FedAvg"
    summary: ClassVar[str] = "any architectures: backbones stay local, a server averages the heads (as FedSim)"
    paper: ClassVar[str] = "Liang et al., Think Locally, Act Globally, 2020"


def classavg_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy (first view) + supervised contrast (both) + rho/2 ||head - reference||^2.

    `given` holds the reference as "ref.head.<name>", and "rho" and "tau".
    """
    x, y = batch.stacked()
    out = net(x)
    head = [name for name in net.parameters if name.startswith("head.")]
    distance = sum((net.parameters[name] - given[f"ref.{name}"]).square().sum() for name in head)
    return (
        negative_log_likelihood(out.logits[: len(batch.y)], batch.y, batch.weights)
        + supervised_contrastive(out.features, y, given["tau"])
        + given["rho"] / 2 * distance
    )


@dataclass(frozen=True)
class FedClassAvg(FedSim):
    summary: ClassVar[str] = "FedSim with a contrastive loss, and a pull of the head towards the average"
    paper: ClassVar[str] = "Jang et al., FedClassAvg: Local Representation Learning, 2022"
    views: ClassVar[int] = 2
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)

    rho: float = parameter(
        0.1, "strength of the pull of the head towards the average (the authors' example: 0.1)", least=0
    )
    tau: float = parameter(
        0.5,
        "temperature of the contrastive loss (the authors' code: 100, of dot products)",
        common="temperature of contrast",
        above=0,
    )

    async def learn(self, me: Peer) -> None:
        # The head at the start of a round is the last average; in the first round, the peer's own.
        reference = {f"ref.{name}": tensor for name, tensor in me.model.part("head").items()}
        device = me.model.vector.device
        strengths = {"rho": torch.tensor(self.rho, device=device), "tau": torch.tensor(self.tau, device=device)}
        await me.train(classavg_loss, views=2, given={**reference, **strengths})
