"""Averaging with neighbours that are drawn at random, fixed, or known to be of the same cluster: PANM's baselines."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.task import TASKS
from coterie.methods.base import Method, need_others, parameter

WORTH_A_WORKER = 50_000  # parameters: models of this size are averaged in parallel, on all cores


async def average_with(me: Peer, neighbours: Sequence[int]) -> None:
    """Fetch these peers' models and average them with the peer's own, equally; absent peers do not count."""
    await average(me, await me.fetch(neighbours, "model", like=me.model))


async def average(me: Peer, models: Mapping[int, Artifact]) -> None:
    """Average these peers' models with the peer's own, equally."""
    merged = {me.id: me.model, **models}
    if me.model.layout.size >= WORTH_A_WORKER:
        await me.compute(me.average, merged, into=me.model)
    else:
        me.average(merged, into=me.model)
    me.note(weights=dict.fromkeys([me.id, *models], 1 / (1 + len(models))))


def neighbourhood(me: Peer) -> int:
    """The size of the peer's neighbourhood, itself included. In a [graph] by its edges, absent neighbours included."""
    return 1 + len(me.peers if me.links is None else me.links)


def metropolis(me: Peer, sizes: Mapping[int, float]) -> dict[int, float]:
    """Metropolis weights of the peer itself and of these neighbours, given the sizes of their neighbourhoods.

    They are symmetric in any graph, so the matrix of all peers' weights is doubly stochastic. The share of a neighbour
    that is not among these goes to the peer itself.
    """
    taken = {j: 1 / max(neighbourhood(me), size) for j, size in sizes.items()}
    return {me.id: 1 - math.fsum(taken.values()), **taken}


@dataclass(frozen=True)
class _Neighbours(Method):
    """Train, share the model, average with k neighbours."""

    tasks: ClassVar[tuple[str, ...]] = TASKS

    k: int = parameter(
        5,
        "neighbours averaged with in a round, from 1 to peers - 1; in a [graph], at most the peer's neighbours",
        common="neighbours",
        least=1,
    )

    def check(self, peers: int) -> None:
        need_others(self.k, "k", peers)

    @abstractmethod
    def neighbours(self, me: Peer) -> Sequence[int]: ...

    async def round(self, me: Peer) -> None:
        before = me.reference()
        await me.train()
        me.shelve("model", me.model, reference=before)
        chosen = self.neighbours(me)
        me.note(neighbours=chosen)
        await average_with(me, chosen)


@dataclass(frozen=True)
class Gossip(_Neighbours):
    summary: ClassVar[str] = "average with k peers drawn anew every round (Random in PANM's tables)"

    def neighbours(self, me: Peer) -> Sequence[int]:
        return me.sample(self.k)


@dataclass(frozen=True)
class Fixed(_Neighbours):
    summary: ClassVar[str] = "average with k peers drawn once (FixTopology in PANM's tables)"

    async def setup(self, me: Peer) -> None:
        me.state["neighbours"] = me.sample(self.k)

    def neighbours(self, me: Peer) -> Sequence[int]:
        chosen: list[int] = me.state["neighbours"]
        return chosen


@dataclass(frozen=True)
class Oracle(_Neighbours):
    summary: ClassVar[str] = "average with k random peers of the same true cluster: the value of knowing the clusters"

    needs_truth: ClassVar[bool] = True

    def neighbours(self, me: Peer) -> Sequence[int]:
        cluster = me.truth[me.id]
        return me.sample(self.k, [j for j in me.peers if me.truth[j] == cluster])
