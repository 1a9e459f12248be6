"""Several models of one's own, each stopped when it is best: the local ensemble, and the half of FedPAE that is alone.

What a peer knows of one of its models is a table in `me.state["own"]`: its kind, its weights as they are and as they
were at their best, what its optimiser remembers, what the best says of the validation data, and whether it is ready.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from coterie.core.ensemble import VOTES, Ensemble, Member
from coterie.core.errors import ModelError
from coterie.core.jobs import OptimizerMemory
from coterie.core.loss import Batch, BoundNet, Given, cross_entropy, sample_cross_entropy
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.core.portable_model import Portable
from coterie.core.weights import Frozen, Weights
from coterie.methods.base import Method, need, parameter
from coterie.portable.estimators import is_estimator

Own = dict[str, Any]
STOPS = ("accuracy", "loss")


@dataclass(frozen=True)
class LocalEnsemble(Method):
    title: ClassVar[str] = "Local ensemble"
    summary: ClassVar[str] = "nobody is asked: one's own models, each stopped when it is best, vote"
    paper: ClassVar[str] = "the baseline of Mueller et al., FedPAE, 2024"
    mixed: ClassVar[bool] = True
    any_model: ClassVar[bool] = True
    ensembles: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "when models get no better, and stop: training to the last round is an upper bound"

    models: int = parameter(0, "models of model.zoo that each peer trains, from its own on; 0: one of each")
    patience: int = parameter(
        50, "epochs without a better result on the validation data, by `stop`, after which a model is ready"
    )
    stop: str = parameter("accuracy", "what the best epoch is judged by, on the validation data: accuracy | loss")
    balanced: bool = parameter(False, "weigh training samples by class, so that all classes of a peer count alike")
    vote: str = parameter("soft", "soft (by the members' mean probability) | hard (by what most of them name)")

    def check(self, peers: int) -> None:  # noqa: ARG002
        need(self.models >= 0, "models", f"must be at least 0, not {self.models}")
        need(self.patience >= 1, "patience", f"must be at least 1, not {self.patience}")
        need(self.stop in STOPS, "stop", f"must be one of {', '.join(STOPS)}, not '{self.stop}'")
        need(self.vote in VOTES, "vote", f"must be one of {', '.join(VOTES)}, not '{self.vote}'")

    async def setup(self, me: Peer) -> None:
        me.state["own"] = [{"kind": kind, "ready": False, "stale": 0} for kind in kinds_of(me, self.models)]

    async def round(self, me: Peer, t: int) -> None:
        await self.train(me, t)
        self.revive(me)

    def revive(self, me: Peer) -> None:
        me.ensemble = self.ensemble(own_members(me).values())

    def ensemble(self, members: Iterable[Member]) -> Ensemble | None:
        found = tuple(members)
        return Ensemble(found, self.vote) if found else None

    async def train(self, me: Peer, t: int) -> None:
        """An epoch of every model that is not ready. Round t is the last if it is the run's."""
        for slot, own in enumerate(me.state["own"]):
            if not own["ready"]:
                await (self.fit(me, own) if is_estimator(own["kind"]) else self.train_network(me, slot, own, t))
                if own["ready"] and "best" in own:
                    await self.ready(me, slot, own)

    async def train_network(self, me: Peer, slot: int, own: Own, t: int) -> None:
        model = model_of(me, own["kind"], own["model"]) if "model" in own else me.own_initial(own["kind"], slot)
        assert isinstance(model, Model)
        memory = OptimizerMemory(**own.get("optimizer", {}))  # rounds are slices of one training: it goes on
        loss, given = (weighted, {"weights": weights_of(me)}) if self.balanced else (cross_entropy, {})
        await me.train(loss, model=model, given=given, epochs=1, memory=memory)
        own.update(model=model, optimizer={"vectors": memory.vectors, "step": memory.step}, stale=own["stale"] + 1)
        await remember_best(me, own, model, t, self.stop)
        if own["stale"] >= self.patience or t >= me.rounds:
            own["ready"] = True
            del own["model"], own["optimizer"]

    async def fit(self, me: Peer, own: Own) -> None:
        model = await me.fit(own["kind"])
        await remember_best(me, own, model, me.round, self.stop)
        own["ready"] = True

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        """What to do with a model that will not change any more."""
        if own["kind"] == me.architecture.name and slot == 0:
            me.model.load(own["best"].content)


async def remember_best(me: Peer, own: Own, model: Model | Portable, t: int, stop: str) -> None:
    """If it is better than it was before. One that has diverged is not, even if it was nothing before."""
    [said] = await me.predict([model], "validation")
    if said.trouble:
        raise ModelError(f"model.zoo: '{own['kind']}' cannot be used: {said.trouble}")
    probabilities = said.logits.softmax(1)
    labels = me.labels("validation")
    accuracy = float((probabilities.argmax(1) == labels).cpu().double().mean())
    merit = accuracy if stop == "accuracy" else -float(sample_cross_entropy(said.logits, labels).cpu().double().mean())
    before = own["merit"] if "merit" in own else own.get("accuracy")  # all that checkpoints of older versions have
    if probabilities.isfinite().all() and (before is None or merit > before):
        best = frozen(model.copy() if isinstance(model, Model) else model)
        own.update(best=best, probabilities=probabilities, accuracy=accuracy, merit=merit, stale=0, version=t)


def weighted(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy in which a sample has its class's weight: `given` holds "weights", one for each class."""
    weights = given["weights"][batch.y]
    return (weights * sample_cross_entropy(net(batch.x).logits, batch.y)).sum() / weights.sum()


def weights_of(me: Peer) -> Tensor:
    """Of each class: the rarer it is in a peer's training data, the more. The mean over the peer's samples is 1."""
    assert me.kinds is not None
    counts = torch.bincount(me.labels(), minlength=me.kinds.classes).to(me.model.vector.dtype)
    return counts.sum() / (counts > 0).sum() / counts.clamp(min=1)


def kinds_of(me: Peer, count: int) -> list[str]:
    """The kinds of models that a peer trains: so many of the zoo, beginning with its own."""
    assert me.kinds is not None
    zoo = me.kinds.zoo
    at = zoo.index(me.kind) if me.kind in zoo else 0
    return [zoo[(at + i) % len(zoo)] for i in range(min(count, len(zoo)) or len(zoo))]


def name_of(author: int, slot: int) -> str:
    return f"{author}/model-{slot}"


def author_of(name: str) -> int:
    return int(name.partition("/")[0])


def is_ready(me: Peer) -> bool:
    return all(own["ready"] for own in me.state["own"])


def own_models(me: Peer) -> dict[str, Own]:
    """One's own models that are any good, by name."""
    return {name_of(me.id, slot): own for slot, own in enumerate(me.state.get("own", ())) if "best" in own}


def own_members(me: Peer) -> dict[str, Member]:
    """One's own models at their best, by name; one that may still change says in the member's name how old it is."""
    return {
        name: Member(name if own["ready"] else f"{name}@{own['version']}", model_of(me, own["kind"], own["best"]))
        for name, own in own_models(me).items()
    }


def frozen(model: Model | Portable) -> Frozen:
    return Frozen(model.content if isinstance(model, Portable) else Weights(model.layout, model.vector))


def model_of(me: Peer, kind: str, content: Frozen | Weights) -> Model | Portable:
    """What was kept of a model, as one that can be run."""
    kept = content.content if isinstance(content, Frozen) else content
    if isinstance(kept, Tensor):
        return Portable(kept, kind)
    assert me.kinds is not None
    return Model(me.kinds.network(kind), kept.vector)
