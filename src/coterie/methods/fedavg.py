"""FedAvg: a server averages all peers' models, weighted by their data (McMahan et al. 2017).

If peers have several architectures, each is averaged separately: one federation for each architecture, with one server.
The same holds for all methods that build on FedAvg, whether they share the whole model or a part of it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from coterie.core.artifact import Artifact, sample_counts
from coterie.core.model_registry import labelled
from coterie.core.peer import Peer
from coterie.core.randomness import number, uniforms
from coterie.core.release import AVERAGE
from coterie.core.task import TASKS
from coterie.core.weights import Weights
from coterie.methods.base import Method, parameter


@dataclass(frozen=True)
class FedAvg(Method):
    summary: ClassVar[str] = "a server averages all models of an architecture, weighted by their data"
    paper: ClassVar[str] = "McMahan et al., Communication-Efficient Learning of Deep Networks, 2017"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    grouped: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS

    fraction: float = parameter(
        1.0, "share of the peers that train in a round", common="participation", above=0, most=1
    )

    async def round(self, me: Peer) -> None:
        if self.takes_part(me):
            before = self.reference(me)
            await self.learn(me)
            me.shelve("update", self.own(me), reference=before, samples=me.samples, kind=labelled(me.kind))
        await self.follow(me)

    async def learn(self, me: Peer) -> None:
        await me.train()

    def own(self, me: Peer) -> Weights:
        """The shared part of a peer's model."""
        return me.model.part(*self.shared) if self.shared else me.model

    def reference(self, me: Peer) -> Weights | None:
        """The shared part before training, if a release step may read it."""
        return self.own(me).copy() if me.release_steps else None

    async def follow(self, me: Peer) -> bool:
        """Load the average of the peer's architecture; False if there is none."""
        averages = await me.fetch(me.server, common_of(me.kind), like=self.own(me))
        for common in averages.values():
            self.take(me, common)
        return bool(averages)

    def take(self, me: Peer, common: Mapping[str, Tensor]) -> None:
        me.model.load(common)

    async def serve(self, me: Peer) -> None:
        updates = await me.fetch(self.participants(me), "update", facts=["samples"])
        averages: dict[str, Weights] = me.state.setdefault("averages", {})
        for kind, group in by_kind(me, updates, self.shared).items():
            averages[kind] = me.average(group, sample_counts(group))
        self.publish(me)

    def publish(self, me: Peer) -> None:
        for kind, average in sorted(me.state.get("averages", {}).items()):
            me.shelve(common_of(kind), average, made_from=AVERAGE)

    def takes_part(self, me: Peer) -> bool:
        return self.fraction == 1 or me.id in self.participants(me)

    def participants(self, me: Peer) -> Collection[int]:
        """The peers that train in this round, drawn so that the server and the peers agree without a message.

        Each peer draws a number from the run's seed, and the lowest take part. So peers still agree on most of them if
        one does not know of all others.
        """
        everyone = np.array(me.peers if me.id == me.server else [*me.peers, me.id])
        if self.fraction == 1 or not len(everyone):
            return set(everyone.tolist())
        [lots] = uniforms([number(me.seed, "participants", me.round)], int(everyone.max()) + 1)
        drawn = everyone[np.lexsort((everyone, lots[everyone]))]
        return set(drawn[: max(1, round(self.fraction * len(everyone)))].tolist())


def common_of(kind: str) -> str:
    """The name of the artifact that holds the average of one architecture."""
    return f"global.{labelled(kind)}"


def by_kind(me: Peer, updates: Mapping[int, Artifact], parts: Sequence[str] = ()) -> dict[str, dict[int, Artifact]]:
    """Updates by the architecture that they claim to be of; those that do not fit it are declined."""
    claimed = {j: str(update.facts.get("kind", "")) for j, update in updates.items()}
    blanks = {kind: me.kinds.blank(kind, parts) for kind in set(claimed.values())}
    groups: dict[str, dict[int, Artifact]] = defaultdict(dict)
    wrong = {}
    for j, update in updates.items():
        blank = blanks[claimed[j]]
        if reason := blank if isinstance(blank, str) else update.misfit(blank, ()):
            wrong[j] = reason
        else:
            groups[claimed[j]][j] = update
    me.decline(wrong)
    return groups
