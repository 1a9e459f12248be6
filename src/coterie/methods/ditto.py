"""Ditto: FedAvg, and beside it a personal model that is pulled towards the common one (Li et al. 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.methods.base import parameter
from coterie.methods.fedavg import FedAvg
from coterie.training.losses import proximal, pulled_to


@dataclass(frozen=True)
class Ditto(FedAvg):
    summary: ClassVar[str] = "FedAvg, and a personal model beside it that is pulled towards the common one"
    paper: ClassVar[str] = "Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, 2021"

    lam: float = parameter(
        1.0, "strength of the pull towards the common model; 0: none (the paper tunes it to the data)", least=0
    )
    personal_epochs: int = parameter(0, "epochs of the personal model in a round; 0: as many as train.epochs", least=0)

    async def setup(self, me: Peer) -> None:
        me.state["common"] = me.model.copy()

    async def learn(self, me: Peer) -> None:
        pull = pulled_to(self.own(me), self.lam)  # towards the common model as received
        await me.train(model=self.own(me))
        await me.train(proximal, given=pull, epochs=self.personal_epochs or me.settings.epochs)

    def own(self, me: Peer) -> Model:
        common: Model = me.state["common"]
        return common

    def take(self, me: Peer, common: Mapping[str, Tensor]) -> None:
        self.own(me).load(common)
