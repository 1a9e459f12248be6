"""FML and FedKD: a small model trains beside the peer's own, each learns from the other, and only the small is sent."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.core.artifact import sample_counts
from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood
from coterie.core.net import Net, Output, Seen
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE, UPDATE
from coterie.core.weights import Weights
from coterie.methods.base import Method, parameter
from coterie.methods.components.low_rank import added, difference, packed, unpacked
from coterie.models.parts import Part, Site
from coterie.models.zoo import build


def _mentee(site: Site) -> Net:
    """The small net, `model.mentee`, on the same inputs."""
    small = site.settings.mentee or ("lenet" if len(site.input_shape) == 3 else "mlp")
    return build(small, site.input_shape, site.classes, replace(site.settings, d_z=0), blocks=site.blocks)


def _with_mentee(mentee: Net, seen: Seen, out: Output) -> Output:
    return out.plus(mentee=mentee(seen.x))


def _adapter(site: Site) -> nn.Linear:
    return nn.Linear(site.net.mentee.d_z, site.net.d_z, bias=False)  # type: ignore[union-attr, arg-type]


def _with_adapter(adapter: nn.Linear, seen: Seen, out: Output) -> Output:  # noqa: ARG001
    return out.plus(adapted=adapter(mentee_of(out).features))


MENTEE = Part("mentee", _mentee, _with_mentee)
ADAPTER = Part("adapter", _adapter, _with_adapter)  # from the mentee's features to those of the peer's own net


def mentee_of(out: Output) -> Output:
    """The output of the small net."""
    mentee: Output = out.of("mentee")
    return mentee


def divergence(learner: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || learner) of predictions, mean over samples; no gradient reaches the teacher."""
    target = F.log_softmax(teacher, dim=-1).detach()
    return (target.exp() * (target - F.log_softmax(learner, dim=-1))).sum(-1).mean()


def fml_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Both models at once: the cross entropy of each, and its divergence from the other's prediction."""
    out = net(batch.x)
    mentee = mentee_of(out)
    own = given["alpha"] * negative_log_likelihood(out.logits, batch.y, batch.weights)
    own = own + (1 - given["alpha"]) * divergence(out.logits, mentee.logits)
    small = given["beta"] * negative_log_likelihood(mentee.logits, batch.y, batch.weights)
    small = small + (1 - given["beta"]) * divergence(mentee.logits, out.logits)
    return own + small


def fedkd_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """Cross entropy of both, and mutual distillation, which counts less while both models are still bad.

    Distillation of predictions (divergence) and of features (squared distance, through the adapter), divided by the sum
    of both cross entropies.
    """
    out = net(batch.x)
    mentee = mentee_of(out)
    own, small = (negative_log_likelihood(logits, batch.y, batch.weights) for logits in (out.logits, mentee.logits))
    total = (own + small).detach().clamp(min=1e-6)
    adapted: Tensor = out.of("adapted")
    distance = (out.features - adapted).square().mean()
    both = divergence(out.logits, mentee.logits) + divergence(mentee.logits, out.logits)
    return own + small + (both + 2 * distance) / total


@dataclass(frozen=True)
class FML(Method):
    summary: ClassVar[str] = "any architectures: only a small model is sent; it and the own model learn from each other"
    paper: ClassVar[str] = "Shen et al., Federated Mutual Learning, 2020"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    parts: ClassVar[tuple[str | Part, ...]] = (MENTEE,)

    alpha: float = parameter(
        0.5, "weight of cross entropy for the own model; the rest is distillation from the small one", least=0, most=1
    )
    beta: float = parameter(
        0.5, "weight of cross entropy for the small model; the rest is distillation from the own one", least=0, most=1
    )

    async def setup(self, me: Peer) -> None:
        await take_over(me, "global")

    async def round(self, me: Peer) -> None:
        device = me.model.vector.device
        weights = {key: torch.tensor(getattr(self, key), device=device) for key in ("alpha", "beta")}
        before = me.reference("mentee")
        await me.train(fml_loss, given=weights)
        me.shelve("mentee", me.model.part("mentee"), reference=before, samples=me.samples)
        await take_over(me, "global")

    async def serve(self, me: Peer) -> None:
        theirs = await me.fetch(me.peers, "mentee", like=me.model.part("mentee"), facts=["samples"])
        if theirs:
            me.model.load(me.average(theirs, sample_counts(theirs)))
        me.shelve("global", me.model.part("mentee"), made_from=AVERAGE)


async def take_over(me: Peer, name: str) -> bool:
    """Load the server's small model. The server also shelves it before round 1, so that all peers start equal."""
    part = me.model.part("mentee")
    if me.id == me.server:
        me.shelve(name, part, made_from=AVERAGE)
        return True
    models = await me.fetch(me.server, name, like=part)
    for small in models.values():
        me.model.load(small)
    return bool(models)


@dataclass(frozen=True)
class FedKD(Method):
    summary: ClassVar[str] = (
        "FML that also distils features, scales distillation by the losses, and sends low-rank updates"
    )
    paper: ClassVar[str] = "Wu et al., Communication-Efficient Federated Learning via Knowledge Distillation, 2022"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    parts: ClassVar[tuple[str | Part, ...]] = (MENTEE, ADAPTER)
    unforeseen: ClassVar[str] = "the rank of later updates: assumed to be as in the first rounds"

    energy: float = parameter(
        0.95, "share of an update's squared singular values that is kept, in the first round", above=0, most=1
    )
    energy_end: float = parameter(0.98, "the same share after `rise` rounds", above=0, most=1)
    rise: int = parameter(100, "rounds over which it rises from energy to energy_end", least=1)

    async def setup(self, me: Peer) -> None:
        await take_over(me, "whole")
        me.state["at"] = 0  # the round of the common small model that this peer has

    def energy_at(self, t: int) -> float:
        return self.energy + (self.energy_end - self.energy) * min(1.0, t / self.rise)

    async def round(self, me: Peer) -> None:
        before = me.model.part("mentee")
        await me.train(fedkd_loss)
        after = me.model.part("mentee")
        me.model.load(before)
        update = packed(difference(after, before), self.energy_at(me.round))
        me.shelve("update", update, made_from=UPDATE, samples=me.samples)
        await self.follow(me, before)

    async def follow(self, me: Peer, before: Weights) -> None:
        """Apply the server's update; a peer that has missed one loads the whole model."""
        for update in (await me.fetch(me.server, "global")).values():
            step = unpacked(update, before)
            if step is not None and update.round == me.round and me.state["at"] == me.round - 1:
                me.model.load(added(before, step))
                me.state["at"] = me.round
        if me.state["at"] != me.round and await take_over(me, "whole"):
            me.state["at"] = me.round

    async def serve(self, me: Peer) -> None:
        before = me.model.part("mentee")
        theirs = await me.fetch(me.peers, "update", facts=["samples"])
        steps = {j: step for j, sent in theirs.items() if (step := unpacked(sent, before)) is not None}
        if steps:
            shares = sample_counts({j: theirs[j] for j in steps})
            update = packed(me.average(steps, shares), self.energy_at(me.round))
        else:
            update = packed(difference(before, before), self.energy_at(me.round))
        step = unpacked(update, before)
        assert step is not None
        me.model.load(added(before, step))
        me.shelve("global", update, made_from=AVERAGE)
        me.shelve("whole", me.model.part("mentee"), made_from=AVERAGE)
