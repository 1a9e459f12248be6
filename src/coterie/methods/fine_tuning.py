"""FedAvg-FT, and its common base with FedBABU: each peer fine-tunes the common model at the end."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.methods.base import parameter
from coterie.methods.fedavg import FedAvg

TUNED = {"model": None, "head": "head"}  # by the parameter's value: the argument `only` of `me.train`


@dataclass(frozen=True)
class FineTuned(FedAvg):
    """A peer is evaluated with its tuned model, and continues with the common one."""

    tune: int = parameter(5, "epochs of fine-tuning", least=1)
    tuned: str = parameter("model", "what is fine-tuned", choices=tuple(TUNED))
    tune_every: int = parameter(
        0, "also fine-tune after every this many rounds, for a curve; 0: only after the last", least=0
    )

    async def round(self, me: Peer) -> None:
        if "untuned" in me.state:
            me.model.load(me.state.pop("untuned"))
        await super().round(me)
        if me.round == me.rounds or (self.tune_every and me.round % self.tune_every == 0):
            me.state["untuned"] = me.model.copy()
            await me.train(only=TUNED[self.tuned], epochs=self.tune)


@dataclass(frozen=True)
class FedAvgFT(FineTuned):
    title: ClassVar[str] = "FedAvg-FT"
    summary: ClassVar[str] = "FedAvg; at the end each peer fine-tunes the common model on its own data"
    paper: ClassVar[str] = "Cheng et al., Fine-tuning in Federated Learning, 2021"
