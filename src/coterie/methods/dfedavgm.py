"""DFedAvgM: local SGD with momentum, then averaging over a fixed ring or the [graph] (Sun et al. 2022)."""

import math
from bisect import bisect
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.core.task import TASKS
from coterie.methods.base import Method, need, parameter
from coterie.methods.gossip import metropolis, neighbourhood


@dataclass(frozen=True)
class DFedAvgM(Method):
    summary: ClassVar[str] = "average with the neighbours in a fixed ring, by a doubly stochastic matrix"
    paper: ClassVar[str] = "Sun et al., Decentralized Federated Averaging, 2022"
    tasks: ClassVar[tuple[str, ...]] = TASKS

    k: int = parameter(
        2,
        "neighbours in the ring, half on either side (odd: and the opposite peer); 0: all peers. With a [graph], the "
        "graph replaces the ring and `k` has no effect",
        common="neighbours",
        least=0,
    )

    def check(self, peers: int) -> None:
        need(self.k < peers, "k", f"must be from 0 to {peers - 1} with {peers} peers, not {self.k}")
        need(self.k != 1 or peers == 2, "k", "= 1 makes pairs that never exchange with each other: use 2")
        even = self.k % 2 == 0 or peers % 2 == 0
        need(even, "k", f"must be even with {peers} peers, not {self.k}: in an odd ring, no peer is opposite")

    async def round(self, me: Peer) -> None:
        before = me.reference()
        await me.train()
        if me.links is None:
            near = ring_neighbours(me, self.k)
            me.shelve("model", me.model, reference=before)
            others = await me.fetch(near, "model", like=me.model)
            # In a ring, all neighbourhoods have the same size. An absent neighbour's share goes to the peer itself.
            taken = dict.fromkeys(others, 1 / (1 + len(near)))
            shares = {me.id: 1 - math.fsum(taken.values()), **taken}
        else:
            near = list(me.peers)
            me.shelve("model", me.model, reference=before, near=neighbourhood(me))
            others = await me.fetch(near, "model", like=me.model, facts=["near"])
            shares = metropolis(me, {j: float(model.facts["near"]) for j, model in others.items()})
        me.average({me.id: me.model, **others}, shares, into=me.model)
        me.note(neighbours=near, weights=shares)


def ring_neighbours(me: Peer, k: int) -> list[int]:
    """The neighbours in the ring of all present peers, ordered by their numbers."""
    position = bisect(me.peers, me.id)
    near = neighbours(position, len(me.peers) + 1, min(k, len(me.peers)))
    return [me.peers[at - (at > position)] for at in near]


def neighbours(peer: int, peers: int, k: int) -> list[int]:
    """The peers within k/2 steps on a ring of this many peers; with an odd k also the opposite one; with k = 0 all."""
    steps = [*range(1, k // 2 + 1), *([peers // 2] if k % 2 else [])] if k else range(1, peers)
    return sorted({(peer + sign * step) % peers for step in steps for sign in (1, -1)} - {peer})
