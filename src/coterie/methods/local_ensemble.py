"""The local ensemble: several models of one peer, each stopped at its best epoch (also FedPAE's local part)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coterie.core.ensemble import VOTES, Ensemble, Member
from coterie.core.jobs import OptimizerMemory
from coterie.core.loss import task_loss
from coterie.core.model import Model
from coterie.core.model_registry import ModelRegistry
from coterie.core.peer import Peer
from coterie.core.task import REGRESSION, TASKS, task_of
from coterie.methods.base import Method, need, parameter
from coterie.methods.components.own_models import (
    STOPS,
    Own,
    class_weights,
    kinds_of,
    model_of,
    own_members,
    remember_best,
    weighted,
)
from coterie.portable.estimators import is_estimator


@dataclass(frozen=True)
class LocalEnsemble(Method):
    title: ClassVar[str] = "Local ensemble"
    summary: ClassVar[str] = "the peer's own models, each stopped at its best epoch, vote; nothing is exchanged"
    paper: ClassVar[str] = "the baseline of Mueller et al., FedPAE, 2024"
    mixed: ClassVar[bool] = True
    any_model: ClassVar[bool] = True
    ensembles: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS
    unforeseen: ClassVar[str] = (
        "when models stop improving and training ends: training to the last round is an upper bound"
    )

    models: int = parameter(
        0, "models of model.zoo that each peer trains, starting with its own; 0: one of each", least=0
    )
    patience: int = parameter(
        50,
        "epochs without a better result on the validation data, by `stop`, after which training of a model ends",
        least=1,
    )
    stop: str = parameter("accuracy", "measure of the best epoch, on the validation data", choices=STOPS)
    balanced: bool = parameter(False, "weight training samples by class, so that all classes of a peer count alike")
    vote: str = parameter("soft", "how members vote", choices=VOTES)

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        super().check_circle(architectures, kinds, links)
        if task_of(kinds.classes) == REGRESSION:
            need(self.vote == "soft", "vote", "must be soft for regression: the mean of the predicted numbers")
            need(not self.balanced, "balanced", "is for classes, but the labels are numbers")

    async def setup(self, me: Peer) -> None:
        me.state["own"] = [{"kind": kind, "ready": False, "stale": 0} for kind in kinds_of(me, self.models)]

    async def round(self, me: Peer) -> None:
        await self.train(me)
        self.revive(me)

    def revive(self, me: Peer) -> None:
        me.ensemble = self.ensemble(own_members(me).values())

    def ensemble(self, members: Iterable[Member]) -> Ensemble | None:
        chosen = tuple(members)
        return Ensemble(chosen, self.vote) if chosen else None

    async def train(self, me: Peer) -> None:
        """One epoch of every model whose training has not ended. It ends in the last round of the run at the latest."""
        for slot, own in enumerate(me.state["own"]):
            if not own["ready"]:
                await (self.fit(me, own) if is_estimator(own["kind"]) else self.train_network(me, slot, own))
                if own["ready"] and "best" in own:
                    await self.ready(me, slot, own)

    async def train_network(self, me: Peer, slot: int, own: Own) -> None:
        model = model_of(me, own["kind"], own["model"]) if "model" in own else self.initial(me, slot, own)
        assert isinstance(model, Model)
        memory = OptimizerMemory(**own.get("optimizer", {}))  # rounds are slices of one training
        loss, given = (weighted, {"weights": class_weights(me)}) if self.balanced else (task_loss, {})
        await me.train(loss, model=model, given=given, epochs=1, memory=memory)
        own.update(model=model, optimizer=dict(vars(memory)), stale=own["stale"] + 1)
        await remember_best(me, own, model, self.stop)
        if own["stale"] >= self.patience or me.round >= me.rounds:
            own["ready"] = True
            del own["model"], own["optimizer"]

    def initial(self, me: Peer, slot: int, own: Own) -> Model:
        """A network before its training."""
        return me.own_initial(own["kind"], slot)

    async def fit(self, me: Peer, own: Own) -> None:
        model = await me.fit(own["kind"])
        await remember_best(me, own, model, self.stop)
        own["ready"] = True

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        """Called once for each model, when it will not change any more."""
        if own["kind"] == me.architecture.name and slot == 0:
            me.model.load(own["best"].content)
