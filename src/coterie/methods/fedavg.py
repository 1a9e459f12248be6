"""FedAvg: a server averages everybody's models, weighted by their data (McMahan et al. 2017)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from coterie.methods.base import Method, need, parameter
from coterie.peer import Peer
from coterie.randomness import generator
from coterie.weights import mean


@dataclass(frozen=True)
class FedAvg(Method):
    summary: ClassVar[str] = "a server averages all models, weighted by their data"
    paper: ClassVar[str] = "McMahan et al., Communication-Efficient Learning of Deep Networks, 2017"
    server: ClassVar[bool] = True

    fraction: float = parameter(1.0, "share of the peers that train in a round")

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(0 < self.fraction <= 1, "fraction", f"must be above 0 and at most 1, not {self.fraction}")

    async def round(self, me: Peer, t: int) -> None:
        if me.id in self.participants(me, t):
            await me.train()
            me.shelve("update", me.model, samples=me.samples)
        assert me.server is not None
        for model in (await me.fetch(me.server, "global")).values():
            me.model.load(model)

    async def serve(self, me: Peer, t: int) -> None:
        updates = await me.fetch(self.participants(me, t), "update")
        if updates:
            me.model.load(mean(list(updates.values()), [float(u.facts["samples"]) for u in updates.values()]))
        me.shelve("global", me.model)

    def participants(self, me: Peer, t: int) -> Collection[int]:
        """Who trains in this round: drawn so that the server and the peers agree without a message."""
        count = len(me.peers) + (me.id != me.server)
        if self.fraction == 1:
            return range(count)
        drawn = generator(me.seed, "participants", t).permutation(count)
        return set(drawn[: max(1, round(self.fraction * count))].tolist())
