"""PANM: each peer finds the peers of its cluster, first by trying candidates, then by a mixture model (Li et al.).

Stage one (CNI) keeps the k most similar of l random peers and last round's neighbours. Stage two averages with
neighbours drawn from the list. Every tau rounds (HNM), hard-assignment EM decides which of some neighbours and some
strangers are of the peer's cluster.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.release import UPDATE
from coterie.core.task import TASKS
from coterie.core.weights import Weights
from coterie.methods.base import Method, need, need_others, parameter
from coterie.methods.components.two_gaussians import EM, Similarities
from coterie.methods.gossip import average, average_with

Models = dict[int, Artifact]
METRICS = {"loss": "of others' models on own data", "grad": "direction of updates"}
SMALLEST_LOSS = 1e-12  # so that a loss of zero has a logarithm and an inverse
SIMILARITY: dict[str, Callable[[float], float]] = {
    "log": lambda loss: -math.log(max(loss, SMALLEST_LOSS)),
    "inverse": lambda loss: 1 / max(loss, SMALLEST_LOSS),
}


@dataclass(frozen=True)
class PANM(Method):
    summary: ClassVar[str] = "find peers of the same cluster by loss or gradient similarity, and average with them"
    paper: ClassVar[str] = "Li et al., Mining Latent Relationships among Clients, 2022"
    tasks: ClassVar[tuple[str, ...]] = TASKS
    unforeseen: ClassVar[str] = "how many neighbours peers find in stage two: with fewer than k, they exchange less"

    metric: str = parameter("loss", "what peers are compared by", choices=METRICS)
    similarity: str = parameter(
        "log",
        "metric = loss: the similarity",
        choices={"log": "of 1 / loss", "inverse": "1 / loss, the paper's equation 3"},
    )
    em: str = parameter(
        "guarded",
        "form of EM",
        choices={"guarded": "minimum width, and beyond the centres the nearer one wins", "printed": "as in the paper"},
    )
    tries: int = parameter(
        32,
        "metric = loss: own samples to test models on in stage one, drawn anew every round; 0: all, as in stage two",
        least=0,
    )
    l: int = parameter(  # noqa: E741 (the paper's name)
        10,
        "strangers tried in a round, below `peers`; in a [graph], at most the peer's neighbours",
        common="candidates",
        least=1,
    )
    k: int = parameter(5, "neighbours averaged with in a round, at most l", common="neighbours", least=1)
    t1: int = parameter(
        100,
        "rounds of stage one, confident neighbour initialisation; the rest is stage two",
        common="rounds of stage one",
        least=0,
    )
    tau: int = parameter(10, "rounds between two heuristic neighbour matchings in stage two", least=1)
    alpha: float = parameter(
        0.5,
        "metric = grad: weight of the last update; the rest is the change since the start; 0: no updates are sent",
        least=0,
        most=1,
    )

    def check(self, peers: int) -> None:
        need_others(self.l, "l", peers)
        need(self.k <= self.l, "k", f"must be from 1 to l = {self.l}, not {self.k}")

    @property
    def compares_updates(self) -> bool:
        """Whether the last updates are compared; otherwise only models are."""
        return self.metric == "grad" and self.alpha > 0

    async def setup(self, me: Peer) -> None:
        me.state["neighbours"] = []

    async def round(self, me: Peer) -> None:
        before = me.model.vector.clone()
        await me.train()
        me.shelve("model", me.model, reference=Weights(me.model.layout, before))
        update = Weights(me.model.layout, me.model.vector - before)
        compares = me.round <= self.t1 or me.round % self.tau == 0
        if compares and self.compares_updates:
            me.shelve("update", update, made_from=UPDATE)
        if me.round <= self.t1:
            await self.initialise(me, update)
        elif compares:
            await self.match(me, update)
        else:
            await average_with(me, me.sample(self.k, me.state["neighbours"]))
        me.note(neighbours=me.state["neighbours"])

    async def initialise(self, me: Peer, update: Weights) -> None:
        """CNI: average with the k most similar of last round's neighbours and l strangers."""
        known: list[int] = me.state["neighbours"]
        models, similar = await self.compare(me, [*known, *self.strangers(me, self.l)], update, self.tries)
        best = sorted(similar, key=lambda j: (-similar[j], j))[: self.k]
        me.state["neighbours"] = sorted(best)
        await average(me, {j: models[j] for j in sorted(best)})

    async def match(self, me: Peer, update: Weights) -> None:
        """HNM: of l neighbours and as many strangers, those of the peer's cluster stay or become neighbours."""
        known: list[int] = me.state["neighbours"]
        selected = me.sample(self.l, known)
        strangers = self.strangers(me, 2 * self.l - len(selected))
        models, similar = await self.compare(me, [*selected, *strangers], update, samples=0)
        trusted = [j for j in selected if j in similar]
        matched = EM[self.em](similar, trusted)
        neighbours = sorted((set(known) - set(selected)) | set(matched))
        if not neighbours and similar:  # keep at least one: the most similar of the selected, if any of them answered
            neighbours = [max(trusted or similar, key=lambda j: similar[j])]
        me.state["neighbours"] = neighbours
        await average(me, {j: models[j] for j in me.sample(self.k, [j for j in neighbours if j in models])})

    def strangers(self, me: Peer, count: int) -> list[int]:
        return me.sample(count, but=set(me.state["neighbours"]))

    async def compare(
        self, me: Peer, candidates: Sequence[int], update: Weights, samples: int
    ) -> tuple[Models, Similarities]:
        """Fetch the candidates' models, and compute how similar each one's objective is to the peer's own.

        By loss, on this many of the peer's samples (0: all). Stage one needs randomness among equally good peers: with
        the same samples every time, all peers would pick the same few. Matching needs precision.
        """
        models = await me.fetch(candidates, "model", like=me.model)
        if self.metric == "loss":
            scores = await me.evaluate(models.values(), samples=samples)
            # A model that diverged is similar to none.
            losses = {j: s.loss for j, s in zip(models, scores, strict=True) if math.isfinite(s.loss)}
            return models, {j: SIMILARITY[self.similarity](loss) for j, loss in losses.items()}
        start = me.initial().parameters
        change = me.model.parameters - start
        changes = {j: _cosine(me, model, change, start) for j, model in models.items()}
        if not self.compares_updates:
            return models, changes
        updates = await me.fetch(models, "update", like=me.model)
        steps = {j: _cosine(me, theirs, update.parameters) for j, theirs in updates.items()}
        return models, {j: self.alpha * steps[j] + (1 - self.alpha) * changes[j] for j in updates}


def _cosine(me: Peer, theirs: Artifact, mine: torch.Tensor, origin: torch.Tensor | None = None) -> float:
    vector = me.architecture.view(theirs).parameters
    cosine = float(F.cosine_similarity(vector if origin is None else vector - origin, mine, dim=0))
    return cosine if math.isfinite(cosine) else -1.0  # a model that diverged is similar to none
