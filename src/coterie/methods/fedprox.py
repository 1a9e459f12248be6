"""FedProx: FedAvg with a proximal term that pulls peers towards the common model (Li et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.methods.base import parameter
from coterie.methods.fedavg import FedAvg
from coterie.training.losses import proximal, pulled_to


@dataclass(frozen=True)
class FedProx(FedAvg):
    summary: ClassVar[str] = "FedAvg with a pull towards the common model while peers train"
    paper: ClassVar[str] = "Li et al., Federated Optimization in Heterogeneous Networks, 2020"

    mu: float = parameter(
        0.1, "strength of the pull to the common model; 0 is FedAvg (the paper: from 0.001 to 1)", least=0
    )

    async def learn(self, me: Peer) -> None:
        # Towards the model as received from the server; in the first round, towards the common initial model.
        await me.train(proximal, given=pulled_to(me.model, self.mu))
