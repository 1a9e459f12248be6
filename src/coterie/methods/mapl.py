"""MAPL: models of any architecture learn from each other's prototypes, and whom to learn from (Mukherjee et al.).

Two modules. *Personalised model learning*: a loss that draws samples of a class together, and to a prototype of
the class that neighbours average. *Collaborative graph learning*: each peer moves its own row of the
collaboration weights towards those whose classifier heads are like its own, and fetches only from whom it weighs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.graph import project_to_simplex
from coterie.methods.base import Method, need, parameter
from coterie.methods.collaboration import LIKENESS, Acquaintance, Row, equally, most, on_simplex, similarities
from coterie.peer import Peer
from coterie.shelf import Fact
from coterie.training.losses import Batch, BoundNet, Given, negative_log_likelihood, supervised_contrastive
from coterie.weights import mean

EPSILON = 1e-3  # keeps the pull of the first neighbour finite


def to_prototypes(projected: Tensor, labels: Tensor, prototypes: Tensor, temperature: Tensor) -> Tensor:
    """Draw each sample to the prototype of its class and away from the others (InfoNCE over cosines)."""
    cosines = F.normalize(projected, dim=-1) @ F.normalize(prototypes, dim=-1).T
    return negative_log_likelihood(cosines / temperature, labels)


def uniformity(prototypes: Tensor) -> Tensor:
    """How alike the prototypes of different classes are: the sum of cosines with all others, mean over classes."""
    unit = F.normalize(prototypes, dim=-1)
    return ((unit @ unit.T).sum() - unit.square().sum()) / len(unit)


def mapl_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """All four terms, each times its weight in `given`."""
    x, y = batch.stacked()
    out, prototypes = net(x), net.parameters["prototypes"]
    assert out.projection is not None
    return (
        given["ce"] * negative_log_likelihood(out.logits, y)
        + given["contrast"] * supervised_contrastive(out.projection, y, given["tau"])
        + given["proto"] * to_prototypes(out.projection, y, prototypes, given["tau"])
        + given["uniform"] * uniformity(prototypes)
    )


@dataclass(frozen=True)
class MAPL(Method):
    summary: ClassVar[str] = "any architectures: share prototypes, and learn from whom by the likeness of heads"
    paper: ClassVar[str] = "Mukherjee et al., MAPL: Model Agnostic Peer-to-peer Learning, 2024"
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True
    parts: ClassVar[tuple[str, ...]] = ("projector", "prototypes")
    views: ClassVar[int] = 2
    learns_weights: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "from whom peers stop learning, and whom they then no longer ask"
    shares_backbone: ClassVar[bool] = False  # whether backbones of one architecture are averaged, too: MAPL+

    ce: float = parameter(1.0, "weight of the cross entropy; 0: off")
    contrast: float = parameter(1.0, "weight of the supervised contrastive loss; 0: off")
    proto: float = parameter(1.0, "weight of the loss that draws samples to prototypes; 0: off")
    uniform: float = parameter(1.0, "weight of the loss that drives prototypes apart; 0: off")
    tau: float = parameter(
        0.5, "temperature of both contrastive losses (the paper: 100)", common="temperature of contrast"
    )
    graph: bool = parameter(True, "learn the collaboration weights; false: everybody, equally, for ever")
    t_thr: int = parameter(20, "the first round that learns them (the paper: 100 of 400)")
    e_g: int = parameter(1, "gradient steps on them in a round")
    step: float = parameter(
        0.4, "length of such a step, times the number of peers weighed; cut where it would overshoot (not in the paper)"
    )
    mu1: float = parameter(0.5, "weight of the similarity of heads in the graph's loss")
    mu2: float = parameter(0.1, "weight of the graph's regulariser")
    beta: float = parameter(0.5, "weight of the norm in the regulariser: larger spreads the weights")
    norm: str = parameter("l2", "of the regulariser: l2 | l1 (constant on the simplex, so that it does nothing)")
    likeness: str = parameter("gram", "how heads are compared: gram (as seen from inside each) | rows (the paper)")
    similarity: bool = parameter(True, "use the similarity of heads; false: all are alike (the ablation of Table 3)")
    confidence: bool = parameter(True, "trust peers by how much data they have; false: all equally (the same ablation)")
    explore: int = parameter(0, "strangers met in a round, and acquaintances kept; 0: everybody, as in the paper")

    def check(self, peers: int) -> None:
        for key in ("ce", "contrast", "proto", "uniform", "mu1", "mu2", "beta", "step"):
            need(0 <= getattr(self, key) < math.inf, key, f"must be at least 0, not {getattr(self, key)}")
        need(self.tau > 0, "tau", f"must be above 0, not {self.tau}")
        need(self.norm in ("l1", "l2"), "norm", f"must be l1 or l2, not '{self.norm}'")
        need(self.likeness in LIKENESS, "likeness", f"must be gram or rows, not '{self.likeness}'")
        need(self.t_thr >= 1, "t_thr", f"must be at least 1, not {self.t_thr}")
        need(self.graph or not self.explore, "explore", "needs graph = true: it is by learning that peers are kept")
        need(self.e_g >= 0, "e_g", f"must be at least 0, not {self.e_g}")
        need(0 <= self.explore < peers, "explore", f"must be from 0 to {peers - 1}, not {self.explore}")

    async def setup(self, me: Peer) -> None:
        # Each its own, as in the paper: heads that began alike would stay alike, whatever their data. Only backbones
        # that will be averaged begin alike.
        fresh = me.own_initial()
        me.model.load(
            {name: fresh[name] for name in fresh if not (self.shares_backbone and name.startswith("backbone."))}
        )
        _keep(me, {me.id: Acquaintance(1.0, me.samples)})

    async def round(self, me: Peer, t: int) -> None:
        terms = {key: getattr(self, key) for key in ("ce", "contrast", "proto", "uniform", "tau")}
        device = me.model.vector.device
        await me.train(mapl_loss, views=2, given={k: torch.tensor(v, device=device) for k, v in terms.items()})
        self._shelve(me)
        if t in (self.t_thr, me.rounds):  # before and after the graph was learned, as in the paper's Figure 4
            me.note(prototypes=of_own_classes(me))
        compares = self.graph and (t >= self.t_thr or self.explore > 0)
        row = await self._compare(me, t) if compares else equally({me.id: me.samples, **dict.fromkeys(me.peers, 0)})
        row = await self._average(me, row)
        _keep(me, row)
        me.note(weights={j: a.weight for j, a in row.items() if a.weight > 0}, neighbours=neighbours(me, row))

    def _shelve(self, me: Peer) -> None:
        facts: dict[str, Fact] = {"samples": me.samples, "architecture": me.architecture.name}
        me.shelve("prototypes", {"prototypes": me.model["prototypes"]}, **facts)
        if self.graph:  # from the start: who is faster asks for it earlier
            me.shelve("head", {"weight": me.model["head.weight"]}, **facts)
        if self.shares_backbone:
            me.shelve("backbone", trained_part(me, "backbone"), **facts)

    # -- whom to learn from --------------------------------------------------------------------

    async def _compare(self, me: Peer, t: int) -> Row:
        """Fetch the heads of those one knows and of strangers, and weigh them."""
        row = _kept(me)
        known = neighbours(me, row)
        strangers = me.sample(self.explore, but=known) if self.explore else [j for j in me.peers if j not in row]
        head = {"weight": me.model["head.weight"]}
        heads = await me.fetch([*known, *strangers], "head", like=head, facts=["samples"])
        similar = similarities(me.model["head.weight"], heads, self.likeness)
        samples = {j: int(head.facts["samples"]) for j, head in heads.items()}
        if t < self.t_thr:
            return equally({me.id: me.samples, **{j: samples[j] for j in most(similar, self.explore)}})
        if len(row) == 1:
            row = equally({me.id: me.samples, **samples})
        # Who did not answer has left: it is out of the row, and a stranger should it come back.
        share = 1 / (1 + len(heads))
        known = neighbours(me, row)
        met = {j: Acquaintance(row[j].weight if j in known else share, samples[j]) for j in heads}
        others = {} if self.explore else {j: a for j, a in row.items() if a.weight == 0 and j != me.id}
        learned = self.learn(me.id, {me.id: row[me.id], **met, **others}, similar)
        if not self.explore:
            return learned
        kept = most({j: a.weight for j, a in learned.items() if a.weight > 0 and j != me.id}, self.explore)
        return on_simplex(me.id, {j: learned[j] for j in sorted([me.id, *kept])})

    def learn(self, own: int, row: Row, similar: Mapping[int, float]) -> Row:
        """CGL: steps along the gradient of the graph's loss, each projected onto the simplex."""
        row = on_simplex(own, row)
        active = sorted([own, *similar])
        total = sum(a.samples for a in row.values())
        largest = max(similar.values(), default=0.0)
        scale = largest if largest > 0 else 1.0  # never turn unlike into like
        alike = {j: s / scale for j, s in similar.items()} if self.similarity else dict.fromkeys(similar, 1.0)
        trust = np.array([row[j].samples / total if self.confidence else 1 / len(row) for j in active])
        pull = self.mu1 * trust * np.array([{**alike, own: 1.0}[j] for j in active])
        w = np.array([row[j].weight for j in active])
        # The pulls are shares of all data: of many peers, each has little. Beyond the inverse of the norm's curvature
        # (at equal weights) a step overshoots, and the next one goes back.
        bend = self.mu2 * self.beta * math.sqrt(len(active)) if self.norm == "l2" else 0.0
        step = min(self.step * len(active), 1 / bend if bend > 0 else math.inf)
        for _ in range(self.e_g):
            w = project_to_simplex(w - step * self.gradient(w, active.index(own), pull))
        return {**row, **{j: row[j]._replace(weight=float(v)) for j, v in zip(active, w, strict=True)}}

    def gradient(self, w: np.ndarray, own: int, pull: np.ndarray) -> np.ndarray:
        """Of the graph's loss, mu2 * (beta * ||w|| - log(degree + EPSILON)) - w . pull.

        The degree is the weight on others.
        """
        of_norm = np.ones_like(w) if self.norm == "l1" else w / max(float(np.linalg.norm(w)), EPSILON)
        of_degree = np.full_like(w, -1 / (w.sum() - w[own] + EPSILON))
        of_degree[own] = 0.0
        gradient: np.ndarray = self.mu2 * (self.beta * of_norm + of_degree) - pull
        return gradient

    # -- what to learn from them ---------------------------------------------------------------

    async def _average(self, me: Peer, row: Row) -> Row:
        """Average the prototypes (and for MAPL+ the backbones) of those who have weight, and are there."""
        mine = {"prototypes": me.model["prototypes"]}
        theirs = await me.fetch(neighbours(me, row), "prototypes", like=mine, facts=["samples"])
        here = {j: a for j, a in row.items() if a.weight == 0 or j in theirs or j == me.id}
        heard = {j: here[j]._replace(samples=int(found.facts["samples"])) for j, found in theirs.items()}
        row = on_simplex(me.id, {**here, **heard})
        tensors = {me.id: me.model["prototypes"], **{j: found["prototypes"] for j, found in theirs.items()}}
        me.model["prototypes"].copy_(sum((row[j].weight * tensors[j] for j in sorted(tensors)), torch.zeros(())))
        if self.shares_backbone:
            alike = [j for j, found in theirs.items() if found.facts.get("architecture") == me.architecture.name]
            await self._average_backbones(me, row, alike)
        return row

    async def _average_backbones(self, me: Peer, row: Row, alike: Sequence[int]) -> None:
        """One's own counts at least as much as the average neighbour's: else two peers would only swap theirs."""
        mine = trained_part(me, "backbone")
        theirs = await me.fetch(alike, "backbone", like=mine)
        if not theirs:
            return
        shares = {j: row[j].weight for j in theirs}
        shares[me.id] = max(row[me.id].weight, sum(shares.values()) / len(shares))
        parts = {me.id: mine, **theirs}
        me.model.load(mean([parts[j] for j in sorted(parts)], [shares[j] for j in sorted(parts)]))


