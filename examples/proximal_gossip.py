"""Gossip with a proximal loss: training is pulled towards the average that the peer starts the round from.

coterie run panm-digits method.name=examples/proximal_gossip.py:ProximalGossip
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from coterie import Method, Peer, parameter, proximal
from coterie.methods.base import need_others


@dataclass(frozen=True)
class ProximalGossip(Method):
    summary: ClassVar[str] = "gossip, with a pull towards the last average while peers train"

    k: int = parameter(3, "neighbours to average with in a round", common="neighbours")
    mu: float = parameter(0.1, "strength of the pull towards the last average; 0 is plain gossip", least=0)

    def check(self, peers: int) -> None:
        need_others(self.k, "k", peers)

    async def round(self, me: Peer) -> None:
        start = me.model.copy()
        reference = {f"ref.{slot.name}": start[slot.name] for slot in start.layout.parameters}
        await me.train(proximal, given={**reference, "mu": torch.tensor(self.mu)})
        me.shelve("model", me.model)
        neighbours = me.sample(self.k)
        others = await me.fetch(neighbours, "model")
        me.model.load(me.average({me.id: me.model, **others}))
        shares = dict.fromkeys([me.id, *others], 1 / (1 + len(others)))
        me.note(neighbours=neighbours, weights=shares)
