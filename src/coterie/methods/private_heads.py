"""FedPer, FedRep and FedBABU: a server averages the representation alone, and heads stay private."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coterie.core.peer import Peer
from coterie.methods.base import need, parameter
from coterie.methods.class_means import head_loss
from coterie.methods.fedavg import FedAvg
from coterie.methods.fine_tuning import FineTuned

FIT = ("before", "after")


@dataclass(frozen=True)
class WithOwnHead(FedAvg):
    """What methods share whose peers have a head of their own: how long it is fitted alone, and when.

    Comparing such methods is fair only if all fit their heads for as long, so all of them have this budget.
    """

    head_epochs: int = parameter(0, "epochs in a round on one's own head alone (the paper: none)")
    fit_heads: str = parameter(
        "before", "when these are: before the peer trains | after the average has come, and once at the start"
    )

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.head_epochs >= 0, "head_epochs", f"must be at least 0, not {self.head_epochs}")
        need(self.fit_heads in FIT, "fit_heads", f"must be one of {', '.join(FIT)}, not '{self.fit_heads}'")

    async def setup(self, me: Peer) -> None:
        if self.fit_heads == "after" and me.id != me.server:
            await self.fit_head(me)

    async def round(self, me: Peer, t: int) -> None:
        await super().round(me, t)
        if self.fit_heads == "after":
            await self.fit_head(me)

    async def learn(self, me: Peer) -> None:
        if self.fit_heads == "before":
            await self.fit_head(me)
        await self.train(me)

    async def fit_head(self, me: Peer) -> None:
        """Train the head alone, on features that are computed once: the representation stays as it is."""
        if self.head_epochs:
            [said] = await me.predict()
            await self.train_head(me, (said.features, me.labels()))

    async def train_head(self, me: Peer, on: tuple[Tensor, Tensor]) -> None:
        await me.train(head_loss, on=on, only="head", epochs=self.head_epochs)

    async def train(self, me: Peer) -> None:
        """The round's training, with the head as it is by then."""
        await me.train()


@dataclass(frozen=True)
class FedPer(WithOwnHead):
    summary: ClassVar[str] = "a server averages the representation of each architecture; heads stay private"
    paper: ClassVar[str] = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)


@dataclass(frozen=True)
class FedRep(FedPer):
    summary: ClassVar[str] = "FedPer that first fits the head alone, then the representation alone"
    paper: ClassVar[str] = "Collins et al., Exploiting Shared Representations for Personalized FL, 2021"

    head_epochs: int = parameter(10, "epochs in a round on one's own head alone (the paper: 10)")

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.head_epochs >= 1, "head_epochs", f"must be at least 1, not {self.head_epochs}")

    async def train(self, me: Peer) -> None:
        await me.train(only="backbone")


@dataclass(frozen=True)
class FedBABU(FineTuned):
    summary: ClassVar[str] = "the representation learns under a head that nobody trains; in the end all fine-tune"
    paper: ClassVar[str] = "Oh et al., FedBABU: Toward Enhanced Representation for Federated Image Classification, 2022"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)

    async def learn(self, me: Peer) -> None:
        await me.train(only="backbone")  # the head is still what every peer of this architecture began with
