"""FedPer, FedRep and FedBABU: a server averages the representation alone, and heads stay private."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.methods.base import need, parameter
from coterie.methods.class_means import head_loss
from coterie.methods.fedavg import FedAvg
from coterie.methods.fine_tuning import FineTuned
from coterie.peer import Peer


@dataclass(frozen=True)
class FedPer(FedAvg):
    summary: ClassVar[str] = "a server averages the representation of each architecture; heads stay private"
    paper: ClassVar[str] = "Arivazhagan et al., Federated Learning with Personalization Layers, 2019"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)


@dataclass(frozen=True)
class FedRep(FedPer):
    summary: ClassVar[str] = "FedPer that first fits the head alone, then the representation alone"
    paper: ClassVar[str] = "Collins et al., Exploiting Shared Representations for Personalized FL, 2021"

    head_epochs: int = parameter(10, "epochs on the head before the representation is trained (the paper: 10)")

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.head_epochs >= 1, "head_epochs", f"must be at least 1, not {self.head_epochs}")

    async def learn(self, me: Peer) -> None:
        [said] = await me.predict()  # once: the representation stays as it is
        await me.train(head_loss, on=(said.features, me.labels()), only="head", epochs=self.head_epochs)
        await me.train(only="backbone")


@dataclass(frozen=True)
class FedBABU(FineTuned):
    summary: ClassVar[str] = "the representation learns under a head that nobody trains; in the end all fine-tune"
    paper: ClassVar[str] = "Oh et al., FedBABU: Toward Enhanced Representation for Federated Image Classification, 2022"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)

    async def learn(self, me: Peer) -> None:
        await me.train(only="backbone")  # the head is still what every peer of this architecture began with
