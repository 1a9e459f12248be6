"""FedProx: FedAvg whose peers are held near the common model while they train (Li et al. 2020)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.methods.base import need, parameter
from coterie.methods.fedavg import FedAvg
from coterie.training.losses import proximal, pulled_to


@dataclass(frozen=True)
class FedProx(FedAvg):
    summary: ClassVar[str] = "FedAvg with a pull back to the common model while peers train"
    paper: ClassVar[str] = "Li et al., Federated Optimization in Heterogeneous Networks, 2020"

    mu: float = parameter(0.1, "strength of the pull to the common model; 0 is FedAvg (the paper: from 0.001 to 1)")

    def check(self, peers: int) -> None:
        super().check(peers)
        need(0 <= self.mu < math.inf, "mu", f"must be at least 0, not {self.mu}")

    async def learn(self, me: Peer) -> None:
        # To the model as it came from the server; in the first round, to what everybody starts from.
        await me.train(proximal, given=pulled_to(me.model, self.mu))
