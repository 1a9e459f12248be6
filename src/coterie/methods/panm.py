"""PANM: each peer finds its own kind, first by trying candidates, then by a two-component mixture (Li et al.).

Stage one (CNI) keeps the k most similar of l random peers and last round's neighbours. Stage two averages
with neighbours drawn from the list, and every tau rounds (HNM) lets a hard-assignment EM decide who is of
one's cluster among some neighbours and some strangers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.weights import Weights
from coterie.methods.base import Method, need, need_others, parameter
from coterie.methods.gossip import average, average_with

Models = dict[int, Artifact]
Similarities = dict[int, float]
SMALLEST_LOSS = 1e-12  # so that a loss of zero has a logarithm and an inverse
SIMILARITY: dict[str, Callable[[float], float]] = {
    "log": lambda loss: -math.log(max(loss, SMALLEST_LOSS)),
    "inverse": lambda loss: 1 / max(loss, SMALLEST_LOSS),
}


@dataclass(frozen=True)
class PANM(Method):
    summary: ClassVar[str] = "find peers of one's kind by loss or gradient similarity, and average with them"
    paper: ClassVar[str] = "Li et al., Mining Latent Relationships among Clients, 2022"
    unforeseen: ClassVar[str] = "how many neighbours peers find in stage two: with fewer than k, they exchange less"

    metric: str = parameter("loss", "similarity: loss (of their model on my data) | grad (direction of updates)")
    similarity: str = parameter("log", "metric = loss: log (of 1 / loss) | inverse (1 / loss, the paper's equation 3)")
    em: str = parameter(
        "guarded", "matching: guarded (least width, and beyond the centres the nearer one wins) | printed (the paper's)"
    )
    tries: int = parameter(
        32, "metric = loss: own samples to try models on in stage one, drawn anew every round; 0: all, as in stage two"
    )
    l: int = parameter(  # noqa: E741 (the paper's name)
        10,
        "strangers tried in a round, from 1 to peers - 1; in a [graph], all next to one where they are fewer",
        common="candidates",
    )
    k: int = parameter(5, "neighbours averaged with in a round, from 1 to l", common="neighbours")
    t1: int = parameter(
        100,
        "rounds of stage one, confident neighbour initialisation; the rest is stage two",
        common="rounds of stage one",
    )
    tau: int = parameter(10, "rounds between two heuristic neighbour matchings in stage two")
    alpha: float = parameter(
        0.5, "metric = grad: share of the last update against the way since the start; 0: updates are not even sent"
    )

    def check(self, peers: int) -> None:
        need(self.metric in ("loss", "grad"), "metric", f"must be loss or grad, not '{self.metric}'")
        for key, options in (("similarity", SIMILARITY), ("em", EM)):
            need(getattr(self, key) in options, key, f"must be {' or '.join(options)}, not '{getattr(self, key)}'")
        need(self.tries >= 0, "tries", f"must be 0 (all) or a number of samples, not {self.tries}")
        need_others(self.l, "l", peers)
        need(1 <= self.k <= self.l, "k", f"must be from 1 to l = {self.l}, not {self.k}")
        need(self.t1 >= 0, "t1", f"must be at least 0, not {self.t1}")
        need(self.tau >= 1, "tau", f"must be at least 1, not {self.tau}")
        need(0 <= self.alpha <= 1, "alpha", f"must be from 0 to 1, not {self.alpha}")

    @property
    def compares_updates(self) -> bool:
        """Whether what the last training changed is looked at; without it, models say all."""
        return self.metric == "grad" and self.alpha > 0

    async def setup(self, me: Peer) -> None:
        me.state["neighbours"] = []

    async def round(self, me: Peer, t: int) -> None:
        before = me.model.vector.clone()
        await me.train()
        me.shelve("model", me.model)
        update = Weights(me.model.layout, me.model.vector - before)
        compares = t <= self.t1 or t % self.tau == 0
        if compares and self.compares_updates:
            me.shelve("update", update)
        if t <= self.t1:
            await self.initialise(me, update)
        elif compares:
            await self.match(me, update)
        else:
            await average_with(me, me.sample(self.k, me.state["neighbours"]))
        me.note(neighbours=me.state["neighbours"])

    async def initialise(self, me: Peer, update: Weights) -> None:
        """CNI: the k most similar of last round's neighbours and l strangers, averaged with."""
        known: list[int] = me.state["neighbours"]
        models, similar = await self.compare(me, [*known, *self.strangers(me, self.l)], update, self.tries)
        best = sorted(similar, key=lambda j: (-similar[j], j))[: self.k]
        me.state["neighbours"] = sorted(best)
        await average(me, {j: models[j] for j in sorted(best)})

    async def match(self, me: Peer, update: Weights) -> None:
        """HNM: of l neighbours and as many strangers, those of one's cluster stay or become neighbours."""
        known: list[int] = me.state["neighbours"]
        selected = me.sample(self.l, known)
        strangers = self.strangers(me, 2 * self.l - len(selected))
        models, similar = await self.compare(me, [*selected, *strangers], update, samples=0)
        trusted = [j for j in selected if j in similar]
        kin = EM[self.em](similar, trusted)
        neighbours = sorted((set(known) - set(selected)) | set(kin))
        if not neighbours and similar:  # never left alone: the most similar of the selected, if any of them answered
            neighbours = [max(trusted or similar, key=lambda j: similar[j])]
        me.state["neighbours"] = neighbours
        await average(me, {j: models[j] for j in me.sample(self.k, [j for j in neighbours if j in models])})

    def strangers(self, me: Peer, count: int) -> list[int]:
        return me.sample(count, but=set(me.state["neighbours"]))

    async def compare(
        self, me: Peer, candidates: Sequence[int], update: Weights, samples: int
    ) -> tuple[Models, Similarities]:
        """Fetch the candidates' models, and say how similar each one's objective is to one's own.

        By loss, on so many of one's samples (0: all). Trying out wants chance among equals: always the
        same samples would make everybody pick the same few. Matching wants to be sure.
        """
        models = await me.fetch(candidates, "model", like=me.model)
        if self.metric == "loss":
            scores = await me.evaluate(models.values(), samples=samples)
            # A model that diverged is like nobody's.
            losses = {j: s.loss for j, s in zip(models, scores, strict=True) if math.isfinite(s.loss)}
            return models, {j: SIMILARITY[self.similarity](loss) for j, loss in losses.items()}
        start = me.initial().parameters
        way = me.model.parameters - start
        ways = {j: _cosine(me, model, way, start) for j, model in models.items()}
        if not self.compares_updates:
            return models, ways
        updates = await me.fetch(models, "update", like=me.model)
        steps = {j: _cosine(me, theirs, update.parameters) for j, theirs in updates.items()}
        return models, {j: self.alpha * steps[j] + (1 - self.alpha) * ways[j] for j in updates}


