"""CompFL: clients of different strength train a common family of models, also smaller ones, and keep private heads.

An expert is an architecture of `model.zoo` with its common representation. A client owns one expert, by its strength,
and may train smaller ones. Experts are exchanged in one of three ways: a server averages each; they walk from client to
client (device by device); or the largest is trained first, by gossip, and then teaches the smaller (model by model).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.model_registry import ModelRegistry, labelled
from coterie.core.peer import Peer
from coterie.core.release import BOOKKEEPING
from coterie.core.task import CLASSIFICATION
from coterie.core.topology import check_connected, within
from coterie.core.weights import Weights
from coterie.methods.base import need, parameter
from coterie.methods.components import expert_walks as walks
from coterie.methods.components.expert_training import ExpertTraining
from coterie.methods.components.experts import (
    GOSSIP,
    SERVER,
    SETTINGS,
    WALK,
    all_experts,
    by_size,
    can_train,
    expert,
    pick,
)
from coterie.methods.fedavg import FedAvg, common_of
from coterie.methods.figures import Described
from coterie.methods.gossip import metropolis, neighbourhood
from coterie.methods.notes import LAST, MEAN, Declared, Note, Predictor

TEACHERS = {"others": "", "held": "also the learner, as received"}
PREDICT = {"own": "expert", "mixture": "of all experts that it holds"}


@dataclass(frozen=True)
class CompFL(ExpertTraining, FedAvg):
    summary: ClassVar[str] = "models of several sizes: strong clients also train small ones, and sizes teach each other"
    paper: ClassVar[str] = "Xu et al., Cooperative Multiple Model Training for Personalized Federated Learning, 2024"
    shared: ClassVar[tuple[str, ...]] = ("backbone",)
    same_zoo: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)  # experts are aligned and adapted class by class
    figures: ClassVar[tuple[Described, ...]] = (walks.ROUTES,)
    notes: ClassVar[tuple[Declared, ...]] = (
        Predictor("mixture", "a mixture of a peer's models"),
        Predictor("own", "a peer's own model alone"),
        Note("helped", curve=False, summary=MEAN, label="rounds in which strong peers helped", form=".0%"),
        Note("lf_over_ce.", summary=LAST),  # for each expert, at the start of training
    )
    paced: ClassVar[bool] = True

    setting: str = parameter(SERVER, "how experts are exchanged", choices=SETTINGS)
    epsilon: float = parameter(
        0.3, "probability that a client trains any expert that it can, instead of its own", least=0, most=1
    )
    lam: float = parameter(1.0, "weight of the distance of features to their class's anchor; 0: no alignment", least=0)
    per_feature: bool = parameter(True, "take the mean of that squared distance over features; false: the sum")
    scale_free: bool = parameter(
        False, "divide that distance by the anchors' mean squared length, so that the scale of features does not matter"
    )
    mu: float = parameter(1.0, "weight of distillation from other experts; 0: no distillation", least=0)
    tau: float = parameter(0.1, "temperature of the experts' weights: the lower, the more the best one counts", above=0)
    warmup: int = parameter(10, "rounds before experts teach each other", least=0)
    reinit: bool = parameter(
        False, "begin each round with an own head that predicts the class whose mean features are nearest"
    )
    adapt_epochs: int = parameter(
        0, "epochs on heads alone after an average has been received, on fixed features", least=0
    )
    adapt_lr: float = parameter(0.1, "largest learning rate of these epochs: lower where features are long", above=0)
    teachers: str = parameter("others", "teachers among the client's experts", choices=TEACHERS)
    predict: str = parameter("own", "what a client predicts with", choices=PREDICT)
    kl: str = parameter(
        "usual",
        "direction of the KL divergence",
        choices={"usual": "of target from prediction", "printed": "of prediction from target"},
    )

    def with_server(self) -> bool:
        return self.setting == SERVER

    def check(self, peers: int) -> None:
        super().check(peers)
        alone = self.setting == SERVER or self.fraction == 1
        need(alone, "fraction", f"only applies to setting = {SERVER}: without a server, every client takes part")

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        """Model by model, an expert spreads only among the clients that can train it: the graph must connect these."""
        if self.setting != GOSSIP or links is None:
            return
        order = by_size(kinds)
        for i, kind in enumerate(order):
            able = [peer for peer, own in enumerate(architectures) if order.index(own) >= i]
            check_connected(within(links, able), f"those that can train {kind}")

    async def setup(self, me: Peer) -> None:
        if me.id == me.server:
            return
        count = len(all_experts(me))
        enough = self.setting != GOSSIP or me.rounds >= count
        need(enough, "setting", f"= {GOSSIP}: {count} experts, one after the other, need {count} rounds or more")
        smaller = {kind: me.kinds.network(kind).initial(me.seed) for kind in can_train(me)[:-1]}
        me.state |= {"experts": smaller, "anchors": {}, "said": {}, "accuracy": {}}
        if self.setting == WALK:
            me.state |= {"walks": {}, "carried": {}, "early": {}}
            for kind in all_experts(me):
                walks.start_walk(me, kind)
        await self.adapt(me, can_train(me))

    async def round(self, me: Peer) -> None:
        if self.setting == SERVER:
            await self.with_the_server(me)
        elif self.setting == WALK:
            await self.device_by_device(me)
        else:
            await self.model_by_model(me)
        me.state["mixed"] = me.round
        self.offer_mixture(me)

    def revive(self, me: Peer) -> None:
        if "mixed" in me.state:
            self.offer_mixture(me)

    async def with_the_server(self, me: Peer) -> None:
        """Train one expert; then take over the average of each that the client can train."""
        held = can_train(me)
        if self.takes_part(me):
            kind = pick(held, self.epsilon, me.rng("expert"))
            before = me.reference("backbone", model=expert(me, kind))
            await self.train(me, kind, teachers=held, is_new=me.round == 1)
            trained = expert(me, kind).part("backbone")
            me.shelve("update", trained, reference=before, samples=me.samples, kind=labelled(kind))
        for kind in held:
            model = expert(me, kind)
            for common in (await me.fetch(me.server, common_of(kind), like=model.part("backbone"))).values():
                model.load(common)
        await self.adapt(me, held)

    async def device_by_device(self, me: Peer) -> None:
        """Learn where the experts are; train the one that has come, or just send it on."""
        walks.shelve_signs(me)
        signs = await me.fetch(me.peers, "walks")
        for kind in all_experts(me):
            walks.merge_signs(me, kind, signs.values())
            walks.take_in(me, kind)
            if walks.walk_of(me, kind).holds:
                await self.visit(me, kind, list(signs) or list(me.peers))

    async def visit(self, me: Peer, kind: str, near: Sequence[int]) -> None:
        """Train the expert that is here (the client's own always, a smaller one with probability epsilon)."""
        held = can_train(me)
        before: Weights | None = None
        if kind in held:
            before = me.reference("backbone", model=expert(me, kind))
            await self.adapt(me, [kind])
            if kind == held[-1] or me.rng("help").random() < self.epsilon:
                known = [k for k in held if walks.walk_of(me, k).had]
                await self.train(me, kind, teachers=known, is_new=walks.walk_of(me, kind).sign.hop == 1)
        walk = walks.walk_of(me, kind).stay(me.round)
        walks.keep_walk(me, kind, walk)
        me.note(**{f"hop.{labelled(kind)}": walk.sign.hop})
        await walks.send_on(me, kind, me.rng("way").permutation(near).tolist(), before)

    async def model_by_model(self, me: Peer) -> None:
        """The largest expert first; a client that cannot train it waits. Neighbours average by Metropolis weights."""
        order = all_experts(me)[::-1]
        kind = order[min((me.round - 1) * len(order) // me.rounds, len(order) - 1)]
        model = expert(me, kind) if kind in can_train(me) else None
        if model is not None:
            phase = order.index(kind)
            is_new = me.round == 1 or phase > (me.round - 2) * len(order) // me.rounds
            before = me.reference("backbone", model=model)
            await self.train(me, kind, teachers=order[:phase], is_new=is_new)
            me.shelve(walks.walker(kind), model.part("backbone"), reference=before)
        # This also sets the pace: a client with nothing to train must not run ahead.
        me.shelve("turn", {}, made_from=BOOKKEEPING, trains=model is not None, near=neighbourhood(me))
        turns = await me.fetch(me.peers, "turn", facts=["near"])
        if model is not None:
            near = {j: float(turn.facts["near"]) for j, turn in turns.items() if turn.facts.get("trains") is True}
            others = await me.fetch(near, walks.walker(kind), like=model.part("backbone"))
            shares = metropolis(me, {j: near[j] for j in others})
            backbones = {**others, me.id: model.part("backbone")}
            model.load(me.average(backbones, shares))
            me.note(neighbours=list(others), weights=shares)
            await self.adapt(me, [kind])
