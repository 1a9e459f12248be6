"""What a client does with its experts, however they are exchanged: adapt heads, train, distil, mix (CompFL)."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.core.ensemble import Ensemble, Member
from coterie.core.loss import Loss, cross_entropy
from coterie.core.model_registry import labelled
from coterie.core.peer import Peer
from coterie.methods.components import heads
from coterie.methods.components.distillation import KL, aligned_loss, expert_weights, soft_targets
from coterie.methods.components.experts import can_train, expert
from coterie.methods.components.prototypes import class_means


class ExpertTraining:
    """A mixin of methods with these parameters. By expert, `me.state` holds its "anchors", "said" and "accuracy": the
    class means of its features, its predictions on the training data, and the merit of those on the validation data."""

    lam: float
    per_feature: bool
    scale_free: bool
    mu: float
    tau: float
    warmup: int
    reinit: bool
    adapt_epochs: int
    adapt_lr: float
    teachers: str
    predict: str
    kl: str

    async def adapt(self, me: Peer, kinds: Sequence[str]) -> None:
        """Fit heads to these experts' representations as received, and evaluate the experts."""
        models, labels = [expert(me, kind) for kind in kinds], me.labels()
        for kind, model, prediction in zip(kinds, models, await me.predict(models), strict=True):
            features = prediction.features
            prototypes = class_means(features, labels, len(model["head.weight"]))
            me.state["anchors"][kind] = anchors = prototypes["means"]
            if self.reinit or kind != me.kind:
                model.load(heads.head_from(**prototypes))
            if self.adapt_epochs:
                lr = min(self.adapt_lr, heads.stable_step(features))
                plain: dict[str, Any] = {"epochs": self.adapt_epochs, "lr": lr, "optimizer": "sgd", "momentum": 0.0}
                await me.train(heads.head_loss, model=model, only="head", on=(features, labels), **plain)
            me.state["said"][kind] = heads.probabilities(features, model)
            if self.lam:
                alignment = self.strength(anchors, self.lam) * heads.distance(features, labels, anchors)
                entropy = heads.cross_entropy_of(me.state["said"][kind], labels)
                me.note(**{f"lf_over_ce.{labelled(kind)}": alignment / entropy})
        merits = me.merits(await me.predict(models, "validation")) if models else []
        me.state["accuracy"].update(dict(zip(kinds, merits, strict=True)))

    async def train(self, me: Peer, kind: str, teachers: Collection[str], is_new: bool) -> None:
        """Train the whole expert; `teachers` are the experts that have been trained enough to teach."""
        model = expert(me, kind)
        received, own = model.copy(), kind == me.kind
        me.note(trained=kind, **({"helped": not own} if len(can_train(me)) > 1 else {}))
        targets = self.targets(me, kind, teachers) if self.mu and me.round > self.warmup else None
        lam = 0.0 if is_new else self.lam  # an untrained representation is not worth staying close to
        loss: Loss = cross_entropy
        given: dict[str, Tensor] = {}
        if lam or targets is not None:
            loss = aligned_loss if targets is None else KL[self.kl]
            given = self.given(me.state["anchors"][kind], lam)
        await me.train(loss, model=None if own else model, given=given, targets=targets)
        if not model.vector.isfinite().all():  # no other client would accept it
            model.load(received)
            me.note(diverged=True)

    def given(self, anchors: Tensor, lam: float) -> dict[str, Tensor]:
        """The inputs of the losses."""
        strengths = {"lam": self.strength(anchors, lam), "mu": self.mu}
        return {"anchors": anchors} | {k: torch.tensor(v, device=anchors.device) for k, v in strengths.items()}

    def strength(self, anchors: Tensor, lam: float) -> float:
        """The factor of the squared distance of features from their anchor, summed over features."""
        if self.scale_free:
            return lam / heads.mean_square(anchors)
        return lam / anchors.shape[1] if self.per_feature else lam

    def targets(self, me: Peer, kind: str, teachers: Collection[str]) -> Tensor | None:
        """For each training sample half its label, half the teachers' prediction; None without a teacher."""
        chosen = [k for k in can_train(me) if k != kind and k in teachers]
        if self.teachers == "held":
            chosen.append(kind)
        if not chosen:
            return None
        weights = expert_weights([me.state["accuracy"][k] for k in chosen], self.tau)
        return soft_targets(me.labels(), [me.state["said"][k] for k in chosen], weights)

    def offer_mixture(self, me: Peer) -> None:
        """The mixture of the client's experts, weighted as for teaching: to predict with, or to be measured beside."""
        kinds = [kind for kind in can_train(me) if kind in me.state["accuracy"]]
        weights = expert_weights([me.state["accuracy"][kind] for kind in kinds], self.tau)
        members = tuple(Member(f"{me.id}/{kind}/{me.state['mixed']}", expert(me, kind).copy()) for kind in kinds)
        mixture = Ensemble(members, weights=tuple(weights))
        if self.predict == "mixture":
            me.ensemble, me.beside = mixture, {"own": Ensemble(members[-1:])}
        else:
            me.beside = {"mixture": mixture}
        me.note(experts=dict(zip(kinds, weights, strict=True)))
