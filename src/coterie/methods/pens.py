"""PENS: gossip with the peers whose models fit the peer's own data (Onoszko et al. 2021), as a baseline of PANM."""

import math
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.core.task import TASKS
from coterie.methods.base import Method, need, need_others, parameter
from coterie.methods.gossip import average, average_with

CHANCE, PANM = "chance", "panm"
EXPECTED = {
    CHANCE: "t1 * k over the number of peers that can be met",
    PANM: "t1 * (l + k) over the number of peers, rounded up, as in PANM's paper",
}


@dataclass(frozen=True)
class PENS(Method):
    summary: ClassVar[str] = "average with the k of l random peers whose models have the lowest loss on own data"
    paper: ClassVar[str] = "Onoszko et al., Decentralized Federated Learning of Deep Neural Networks, 2021"
    tasks: ClassVar[tuple[str, ...]] = TASKS
    unforeseen: ClassVar[str] = "how many neighbours peers keep after stage one: with fewer than k, they exchange less"

    l: int = parameter(  # noqa: E741 (the paper's name)
        10,
        "peers tried in a round of stage one, below `peers`; in a [graph], at most the peer's neighbours",
        common="candidates",
        least=1,
    )
    k: int = parameter(5, "peers averaged with, at most l", common="neighbours", least=1)
    t1: int = parameter(100, "rounds of stage one", common="rounds of stage one", least=0)
    often: float = parameter(
        0.0, "chosen more often than this makes a permanent neighbour; 0: more than `expected`", least=0
    )
    expected: str = parameter(
        "chance",
        "often = 0: the number of times that a peer is expected to be chosen",
        choices=EXPECTED,
    )

    def check(self, peers: int) -> None:
        need_others(self.l, "l", peers)
        need(self.k <= self.l, "k", f"must be from 1 to l = {self.l}, not {self.k}")

    async def setup(self, me: Peer) -> None:
        me.state["chosen"] = {}

    async def round(self, me: Peer) -> None:
        before = me.reference()
        await me.train()
        me.shelve("model", me.model, reference=before)
        if me.round <= self.t1:
            await self.try_out(me)
        else:
            neighbours = self.permanent(me)
            me.note(neighbours=neighbours)
            await average_with(me, me.sample(self.k, neighbours))

    async def try_out(self, me: Peer) -> None:
        models = await me.fetch(me.sample(self.l), "model", like=me.model)
        scores = dict(zip(models, await me.evaluate(models.values()), strict=True))
        best = sorted(scores, key=lambda j: scores[j].rank)[: self.k]
        for j in best:
            me.state["chosen"][j] = me.state["chosen"].get(j, 0) + 1
        me.note(neighbours=sorted(best))
        await average(me, {j: models[j] for j in sorted(best)})

    def threshold(self, others: int) -> float:
        """How often a peer must have been chosen, if this many can be met."""
        if self.often:
            return self.often
        if self.expected == CHANCE:
            return self.t1 * self.k / max(others, 1)  # in a network run, all others may be gone
        return math.ceil(self.t1 * (self.l + self.k) / (others + 1))

    def permanent(self, me: Peer) -> list[int]:
        """The peers chosen more often than the threshold in stage one; if there are none, the k most often chosen."""
        chosen: dict[int, int] = me.state["chosen"]
        kept = sorted(j for j, times in chosen.items() if times > self.threshold(len(me.peers)))
        return kept or sorted(sorted(chosen, key=lambda j: (-chosen[j], j))[: self.k])
