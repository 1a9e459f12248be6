"""Averaging with neighbours who are drawn at random, fixed, or known to be of one's kind: PANM's baselines."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.weights import mean_into
from coterie.methods.base import Method, need_others, parameter

WORTH_A_WORKER = 50_000  # numbers: models of this size are averaged side by side, on all cores


async def average_with(me: Peer, neighbours: Sequence[int]) -> None:
    """Fetch these peers' models and average them with one's own, equally; who is absent does not count."""
    await average(me, await me.fetch(neighbours, "model", like=me.model))


async def average(me: Peer, models: Mapping[int, Artifact]) -> None:
    """Average these peers' models with one's own, equally."""
    others = list(models.values())
    if me.model.layout.size >= WORTH_A_WORKER:
        await me.compute(mean_into, me.model, others)
    else:
        mean_into(me.model, others)
    me.note(weights=dict.fromkeys([me.id, *models], 1 / (1 + len(models))))


def neighbourhood(me: Peer) -> int:
    """How many are in one's neighbourhood, oneself included. In a [graph] by its edges, also while somebody is away."""
    return 1 + len(me.peers if me.links is None else me.links)


def metropolis(me: Peer, sizes: Mapping[int, float]) -> dict[int, float]:
    """Metropolis' weights of oneself and of these neighbours, of each of whom the size of its neighbourhood is given.

    They are symmetric whatever the graph, so that together they are doubly stochastic. The share of a neighbour that is
    not among these is one's own.
    """
    taken = {j: 1 / max(neighbourhood(me), size) for j, size in sizes.items()}
    return {me.id: 1 - math.fsum(taken.values()), **taken}


@dataclass(frozen=True)
class _Neighbours(Method):
    """Train, share the model, average with k neighbours."""

    k: int = parameter(
        5,
        "neighbours averaged with in a round, from 1 to peers - 1; in a [graph], all next to one where they are fewer",
        common="neighbours",
    )

    def check(self, peers: int) -> None:
        need_others(self.k, "k", peers)

    @abstractmethod
    def neighbours(self, me: Peer) -> Sequence[int]: ...

    async def round(self, me: Peer, t: int) -> None:  # noqa: ARG002
        await me.train()
        me.shelve("model", me.model)
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
    summary: ClassVar[str] = "average with k peers of one's true cluster, drawn every round: what knowing them is worth"

    needs_truth: ClassVar[bool] = True

    def neighbours(self, me: Peer) -> Sequence[int]:
        assert me.truth is not None  # `needs_truth`
        kind = me.truth[me.id]
        return me.sample(self.k, [j for j in me.peers if me.truth[j] == kind])
