"""MAPL: peers of any architecture share prototypes, and learn from which peers to learn (Mukherjee et al.).

Two modules. *Personalised model learning*, in this file: a loss that pulls samples of a class together, and towards a
prototype of the class, which neighbours average. *Collaborative graph learning*, in components/graph_learning.py: each
peer learns the weights of its neighbours from the similarity of their classifier heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.artifact import Fact
from coterie.core.loss import Loss
from coterie.core.merging import weighted_sum
from coterie.core.named_code import find_function
from coterie.core.peer import Peer
from coterie.core.release import PARAMETERS
from coterie.core.weights import Weights
from coterie.methods.base import parameter
from coterie.methods.components import collaboration
from coterie.methods.components.collaboration import Acquaintance, Row, neighbours, on_simplex
from coterie.methods.components.embeddings import FIGURES, note_embeddings
from coterie.methods.components.graph_learning import GraphLearning
from coterie.methods.components.projection import PROJECTOR, PROTOTYPES
from coterie.methods.figures import Described
from coterie.methods.mapl_losses import GIVEN, LOSSES
from coterie.models.parts import Part


@dataclass(frozen=True)
class MAPL(GraphLearning):
    summary: ClassVar[str] = (
        "any architectures: share prototypes, with peer weights learned from the similarity of heads"
    )
    paper: ClassVar[str] = "Mukherjee et al., MAPL: Model Agnostic Peer-to-peer Learning, 2024"
    mixed: ClassVar[bool] = True
    same_features: ClassVar[bool] = True
    parts: ClassVar[tuple[str | Part, ...]] = (PROJECTOR, PROTOTYPES)
    figures: ClassVar[tuple[Described, ...]] = FIGURES
    views: ClassVar[int] = 2
    shares_backbone: ClassVar[bool] = False  # whether backbones of one architecture are averaged as well (MAPL+)

    ce: float = parameter(1.0, "weight of the cross entropy; 0: off", least=0)
    contrast: float = parameter(1.0, "weight of the supervised contrastive loss; 0: off", least=0)
    proto: float = parameter(1.0, "weight of the loss that pulls samples towards prototypes; 0: off", least=0)
    uniform: float = parameter(1.0, "weight of the loss that pushes prototypes apart; 0: off", least=0)
    tau: float = parameter(
        0.5,
        "temperature of the supervised contrastive loss (the paper: 100)",
        common="temperature of contrast",
        above=0,
    )
    tau_proto: float = parameter(
        0.0,
        "temperature of the loss that pulls samples towards prototypes (paper presets: 1); 0: the same as tau",
        least=0,
    )
    losses: str = parameter(
        "paper",
        "form of these losses: paper (as printed) | authors (as in their code) | module:callable of yours",
        function=True,
    )
    keep_own: bool = parameter(
        True,
        "the peer's own prototypes (and backbone) count at least as much as the mean neighbour's; false: as printed",
    )

    @cached_property  # resolved once: editing the file later does not change a run in progress
    def _loss(self) -> Loss:
        return find_function("losses", self.losses, LOSSES, "net, batch, given")

    def check(self, peers: int) -> None:
        super().check(peers)
        _ = self._loss  # raises if the function cannot be found

    async def setup(self, me: Peer) -> None:
        # Every peer draws its own initial weights, as in the paper: heads that start equal would stay similar, whatever
        # their data. Only backbones that will be averaged start equal.
        fresh = me.own_initial()
        me.model.load(
            {name: fresh[name] for name in fresh if not (self.shares_backbone and name.startswith("backbone."))}
        )
        collaboration.save_row(me, {me.id: Acquaintance(1.0, me.samples)})

    async def round(self, me: Peer) -> None:
        terms = {**{key: getattr(self, key) for key in GIVEN}, "tau_proto": self.tau_proto or self.tau}
        device = me.model.vector.device
        before = me.reference()
        await me.train(self._loss, views=2, given={k: torch.tensor(v, device=device) for k, v in terms.items()})
        self._shelve(me, before)
        if me.round in (self.t_thr, me.rounds):  # before and after graph learning, as in the paper's Figure 4
            await note_embeddings(me)
        row = await self._average(me, await self.collaborators(me))
        collaboration.save_row(me, row)
        me.note(weights={j: a.weight for j, a in row.items() if a.weight > 0}, neighbours=neighbours(me, row))

    def _shelve(self, me: Peer, before: Weights | None) -> None:
        references = {} if before is None else self._artifacts(before)
        facts: dict[str, Fact] = {"samples": me.samples, "architecture": me.architecture.name}
        for name, tensors in self._artifacts(me.model).items():
            me.shelve(name, tensors, made_from=PARAMETERS, reference=references.get(name), **facts)

    def _artifacts(self, model: Weights) -> dict[str, dict[str, Tensor]]:
        """What a peer shares of its model, by the name of the artifact. Prototypes are parameters, too: they train."""
        artifacts = {"prototypes": {"prototypes": model["prototypes"]}}
        if self.graph:  # from the first round: a faster peer may already ask for it
            artifacts["head"] = {"weight": model["head.weight"]}
        if self.shares_backbone:
            artifacts["backbone"] = trained_part(model, "backbone")
        return artifacts

    async def _average(self, me: Peer, row: Row) -> Row:
        """Average the prototypes (in MAPL+ also the backbones) of the peers that have weight and answer."""
        own = {"prototypes": me.model["prototypes"]}
        theirs = await me.fetch(neighbours(me, row), "prototypes", like=own, facts=["samples"])
        present = {j: a for j, a in row.items() if a.weight == 0 or j in theirs or j == me.id}
        updated = {j: present[j]._replace(samples=int(sent.facts["samples"])) for j, sent in theirs.items()}
        row = on_simplex(me.id, {**present, **updated})
        share = collaboration.shares(me.id, row, theirs, self.keep_own)
        prototypes = {me.id: own, **theirs}
        me.model.load(me.average({j: prototypes[j] for j in sorted(share)}, share, default=weighted_sum))
        if self.shares_backbone:
            same = [j for j, sent in theirs.items() if sent.facts.get("architecture") == me.architecture.name]
            await self._average_backbones(me, row, same)
        return row

    async def _average_backbones(self, me: Peer, row: Row, same: Sequence[int]) -> None:
        """Among these peers, which have the same architecture."""
        own = trained_part(me.model, "backbone")
        theirs = await me.fetch(same, "backbone", like=own)
        share = collaboration.shares(me.id, row, theirs, self.keep_own)
        backbones = {me.id: own, **theirs}
        if theirs:
            me.model.load(me.average({j: backbones[j] for j in sorted(share)}, share))


@dataclass(frozen=True)
class MAPLPlus(MAPL):
    title: ClassVar[str] = "MAPL+"
    summary: ClassVar[str] = "MAPL that also averages backbones, among peers of the same architecture"
    shares_backbone: ClassVar[bool] = True


def trained_part(model: Weights, part: str) -> dict[str, Tensor]:
    """The trained parameters of one part of a model; statistics of its normalisation layers are not shared."""
    layout = model.layout
    return {slot.name: model[slot.name] for slot in layout.within(part) if slot.stop <= layout.trainable}