def _cosine(me: Peer, theirs: Artifact, mine: torch.Tensor, origin: torch.Tensor | None = None) -> float:
    vector = me.architecture.view(theirs).parameters
    cosine = float(F.cosine_similarity(vector if origin is None else vector - origin, mine, dim=0))
    return cosine if math.isfinite(cosine) else -1.0  # a model that diverged is like nobody's


def same_cluster(similar: Similarities, trusted: Sequence[int], steps: int = 100) -> list[int]:
    """Who is of one's own cluster, by hard-assignment EM of two Gaussians over the similarities.

    Component 0 (one's own cluster) starts as the trusted peers, component 1 as the others; it ends when no
    assignment changes or a component is empty.
    """
    peers = sorted(similar)
    if not peers:
        return []
    y = np.array([similar[j] for j in peers])
    own = np.isin(peers, list(trusted))
    # The trusted were picked for being most similar, so they spread less than their cluster does: a component
    # is at least a tenth as wide as all similarities together.
    floor = 0.1 * float(y.std()) + 1e-12
    for _ in range(steps):
        if own.all() or not own.any():
            break
        centre, other = y[own].mean(), y[~own].mean()
        if centre <= other:  # against the assumption that one's own cluster is the more similar
            break
        after = _log_density(y, y[own], floor) > _log_density(y, y[~own], floor)
        # Between the centres the densities decide. Beyond them the wider Gaussian would win on both sides,
        # and take the least similar peers of all for one's own kind.
        after = (after | (y >= centre)) & (y > other)
        if (after == own).all():
            break
        own = after
    return [j for j, mine in zip(peers, own, strict=True) if mine]


def _log_density(y: np.ndarray, members: np.ndarray, floor: float) -> np.ndarray:
    """log of beta * phi(y), up to what both components have in common. Without width it is a point."""
    centre, width = members.mean(), max(float(members.std()), floor)
    if width == 0:
        return np.where(y == centre, np.inf, -np.inf)
    density: np.ndarray = np.log(len(members) / len(y)) - np.log(width) - (y - centre) ** 2 / (2 * width**2)
    return density


def same_cluster_as_printed(similar: Similarities, trusted: Sequence[int], steps: int = 100) -> list[int]:
    """The same EM as the paper prints it: no least width, and the densities alone decide.

    Its start names the components the other way round than its result does. Its text says that the one with the higher
    centre is one's own cluster: so that one is returned.
    """
    peers = sorted(similar)
    y = np.array([similar[j] for j in peers])
    first = np.isin(peers, list(trusted))
    for _ in range(steps):
        if first.all() or not first.any():
            break
        of_first, of_second = _log_density(y, y[first], 0.0), _log_density(y, y[~first], 0.0)
        after = np.where(of_first == of_second, first, of_first > of_second)
        if (after == first).all():
            break
        first = after
    if first.any() and not first.all() and y[first].mean() < y[~first].mean():
        first = ~first
    return [j for j, mine in zip(peers, first, strict=True) if mine]


EM = {"guarded": same_cluster, "printed": same_cluster_as_printed}
