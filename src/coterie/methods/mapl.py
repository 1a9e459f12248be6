"""MAPL: models of any architecture learn from each other's prototypes, and whom to learn from (Mukherjee et al.).

Two modules. *Personalised model learning*: a loss that draws samples of a class together, and to a prototype of
the class that neighbours average. *Collaborative graph learning*: each peer moves its own row of the
collaboration weights towards those whose classifier heads are like its own, and fetches only from whom it weighs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.artifact import Artifact, Fact
from coterie.core.errors import MethodError
from coterie.core.loss import Loss
from coterie.core.named_code import Function, call, find_function
from coterie.core.peer import Peer
from coterie.core.weights import mean
from coterie.methods.base import Method, need, parameter
from coterie.methods.collaboration import (
    GRAPH_STEPS,
    LIKENESS,
    Acquaintance,
    Row,
    equally,
    most,
    on_simplex,
    shares,
    similarities,
)
from coterie.methods.mapl_losses import GIVEN, LOSSES
from coterie.methods.simplex import project_to_simplex

MOST_CLASSES = 20  # of a peer whose latent features are noted for the report


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
        0.5, "temperature of the supervised contrastive loss (the paper: 100)", common="temperature of contrast"
    )
    tau_proto: float = parameter(
        0.0, "temperature of the loss that draws samples to prototypes (paper presets: 1); 0: the same as tau"
    )
    losses: str = parameter(
        "paper",
        "the form of these losses: paper (as printed) | authors (as their code has it) | module:callable of yours",
        function=True,
    )
    graph: bool = parameter(True, "learn the collaboration weights; false: everybody, equally, for ever")
    t_thr: int = parameter(20, "the first round that learns them (the paper: 100 of 400)")
    e_g: int = parameter(1, "gradient steps on them in a round")
    graph_step: str = parameter(
        "projected",
        "how a step is made: projected (along the gradient, as printed) | adam (the authors': by its sign, 0.1 far, "
        "without the degree) | module:callable of yours; the result is projected onto the simplex",
        function=True,
    )
    step: float = parameter(
        0.4, "length of a projected step, times the number of peers weighed; cut where it would overshoot (our choice)"
    )
    mu1: float = parameter(0.5, "weight of the similarity of heads in the graph's loss")
    mu2: float = parameter(0.1, "weight of the graph's regulariser")
    beta: float = parameter(0.5, "weight of the norm in the regulariser: larger spreads the weights")
    norm: str = parameter("l2", "of the regulariser: l2 | l1 (constant on the simplex, so that it does nothing)")
    likeness: str = parameter(
        "gram",
        "how heads are compared: gram (as seen from inside each) | rows (the paper) | module:callable of yours",
        function=True,
    )
    similarity: bool = parameter(True, "use the similarity of heads; false: all are alike (the ablation of Table 3)")
    confidence: bool = parameter(True, "trust peers by how much data they have; false: all equally (the same ablation)")
    keep_own: bool = parameter(
        True, "one's own prototypes (and backbone) count at least as much as the average neighbour's; false: the paper"
    )
    revisit: int = parameter(
        1, "peers of weight 0, drawn anew in each round, that may get weight again; 0: none, as in the paper"
    )
    explore: int = parameter(0, "strangers met in a round, and acquaintances kept; 0: everybody, as in the paper")

    # Found once: a file that is edited later does not change a run that goes on.

    @cached_property
    def _loss(self) -> Loss:
        return find_function("losses", self.losses, LOSSES, "net, batch, given")

    @cached_property
    def _likeness(self) -> Function:
        return find_function("likeness", self.likeness, LIKENESS, "mine, theirs")

    @cached_property
    def _graph_step(self) -> Function:
        return find_function("graph_step", self.graph_step, GRAPH_STEPS, "weights, own, pull, graph")

    def check(self, peers: int) -> None:
        for key in ("ce", "contrast", "proto", "uniform", "mu1", "mu2", "beta", "step"):
            need(0 <= getattr(self, key) < math.inf, key, f"must be at least 0, not {getattr(self, key)}")
        need(0 < self.tau < math.inf, "tau", f"must be above 0, not {self.tau}")
        need(0 <= self.tau_proto < math.inf, "tau_proto", f"must be above 0, or 0 for tau's, not {self.tau_proto}")
        need(self.norm in ("l1", "l2"), "norm", f"must be l1 or l2, not '{self.norm}'")
        need(self.t_thr >= 1, "t_thr", f"must be at least 1, not {self.t_thr}")
        need(self.graph or not self.explore, "explore", "needs graph = true: it is by learning that peers are kept")
        need(self.e_g >= 0, "e_g", f"must be at least 0, not {self.e_g}")
        need(0 <= self.explore < peers, "explore", f"must be from 0 to {peers - 1}, not {self.explore}")
        need(self.revisit >= 0, "revisit", f"must be at least 0, not {self.revisit}")
        _ = self._loss, self._likeness, self._graph_step  # raises if one cannot be found

    async def setup(self, me: Peer) -> None:
        # Each its own, as in the paper: heads that began alike would stay alike, whatever their data. Only backbones
        # that will be averaged begin alike.
        fresh = me.own_initial()
        me.model.load(
            {name: fresh[name] for name in fresh if not (self.shares_backbone and name.startswith("backbone."))}
        )
        _keep(me, {me.id: Acquaintance(1.0, me.samples)})

    async def round(self, me: Peer, t: int) -> None:
        terms = {**{key: getattr(self, key) for key in GIVEN}, "tau_proto": self.tau_proto or self.tau}
        device = me.model.vector.device
        await me.train(self._loss, views=2, given={k: torch.tensor(v, device=device) for k, v in terms.items()})
        self._shelve(me)
        if t in (self.t_thr, me.rounds):  # before and after the graph was learned, as in the paper's Figure 4
            await _note_embeddings(me)
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
        asked = [*known, *strangers, *self._again(me, row)]
        heads = await me.fetch(asked, "head", like=head, facts=["samples"])
        similar = self._similar(me.model["head.weight"], heads)
        samples = {j: int(head.facts["samples"]) for j, head in heads.items()}
        if t < self.t_thr:
            return equally({me.id: me.samples, **{j: samples[j] for j in most(similar, self.explore)}})
        if len(row) == 1:
            row = equally({me.id: me.samples, **samples})
        # Who did not answer has left: it is out of the row, and a stranger should it come back.
        share = 1 / (1 + len(heads))
        met = {j: Acquaintance(row[j].weight if j in row else share, samples[j]) for j in heads}
        others = {} if self.explore else {j: a for j, a in row.items() if a.weight == 0}
        learned = self.learn(me.id, {**others, me.id: row[me.id], **met}, similar)
        if not self.explore:
            return learned
        kept = most({j: a.weight for j, a in learned.items() if a.weight > 0 and j != me.id}, self.explore)
        return on_simplex(me.id, {j: learned[j] for j in sorted([me.id, *kept])})

    def _again(self, me: Peer, row: Row) -> list[int]:
        """Some of those who lost their weight and are there. A head may have been unlike while it was still learning,
        and without another look the weight would stay zero for ever. (Who explores meets them again as strangers.)"""
        lost = sorted(j for j in me.peers if j in row and row[j].weight == 0)
        return me.sample(self.revisit, lost) if self.revisit and lost and not self.explore else []

    def _alike(self, mine: Tensor, theirs: Tensor) -> float:
        found = call("likeness", self.likeness, self._likeness, mine, theirs)
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError) as error:
            raise MethodError(
                f"method.likeness = '{self.likeness}' returned a {type(found).__name__}; it must return one number"
            ) from error

    def _similar(self, mine: Tensor, heads: Mapping[int, Artifact]) -> dict[int, float]:
        """How alike each head is to one's own. A function of the user's that is no number for any of them is wrong; for
        a single one, that head may be: of a model that diverged, or sent to do harm."""
        told: list[float] = []

        def alike(mine: Tensor, theirs: Tensor) -> float:
            told.append(self._alike(mine, theirs))
            return told[-1]

        similar = similarities(mine, heads, alike)
        if ":" in self.likeness and told and not any(map(math.isfinite, told)) and mine.isfinite().all():
            raise MethodError(
                f"method.likeness = '{self.likeness}' returned {told[0]}, and no finite number for any head: look for "
                "a division by 0 or a log of 0"
            )
        return similar

    def learn(self, own: int, row: Row, similar: Mapping[int, float]) -> Row:
        """CGL: steps on the graph's loss, each projected onto the simplex."""
        row = on_simplex(own, row)
        active = sorted([own, *similar])
        total = sum(a.samples for a in row.values())
        largest = max(similar.values(), default=0.0)
        scale = largest if largest > 0 else 1.0  # never turn unlike into like
        alike = {j: s / scale for j, s in similar.items()} if self.similarity else dict.fromkeys(similar, 1.0)
        trust = np.array([row[j].samples / total if self.confidence else 1 / len(row) for j in active])
        pull = self.mu1 * trust * np.array([{**alike, own: 1.0}[j] for j in active])
        w = np.array([row[j].weight for j in active])
        for _ in range(self.e_g):
            w = project_to_simplex(self._moved(w, active.index(own), pull))
        return {**row, **{j: row[j]._replace(weight=float(v)) for j, v in zip(active, w, strict=True)}}

    def _moved(self, w: np.ndarray, own: int, pull: np.ndarray) -> np.ndarray:
        found: Any = call("graph_step", self.graph_step, self._graph_step, w, own, pull, self)
        moved = np.asarray(found, dtype=np.float64) if isinstance(found, np.ndarray | list | Tensor) else None
        if moved is None or moved.shape != w.shape or not np.isfinite(moved).all():
            what = f"a {type(found).__name__}" if moved is None else f"{moved.tolist()}"
            raise MethodError(
                f"method.graph_step = '{self.graph_step}' returned {what}; it must return {len(w)} finite weights"
            )
        return moved

    # -- what to learn from them ---------------------------------------------------------------

    async def _average(self, me: Peer, row: Row) -> Row:
        """Average the prototypes (and for MAPL+ the backbones) of those who have weight, and are there."""
        mine = {"prototypes": me.model["prototypes"]}
        theirs = await me.fetch(neighbours(me, row), "prototypes", like=mine, facts=["samples"])
        here = {j: a for j, a in row.items() if a.weight == 0 or j in theirs or j == me.id}
        heard = {j: here[j]._replace(samples=int(found.facts["samples"])) for j, found in theirs.items()}
        row = on_simplex(me.id, {**here, **heard})
        share = shares(me.id, row, theirs, self.keep_own)
        tensors = {me.id: me.model["prototypes"], **{j: found["prototypes"] for j, found in theirs.items()}}
        me.model["prototypes"].copy_(sum((share[j] * tensors[j] for j in sorted(share)), torch.zeros(())))
        if self.shares_backbone:
            alike = [j for j, found in theirs.items() if found.facts.get("architecture") == me.architecture.name]
            await self._average_backbones(me, row, alike)
        return row

    async def _average_backbones(self, me: Peer, row: Row, alike: Sequence[int]) -> None:
        mine = trained_part(me, "backbone")
        theirs = await me.fetch(alike, "backbone", like=mine)
        share = shares(me.id, row, theirs, self.keep_own)
        parts = {me.id: mine, **theirs}
        if theirs:
            me.model.load(mean([parts[j] for j in sorted(share)], [share[j] for j in sorted(share)]))


