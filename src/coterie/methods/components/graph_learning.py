"""Collaborative graph learning: peers learn from which peers to learn (MAPL).

Each peer moves its own row of the collaboration weights towards the peers with similar classifier heads, by gradient
steps on the graph's loss, and fetches only from peers with weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from coterie.core.named_code import Function, find_function
from coterie.core.peer import Peer
from coterie.methods.base import Method, need, parameter
from coterie.methods.components import collaboration
from coterie.methods.components.collaboration import LIKENESS, Acquaintance, Row, neighbours, on_simplex
from coterie.methods.components.graph_steps import GRAPH_STEPS, moved_weights
from coterie.methods.components.simplex import project_to_simplex


@dataclass(frozen=True)
class GraphLearning(Method):
    """A method whose peers learn their collaboration weights. Each must shelve its classifier's weights as "head"."""

    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "which peers lose their weight, and are then no longer asked"

    graph: bool = parameter(True, "learn the collaboration weights; false: all peers have equal weight throughout")
    t_thr: int = parameter(20, "first round in which they are learned (the paper: 100 of 400)", least=1)
    e_g: int = parameter(1, "gradient steps on them in a round", least=0)
    graph_step: str = parameter(
        "projected",
        "kind of step: projected (along the gradient, as printed) | adam (as in the authors' code: 0.1 by the sign of "
        "the gradient, without the degree) | module:callable of yours; the result is projected onto the simplex",
        function=True,
    )
    step: float = parameter(
        0.4, "length of a projected step, per peer with an entry; capped where it would overshoot (our choice)", least=0
    )
    mu1: float = parameter(0.5, "weight of the similarity of heads in the graph's loss", least=0)
    mu2: float = parameter(0.1, "weight of the graph's regulariser", least=0)
    beta: float = parameter(0.5, "weight of the norm in the regulariser: larger spreads the weights", least=0)
    norm: str = parameter(
        "l2", "norm in the regulariser", choices={"l2": "", "l1": "constant on the simplex, so without effect"}
    )
    likeness: str = parameter(
        "gram",
        "similarity of heads: gram (of their inner products) | rows (the paper) | module:callable of yours",
        function=True,
    )
    similarity: bool = parameter(
        True, "use the similarity of heads; false: all are equally similar (the ablation of Table 3)"
    )
    confidence: bool = parameter(True, "trust peers by their amount of data; false: all equally (the same ablation)")
    revisit: int = parameter(
        1, "peers of weight 0, drawn anew every round, that may regain weight; 0: none, as in the paper", least=0
    )
    explore: int = parameter(
        0, "strangers met in a round, and peers kept in the row; 0: all peers, as in the paper", least=0
    )

    # Resolved once: editing the file later does not change a run in progress.

    @cached_property
    def _likeness(self) -> Function:
        return find_function("likeness", self.likeness, LIKENESS, "mine, theirs")

    @cached_property
    def _graph_step(self) -> Function:
        return find_function("graph_step", self.graph_step, GRAPH_STEPS, "weights, own, pull, graph")

    def check(self, peers: int) -> None:
        need(self.graph or not self.explore, "explore", "needs graph = true: peers are kept by their learned weights")
        need(self.explore < peers, "explore", f"must be below the number of peers ({peers}), not {self.explore}")
        _ = self._likeness, self._graph_step  # raises if a function cannot be found

    async def collaborators(self, me: Peer) -> Row:
        """The peer's row of weights in this round: learned from heads, or equal as long as nothing is learned."""
        if self.graph and (me.round >= self.t_thr or self.explore > 0):
            return await self._compare(me)
        return collaboration.equal_weights({me.id: me.samples, **dict.fromkeys(me.peers, 0)})

    async def _compare(self, me: Peer) -> Row:
        """Fetch the heads of acquaintances and of strangers, and learn their weights."""
        row = collaboration.load_row(me)
        known = neighbours(me, row)
        strangers = me.sample(self.explore, but=known) if self.explore else [j for j in me.peers if j not in row]
        own_head = me.model["head.weight"]
        asked = [*known, *strangers, *self._again(me, row)]
        heads = await me.fetch(asked, "head", like={"weight": own_head}, facts=["samples"])
        similar = collaboration.similarities(own_head, heads, self.likeness, self._likeness)
        samples = {j: int(head.facts["samples"]) for j, head in heads.items()}
        if me.round < self.t_thr:
            kept = collaboration.highest(similar, self.explore)
            return collaboration.equal_weights({me.id: me.samples, **{j: samples[j] for j in kept}})
        if len(row) == 1:
            row = collaboration.equal_weights({me.id: me.samples, **samples})
        # A peer that did not answer has left: its entry is dropped, and it is a stranger if it comes back.
        share = 1 / (1 + len(heads))
        met = {j: Acquaintance(row[j].weight if j in row else share, samples[j]) for j in heads}
        others = {} if self.explore else {j: a for j, a in row.items() if a.weight == 0}
        learned = self.learn(me.id, {**others, me.id: row[me.id], **met}, similar)
        if not self.explore:
            return learned
        kept = collaboration.highest({j: learned[j].weight for j in neighbours(me, learned)}, self.explore)
        return on_simplex(me.id, {j: learned[j] for j in sorted([me.id, *kept])})

    def _again(self, me: Peer, row: Row) -> list[int]:
        """Some of the peers that lost their weight. A head may have been dissimilar while it was still learning, and
        without another look its weight would stay zero forever. (With `explore`, they are met again as strangers.)"""
        lost = sorted(j for j in me.peers if j in row and row[j].weight == 0)
        return me.sample(self.revisit, lost) if self.revisit and lost and not self.explore else []

    def learn(self, own: int, row: Row, similar: Mapping[int, float]) -> Row:
        """Gradient steps on the graph's loss, each projected onto the simplex."""
        row = on_simplex(own, row)
        active = sorted([own, *similar])
        total = sum(a.samples for a in row.values())
        largest = max(similar.values(), default=0.0)
        scale = largest if largest > 0 else 1.0  # negative similarities keep their sign
        alike = {j: s / scale for j, s in similar.items()} if self.similarity else dict.fromkeys(similar, 1.0)
        trust = np.array([row[j].samples / total if self.confidence else 1 / len(row) for j in active])
        pull = self.mu1 * trust * np.array([{**alike, own: 1.0}[j] for j in active])
        w = np.array([row[j].weight for j in active])
        for _ in range(self.e_g):
            moved = moved_weights(w, active.index(own), pull, self, self.graph_step, self._graph_step)
            w = project_to_simplex(moved)
        return {**row, **{j: row[j]._replace(weight=float(v)) for j, v in zip(active, w, strict=True)}}
