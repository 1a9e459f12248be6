"""FedPer, FedRep and FedBABU: a server averages the representation alone, and heads stay private."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.base import parameter
from coterie.methods.components.heads import head_loss
from coterie.methods.fedavg import FedAvg
from coterie.methods.fine_tuning import FineTuned

FIT = {"before": "the peer trains", "after": "the average has been received, and once at the start"}


@dataclass(frozen=True)
class WithOwnHead(FedAvg):
    """The base of methods with private heads: how long a head is trained alone, and when.

    A fair comparison of such methods gives all heads the same number of epochs, so all of them have these parameters.
    """

    head_epochs: int = parameter(0, "epochs in a round on the private head alone (the paper: none)", least=0)
    fit_heads: str = parameter("before", "when they run", choices=FIT)

    async def setup(self, me: Peer) -> None:
        if self.fit_heads == "after" and me.id != me.server:
            await self.fit_head(me)

    async def round(self, me: Peer) -> None:
        await super().round(me)
        if self.fit_heads == "after":
            await self.fit_head(me)

    async def learn(self, me: Peer) -> None:
        if self.fit_heads == "before":
            await self.fit_head(me)
        await self.train(me)

    async def fit_head(self, me: Peer) -> None:
        """Train the head alone, on features that are computed once, as the representation is fixed."""
        if self.head_epochs:
            [prediction] = await me.predict()
            await self.train_head(me, (prediction.features, me.labels()))

    async def train_head(self, me: Peer, on: tuple[Tensor, Tensor]) -> None:
        await me.train(head_loss, on=on, only="head", epochs=self.head_epochs)

    async def train(self, me: Peer) -> None:
        """The training of the round."""
        await me.train()


@dataclass(frozen=True)
class FedPer(WithOwnHead):
    summary: ClassVar[str] = "a server averages the representation of each architecture; heads stay private"
    paper: ClassVar[str] = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)


@dataclass(frozen=True)
class FedRep(FedPer):
    summary: ClassVar[str] = "FedPer that first trains the head alone, then the representation alone"
    paper: ClassVar[str] = "Collins et al., Exploiting Shared Representations for Personalized FL, 2021"

    head_epochs: int = parameter(10, "epochs in a round on the private head alone (the paper: 10)", least=1)

    async def train(self, me: Peer) -> None:
        await me.train(only="backbone")


@dataclass(frozen=True)
class FedBABU(FineTuned):
    summary: ClassVar[str] = "the representation trains under a fixed initial head; at the end each peer fine-tunes"
    paper: ClassVar[str] = "Oh et al., FedBABU: Toward Enhanced Representation for Federated Image Classification, 2022"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)

    async def learn(self, me: Peer) -> None:
        await me.train(only="backbone")  # the head is still the initial one, equal at all peers of this architecture