@dataclass(frozen=True)
class MAPLPlus(MAPL):
    title: ClassVar[str] = "MAPL+"
    summary: ClassVar[str] = "MAPL that also averages backbones, among peers of the same architecture"
    shares_backbone: ClassVar[bool] = True


def trained_part(me: Peer, part: str) -> dict[str, Tensor]:
    """The parameters of one part of one's model; statistics of its normalisation stay at home."""
    layout = me.model.layout
    return {slot.name: me.model[slot.name] for slot in layout.within(part) if slot.stop <= layout.trainable}


def of_own_classes(me: Peer) -> dict[str, list[float]]:
    """The directions of the prototypes that one has samples of, for the report; three decimals are enough to see."""
    held = sorted(set(me.labels().tolist()))
    unit = F.normalize(me.model["prototypes"][held], dim=-1)
    return {str(k): [round(x, 3) for x in row] for k, row in zip(held, unit.tolist(), strict=True)}


def neighbours(me: Peer, row: Row) -> list[int]:
    return sorted(j for j, a in row.items() if a.weight > 0 and j != me.id)


def _keep(me: Peer, row: Row) -> None:
    me.state["row"] = [[j, a.weight, a.samples] for j, a in sorted(row.items())]


def _kept(me: Peer) -> Row:
    return {j: Acquaintance(weight, samples) for j, weight, samples in me.state["row"]}
