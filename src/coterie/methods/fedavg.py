"""FedAvg: a server averages everybody's models, weighted by their data (McMahan et al. 2017)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.methods.base import Method, need, parameter
from coterie.peer import Peer
from coterie.randomness import number, uniforms
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
        if self.takes_part(me, t):
            await self.learn(me)
            me.shelve("update", me.model, samples=me.samples)
        assert me.server is not None
        for model in (await me.fetch(me.server, "global", like=me.model)).values():
            me.model.load(model)

    async def learn(self, me: Peer) -> None:
        await me.train()

    async def serve(self, me: Peer, t: int) -> None:
        updates = await me.fetch(self.participants(me, t), "update", like=me.model, facts=["samples"])
        if updates:
            me.model.load(mean(list(updates.values()), [float(u.facts["samples"]) for u in updates.values()]))
        me.shelve("global", me.model)

    def takes_part(self, me: Peer, t: int) -> bool:
        return self.fraction == 1 or me.id in self.participants(me, t)

    def participants(self, me: Peer, t: int) -> Collection[int]:
        """Who trains in this round: drawn so that the server and the peers agree without a message.

        Everybody has a number of its own, and the lowest take part: so they still agree on most if one knows of a
        peer and another does not.
        """
        everyone = np.array(me.peers if me.id == me.server else [*me.peers, me.id])
        if self.fraction == 1 or not len(everyone):
            return set(everyone.tolist())
        [lots] = uniforms([number(me.seed, "participants", t)], int(everyone.max()) + 1)
        drawn = everyone[np.lexsort((everyone, lots[everyone]))]
        return set(drawn[: max(1, round(self.fraction * len(everyone)))].tolist())
