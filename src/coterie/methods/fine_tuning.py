"""FedAvg-FT, and what it has in common with FedBABU: a common model, which each peer fine-tunes in the end."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.methods.base import need, parameter
from coterie.methods.fedavg import FedAvg

TUNED = {"model": None, "head": "head"}  # what is tuned, as `me.train` calls it


@dataclass(frozen=True)
class FineTuned(FedAvg):
    """A peer is measured with its tuned model, and goes on with the common one."""

    tune: int = parameter(5, "epochs of fine-tuning")
    tuned: str = parameter("model", "what is fine-tuned: model | head")
    tune_every: int = parameter(0, "fine-tune after every so many rounds too, for a curve; 0: after the last alone")

    def check(self, peers: int) -> None:
        super().check(peers)
        need(self.tune >= 1, "tune", f"must be at least 1, not {self.tune}")
        need(self.tuned in TUNED, "tuned", f"must be one of {', '.join(TUNED)}, not '{self.tuned}'")
        need(self.tune_every >= 0, "tune_every", f"must be at least 0, not {self.tune_every}")

    async def round(self, me: Peer, t: int) -> None:
        if "untuned" in me.state:
            me.model.load(me.state.pop("untuned"))
        await super().round(me, t)
        if t == me.rounds or (self.tune_every and t % self.tune_every == 0):
            me.state["untuned"] = me.model.copy()
            await me.train(only=TUNED[self.tuned], epochs=self.tune)


@dataclass(frozen=True)
class FedAvgFT(FineTuned):
    title: ClassVar[str] = "FedAvg-FT"
    summary: ClassVar[str] = "FedAvg; in the end each peer fine-tunes the common model on its own data"
    paper: ClassVar[str] = "Cheng et al., Fine-tuning in Federated Learning, 2021"
