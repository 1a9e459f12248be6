"""FedAvg: a server averages everybody's models, weighted by their data (McMahan et al. 2017).

Where peers have several architectures, each is averaged apart: as many federations as there are architectures, with
one server. So it is for all that build on FedAvg, and that share the whole model or one part of it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.model_registry import labelled
from coterie.core.peer import Peer
from coterie.core.randomness import number, uniforms
from coterie.core.weights import Weights, mean
from coterie.methods.base import Method, need, parameter


@dataclass(frozen=True)
class FedAvg(Method):
    summary: ClassVar[str] = "a server averages all models of an architecture, weighted by their data"
    paper: ClassVar[str] = "McMahan et al., Communication-Efficient Learning of Deep Networks, 2017"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    grouped: ClassVar[bool] = True

    fraction: float = parameter(
        1.0, "share of the peers that train in a round, above 0 and at most 1", common="participation"
    )

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(0 < self.fraction <= 1, "fraction", f"must be above 0 and at most 1, not {self.fraction}")

    async def round(self, me: Peer, t: int) -> None:
        if self.takes_part(me, t):
            await self.learn(me)
            me.shelve("update", self.own(me), samples=me.samples, kind=labelled(me.kind))
        await self.follow(me)

    async def learn(self, me: Peer) -> None:
        await me.train()

    def own(self, me: Peer) -> Weights:
        """What a peer has of what is shared."""
        return me.model.part(*self.shared) if self.shared else me.model

    async def follow(self, me: Peer) -> bool:
        """Take over the average of one's architecture, if there is one."""
        assert me.server is not None
        found = await me.fetch(me.server, common_of(me.kind), like=self.own(me))
        for common in found.values():
            self.take(me, common)
        return bool(found)

    def take(self, me: Peer, common: Mapping[str, Tensor]) -> None:
        me.model.load(common)

    async def serve(self, me: Peer, t: int) -> None:
        updates = await me.fetch(self.participants(me, t), "update", facts=["samples"])
        averages: dict[str, Weights] = me.state.setdefault("averages", {})
        for kind, group in by_kind(me, updates, self.shared).items():
            averages[kind] = mean(group, [float(update.facts["samples"]) for update in group])
        self.publish(me)

    def publish(self, me: Peer) -> None:
        for kind, average in sorted(me.state.get("averages", {}).items()):
            me.shelve(common_of(kind), average)

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


def common_of(kind: str) -> str:
    """The artifact that holds the average of one architecture."""
    return f"global.{labelled(kind)}"


def by_kind(me: Peer, updates: Mapping[int, Artifact], parts: Sequence[str] = ()) -> dict[str, list[Artifact]]:
    """What peers sent, by the architecture that they say it is of; what is not like that is declined."""
    assert me.kinds is not None
    said = {j: str(update.facts.get("kind", "")) for j, update in updates.items()}
    blanks = {kind: me.kinds.blank(kind, parts) for kind in set(said.values())}
    groups: dict[str, list[Artifact]] = defaultdict(list)
    wrong = {}
    for j, update in updates.items():
        blank = blanks[said[j]]
        if reason := blank if isinstance(blank, str) else update.misfit(blank, ()):
            wrong[j] = reason
        else:
            groups[said[j]].append(update)
    me.decline(wrong)
    return groups
