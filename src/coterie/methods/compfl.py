"""CompFL: clients of different strength train a common family of models, smaller ones too, and keep private heads.

An expert is an architecture of `model.zoo` with its common representation. A client owns one, by its strength, and may
train smaller ones. With a server, which averages each expert; device by device, where each walks from client to
client; or model by model, where the largest is trained first, by gossip, and teaches the smaller.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from coterie.core import randomness
from coterie.core.ensemble import Ensemble, Member
from coterie.core.loss import Loss, cross_entropy
from coterie.core.model import Model
from coterie.core.model_registry import ModelRegistry, labelled
from coterie.core.peer import Peer
from coterie.core.topology import check_connected, within
from coterie.core.weights import Weights, mean
from coterie.methods import experts
from coterie.methods.base import need, parameter
from coterie.methods.class_means import class_means, head_loss
from coterie.methods.fedavg import FedAvg, common_of
from coterie.methods.gossip import metropolis, neighbourhood
from coterie.methods.walks import Sign, Walk

SERVER, WALK, GOSSIP = SETTINGS = ("server", "device-by-device", "model-by-model")
TEACHERS = ("others", "held")
PREDICT = ("own", "mixture")
KL: dict[str, Loss] = {"usual": experts.taught_loss, "printed": experts.taught_as_printed_loss}


@dataclass(frozen=True)
class CompFL(FedAvg):
    summary: ClassVar[str] = "models of several sizes: strong clients help the small ones, and sizes teach each other"
    paper: ClassVar[str] = "Xu et al., Cooperative Multiple Model Training for Personalized Federated Learning, 2024"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)
    same_zoo: ClassVar[bool] = True
    paced: ClassVar[bool] = True

    setting: str = parameter(SERVER, f"how experts get around: {' | '.join(SETTINGS)}")
    epsilon: float = parameter(0.3, "probability that a client trains any expert that it can, instead of its own")
    lam: float = parameter(1.0, "weight of the distance of features to their class's anchor; 0: no alignment")
    per_feature: bool = parameter(True, "take the mean of that squared distance over features; false: the sum")
    scale_free: bool = parameter(
        False, "divide that distance by the anchors' mean squared length, so that the scale of features does not matter"
    )
    mu: float = parameter(1.0, "weight of what other experts teach; 0: no distillation")
    tau: float = parameter(0.1, "temperature of the experts' weights: the lower, the more the best one counts")
    warmup: int = parameter(10, "rounds before experts teach each other")
    reinit: bool = parameter(
        False, "begin each round with an own head that says which class's mean features are nearest"
    )
    adapt_epochs: int = parameter(0, "epochs on heads alone when an average has come, on the features as they are")
    adapt_lr: float = parameter(0.1, "and their learning rate, at most: less where features are long")
    teachers: str = parameter("others", "who teaches: the client's other experts | held (the learner as it came, too)")
    predict: str = parameter("own", "what a client predicts with: its own expert | mixture (of all that it holds)")
    kl: str = parameter("usual", "KL of target from prediction, as usual | printed: of prediction from target")

    def with_server(self) -> bool:
        return self.setting == SERVER

    def check(self, peers: int) -> None:
        super().check(peers)
        choices = {"setting": SETTINGS, "teachers": TEACHERS, "predict": PREDICT, "kl": tuple(KL)}
        for key, options in choices.items():
            need(getattr(self, key) in options, key, f"must be one of {', '.join(options)}, not '{getattr(self, key)}'")
        need(0 <= self.epsilon <= 1, "epsilon", f"must be from 0 to 1, not {self.epsilon}")
        for key in ("lam", "mu"):
            need(0 <= getattr(self, key) < math.inf, key, f"must be at least 0, not {getattr(self, key)}")
        for key in ("tau", "adapt_lr"):
            need(0 < getattr(self, key) < math.inf, key, f"must be above 0, not {getattr(self, key)}")
        for key in ("warmup", "adapt_epochs"):
            need(getattr(self, key) >= 0, key, f"must be at least 0, not {getattr(self, key)}")
        alone = self.setting == SERVER or self.fraction == 1
        need(alone, "fraction", f"is for setting = {SERVER}: without one, everybody is asked in every round")

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        """Model by model, an expert gets around only among those that can train it."""
        if self.setting != GOSSIP or links is None:
            return
        order = by_size(kinds)
        for i, kind in enumerate(order):
            able = [peer for peer, own in enumerate(architectures) if order.index(own) >= i]
            check_connected(within(links, able), f"those that can train {kind}")

    async def setup(self, me: Peer) -> None:
        if me.id == me.server:
            return
        assert me.kinds is not None
        count = len(all_experts(me))
        enough = self.setting != GOSSIP or me.rounds >= count
        need(enough, "setting", f"= {GOSSIP}: {count} experts, one after the other, need {count} rounds or more")
        smaller = {kind: me.kinds.network(kind).initial(me.seed) for kind in can_train(me)[:-1]}
        # By expert: the smaller models; the classes' mean features; what it says of the training data; how good it is.
        me.state |= {"experts": smaller, "anchors": {}, "said": {}, "accuracy": {}}
        if self.setting == WALK:
            me.state |= {"walks": {}, "carried": {}, "early": {}}
            for kind in all_experts(me):
                begin_walk(me, kind)
        await self.adapt(me, can_train(me))

    async def round(self, me: Peer, t: int) -> None:
        if self.setting == SERVER:
            await self.with_the_server(me, t)
        elif self.setting == WALK:
            await self.device_by_device(me, t)
        else:
            await self.model_by_model(me, t)
        me.state["mixed"] = t
        self.offer_mixture(me)

    def revive(self, me: Peer) -> None:
        if "mixed" in me.state:
            self.offer_mixture(me)

    # -- the three settings --------------------------------------------------------------------

    async def with_the_server(self, me: Peer, t: int) -> None:
        mine = can_train(me)
        if self.takes_part(me, t):
            kind = experts.pick(mine, self.epsilon, me.rng("expert"))
            await self.train(me, kind, t, teachers=mine, is_new=t == 1)
            body = expert(me, kind).part("backbone")
            me.shelve("update", body, samples=me.samples, kind=labelled(kind))
        assert me.server is not None
        for kind in mine:
            model = expert(me, kind)
            for common in (await me.fetch(me.server, common_of(kind), like=model.part("backbone"))).values():
                model.load(common)
        await self.adapt(me, mine)

    async def model_by_model(self, me: Peer, t: int) -> None:
        """The largest first; who cannot train it waits. Neighbours average by Metropolis' weights."""
        order = all_experts(me)[::-1]
        kind = order[min((t - 1) * len(order) // me.rounds, len(order) - 1)]
        model = expert(me, kind) if kind in can_train(me) else None
        if model is not None:
            phase = order.index(kind)
            is_new = t == 1 or phase > (t - 2) * len(order) // me.rounds
            await self.train(me, kind, t, teachers=order[:phase], is_new=is_new)
            me.shelve(walker(kind), model.part("backbone"))
        # Also the pace: who has nothing to train must not run ahead.
        me.shelve("turn", {}, trains=model is not None, near=neighbourhood(me))
        turns = await me.fetch(me.peers, "turn", facts=["near"])
        if model is not None:
            near = {j: float(turn.facts["near"]) for j, turn in turns.items() if turn.facts.get("trains") is True}
            others = await me.fetch(near, walker(kind), like=model.part("backbone"))
            shares = metropolis(me, {j: near[j] for j in others})
            bodies = {**others, me.id: model.part("backbone")}
            model.load(mean(list(bodies.values()), [shares[j] for j in bodies]))
            me.note(neighbours=list(others), weights=shares)
            await self.adapt(me, [kind])

    async def device_by_device(self, me: Peer, t: int) -> None:
        """Hear where the experts are; whoever one has come to trains it, or just sends it on."""
        me.shelve("walks", {labelled(kind): _row(walk_of(me, kind).sign) for kind in all_experts(me)})
        heard = await me.fetch(me.peers, "walks")
        for kind in all_experts(me):
            signs = [_sign(said.get(labelled(kind))) for said in heard.values()]
            walk = walk_of(me, kind).heard(sign for sign in signs if sign is not None)
            if walk.is_lost_to(me.id, reach(me), t):
                walk = walk.anew(me.id, t)
                me.note(**{f"found.{labelled(kind)}": walk.sign.hop})
            keep_walk(me, kind, walk)
            take_in(me, kind, t)
            if walk_of(me, kind).holds:
                await self.visit(me, kind, t, list(heard) or list(me.peers))

    async def visit(self, me: Peer, kind: str, t: int, near: Sequence[int]) -> None:
        """Train the expert that is here (one's own always, a smaller one with probability epsilon), and send it on."""
        mine = can_train(me)
        if kind in mine:
            await self.adapt(me, [kind])
            if kind == mine[-1] or me.rng("help").random() < self.epsilon:
                known = [k for k in mine if walk_of(me, k).had]
                await self.train(me, kind, t, teachers=known, is_new=walk_of(me, kind).sign.hop == 1)
        walk = walk_of(me, kind).present(t)
        keep_walk(me, kind, walk)
        me.note(**{f"hop.{labelled(kind)}": walk.sign.hop})
        for j in me.rng("way").permutation(near).tolist():
            if await me.send(j, walker(kind), body_of(me, kind), **asdict(walk.on_its_way())):
                keep_walk(me, kind, walk.left())
                return
            walk = walk.not_taken(me.id, t)
            keep_walk(me, kind, walk)

    # -- what a client does with its experts -----------------------------------------------------

    async def adapt(self, me: Peer, kinds: Sequence[str]) -> None:
        """Fit heads to these experts' representations as they came, and find out how good they are."""
        models, labels = [expert(me, kind) for kind in kinds], me.labels()
        for kind, model, said in zip(kinds, models, await me.predict(models), strict=True):
            found = class_means(said.features, labels, len(model["head.weight"]))
            me.state["anchors"][kind] = found["means"]
            if self.reinit or kind != me.kind:
                model.load(experts.head_from(**found))
            if self.adapt_epochs:
                lr = min(self.adapt_lr, experts.stable_step(said.features))
                plain: dict[str, Any] = {"epochs": self.adapt_epochs, "lr": lr, "optimizer": "sgd", "momentum": 0.0}
                await me.train(head_loss, model=model, only="head", on=(said.features, labels), **plain)
            me.state["said"][kind] = experts.probabilities(said.features, model)
            if self.lam:
                apart = experts.distance(said.features, labels, found["means"])
                entropy = experts.cross_entropy_of(me.state["said"][kind], labels)
                strength = self.strength(found["means"], self.lam)
                me.note(**{f"lf_over_ce.{labelled(kind)}": strength * apart / entropy})
        scores = await me.evaluate(models, "validation")
        me.state["accuracy"].update({kind: score.accuracy for kind, score in zip(kinds, scores, strict=True)})

    async def train(self, me: Peer, kind: str, t: int, teachers: Collection[str], is_new: bool) -> None:
        """All of the model at once; `teachers` are the experts that have learned enough to teach."""
        model = expert(me, kind)
        came, own = model.copy(), kind == me.kind
        me.note(trained=kind, **({"helped": not own} if len(can_train(me)) > 1 else {}))
        targets = self.targets(me, kind, teachers) if self.mu and t > self.warmup else None
        lam = 0.0 if is_new else self.lam  # what nobody has trained yet is no representation to stay with
        loss: Loss = cross_entropy
        given: dict[str, Tensor] = {}
        if lam or targets is not None:
            loss = experts.aligned_loss if targets is None else KL[self.kl]
            given = self.given(me.state["anchors"][kind], lam)
        await me.train(loss, model=None if own else model, given=given, targets=targets)
        if not model.vector.isfinite().all():  # nobody would take it from here
            model.load(came)
            me.note(diverged=True)

    def given(self, anchors: Tensor, lam: float) -> dict[str, Tensor]:
        """What the losses want to know."""
        strengths = {"lam": self.strength(anchors, lam), "mu": self.mu}
        return {"anchors": anchors} | {k: torch.tensor(v, device=anchors.device) for k, v in strengths.items()}

    def strength(self, anchors: Tensor, lam: float) -> float:
        """What the squared distance of features from their anchor, summed over features, is multiplied by."""
        if self.scale_free:
            return lam / experts.mean_square(anchors)
        return lam / anchors.shape[1] if self.per_feature else lam

    def targets(self, me: Peer, kind: str, teachers: Collection[str]) -> Tensor | None:
        """For each training sample half its label, half what the teachers say; None without a teacher."""
        chosen = [k for k in can_train(me) if k != kind and k in teachers]
        if self.teachers == "held":
            chosen.append(kind)
        if not chosen:
            return None
        weights = experts.expert_weights([me.state["accuracy"][k] for k in chosen], self.tau)
        return experts.soft_targets(me.labels(), [me.state["said"][k] for k in chosen], weights)

    def offer_mixture(self, me: Peer) -> None:
        """The mixture of one's experts, weighted as when they teach: to predict with, or to be measured beside."""
        kinds = [kind for kind in can_train(me) if kind in me.state["accuracy"]]
        weights = experts.expert_weights([me.state["accuracy"][kind] for kind in kinds], self.tau)
        members = tuple(Member(f"{me.id}/{kind}/{me.state['mixed']}", expert(me, kind).copy()) for kind in kinds)
        mixture = Ensemble(members, weights=tuple(weights))
        if self.predict == "mixture":
            me.ensemble, me.beside = mixture, {"own": Ensemble(members[-1:])}
        else:
            me.beside = {"mixture": mixture}
        me.note(experts=dict(zip(kinds, weights, strict=True)))


def trainings(setting: str, owners: Sequence[float], epsilon: float) -> list[float]:
    """How often each expert is trained in a round, in the mean, where so many clients own each; the smallest first."""
    count, everybody = len(owners), sum(owners)
    found = []
    for i, own in enumerate(owners):
        stronger = sum(owners[i + 1 :])
        if setting == WALK:  # one client holds it
            found.append((own + epsilon * stronger) / everybody)
        elif setting == GOSSIP:  # in its share of the rounds, all that can train it do
            found.append((own + stronger) / count)
        else:
            helping = sum(those / (j + 1) for j, those in enumerate(owners) if j >= i)
            found.append((1 - epsilon) * own + epsilon * helping)
    return found


# -- which experts there are ---------------------------------------------------------------------


def by_size(kinds: ModelRegistry) -> list[str]:
    """The smallest first."""
    return sorted(set(kinds.zoo), key=lambda kind: (kinds.network(kind).layout.trainable, kind))


def all_experts(me: Peer) -> list[str]:
    assert me.kinds is not None
    return by_size(me.kinds)


def can_train(me: Peer) -> list[str]:
    """Those up to one's own, which is the last."""
    everything = all_experts(me)
    return everything[: everything.index(me.kind) + 1]


def expert(me: Peer, kind: str) -> Model:
    if kind == me.kind:
        return me.model
    assert me.kinds is not None
    return me.kinds.network(kind).view(me.state["experts"][kind])


# -- walking ---------------------------------------------------------------------------------------


def walker(kind: str) -> str:
    return f"expert.{labelled(kind)}"


def walk_of(me: Peer, kind: str) -> Walk:
    saved = me.state["walks"][kind]
    return Walk(Sign(**saved["sign"]), saved["had"], saved["holds"])


def keep_walk(me: Peer, kind: str, walk: Walk) -> None:
    me.state["walks"][kind] = asdict(walk)


def begin_walk(me: Peer, kind: str) -> None:
    """Somebody whom all agree on has each expert at first."""
    everybody = sorted([me.id, *me.circle])
    first = everybody[randomness.number(me.seed, "walk", labelled(kind)) % len(everybody)]
    walk = Walk()
    keep_walk(me, kind, walk.arrived(Sign(hop=1), 0) if me.id == first else walk)


def take_in(me: Peer, kind: str, t: int) -> None:
    """The expert, if it has come: a hop a round. A twin, or one of a lineage that is given up, is not taken."""
    came: list[tuple[dict[str, int], Weights]] = me.state["early"].pop(kind, [])
    for letter in me.inbox(walker(kind)):
        wrong = letter.misfit(body_of(me, kind), ())
        sign = _sign(torch.tensor([letter.facts.get(key, -1) for key in ("branch", "creator", "round", "hop")]))
        if wrong or sign is None:
            me.decline({letter.author: wrong or "it does not say which way it has come"})
        else:
            came.append((asdict(sign), Weights.of(letter)))
    for said, body in came:
        walk = walk_of(me, kind)
        arrived = walk.arrived(Sign(**said), t)
        if said["round"] >= t:  # its sender is a round ahead
            me.state["early"].setdefault(kind, []).append((said, body))
        elif arrived is not walk:
            keep_walk(me, kind, arrived)
            load_body(me, kind, body)


def reach(me: Peer) -> int:
    """How many rounds what one peer says may take to be everywhere."""
    return 1 if me.links is None else len(me.circle)


def body_of(me: Peer, kind: str) -> Weights:
    """What this client has of an expert: also one that it cannot train, as it was when it was last here."""
    if kind in can_train(me):
        return expert(me, kind).part("backbone")
    assert me.kinds is not None
    carried: dict[str, Weights] = me.state["carried"]
    return carried.get(kind) or me.kinds.network(kind).initial(me.seed).part("backbone")


def load_body(me: Peer, kind: str, body: Mapping[str, Tensor]) -> None:
    if kind in can_train(me):
        expert(me, kind).load(body)
    else:
        me.state["carried"][kind] = Weights.of(body)


def _row(sign: Sign) -> Tensor:
    return torch.tensor([sign.branch, sign.creator, sign.round, sign.hop])


def _sign(row: Tensor | None) -> Sign | None:
    """What somebody says of a walker, if it can be that."""
    if row is None or row.shape != (4,) or row.dtype != torch.int64:
        return None
    branch, creator, round, hop = row.tolist()
    return Sign(branch, creator, round, hop) if min(branch, creator + 1, round, hop) >= 0 else None