@dataclass(frozen=True)
class MAPLPlus(MAPL):
    title: ClassVar[str] = "MAPL+"
    summary: ClassVar[str] = "MAPL that also averages backbones, among peers of the same architecture"
    shares_backbone: ClassVar[bool] = True


def trained_part(me: Peer, part: str) -> dict[str, Tensor]:
    """The parameters of one part of one's model; statistics of its normalisation stay at home."""
    layout = me.model.layout
    return {slot.name: me.model[slot.name] for slot in layout.within(part) if slot.stop <= layout.trainable}


async def _note_embeddings(me: Peer) -> None:
    """For the report: of each class that one holds, the direction of the mean latent feature, and of the prototype.

    Means and no samples: notes are written into the folder of the run, which peers may lay together afterwards.
    """
    labels = me.labels()
    held = sorted(set(labels.tolist()))
    (said,) = await me.predict()
    means = [said.features[labels == k].mean(0) for k in held[:MOST_CLASSES]]
    me.note(features=_directions(held, torch.stack(means)), prototypes=_directions(held, me.model["prototypes"][held]))


def _directions(held: Collection[int], vectors: Tensor) -> dict[str, list[float]]:
    """Three decimals are enough to see."""
    rows = F.normalize(vectors, dim=-1).tolist()
    return {str(k): [round(x, 3) for x in row] for k, row in zip(held, rows, strict=False)}


def neighbours(me: Peer, row: Row) -> list[int]:
    return sorted(j for j, a in row.items() if a.weight > 0 and j != me.id)


def _keep(me: Peer, row: Row) -> None:
    me.state["row"] = [[j, a.weight, a.samples] for j, a in sorted(row.items())]


def _kept(me: Peer) -> Row:
    return {j: Acquaintance(weight, samples) for j, weight, samples in me.state["row"]}
