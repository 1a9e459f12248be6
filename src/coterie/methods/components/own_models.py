"""A peer's own models, each kept at its best epoch.

Each model has a table in `me.state["own"]`: its kind, its current weights and its best ones, its optimiser's memory,
the best weights' predictions on the validation data, and whether its training has ended ("ready").
"""

import math
from typing import Any

import torch
from torch import Tensor

from coterie.core.ensemble import Member
from coterie.core.errors import ModelError
from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood, sample_losses
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.core.portable_model import Portable
from coterie.core.weights import Frozen, Weights

Own = dict[str, Any]
STOPS = {"accuracy": "or the metric that evaluate.select names", "loss": ""}


async def remember_best(me: Peer, own: Own, model: Model | Portable, stop: str) -> None:
    """Keep the model if it is better than the best so far. A model that has diverged is never kept."""
    [prediction] = await me.predict([model], "validation")
    if prediction.trouble:
        raise ModelError(f"model.zoo: '{own['kind']}' cannot be used: {prediction.trouble}")
    answers = prediction.answers
    [accuracy] = me.merits([prediction]) if answers.isfinite().all() else [-math.inf]
    merit = accuracy
    if stop == "loss":
        merit = -float(sample_losses(prediction.logits, me.labels("validation")).cpu().double().mean())
    before = own["merit"] if "merit" in own else own.get("accuracy")  # checkpoints of older versions have no merit
    if answers.isfinite().all() and (before is None or merit > before):
        best = frozen(model.copy() if isinstance(model, Model) else model)
        own.update(best=best, probabilities=answers, accuracy=accuracy, merit=merit, stale=0, version=me.round)


def weighted(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy in which each sample has the weight of its class: `given["weights"]`, one for each class."""
    return negative_log_likelihood(net(batch.x).logits, batch.y, given["weights"][batch.y])


def class_weights(me: Peer) -> Tensor:
    """A weight for each class: the rarer in the peer's training data, the higher. The mean over its samples is 1."""
    counts = torch.bincount(me.labels(), minlength=me.kinds.classes).to(me.model.vector.dtype)
    return counts.sum() / (counts > 0).sum() / counts.clamp(min=1)


def kinds_of(me: Peer, count: int) -> list[str]:
    """The kinds of models that a peer trains: this many of the zoo (0: all), starting with its own."""
    zoo = me.kinds.zoo
    start = zoo.index(me.kind) if me.kind in zoo else 0
    return [zoo[(start + i) % len(zoo)] for i in range(min(count, len(zoo)) or len(zoo))]


def name_of(author: int, slot: int) -> str:
    return f"{author}/model-{slot}"


def author_of(name: str) -> int:
    return int(name.partition("/")[0])


def is_ready(me: Peer) -> bool:
    return all(own["ready"] for own in me.state["own"])


def own_models(me: Peer) -> dict[str, Own]:
    """The peer's own models that have usable weights, by name."""
    return {name_of(me.id, slot): own for slot, own in enumerate(me.state.get("own", ())) if "best" in own}


def own_members(me: Peer) -> dict[str, Member]:
    """The peer's own models at their best, by name. A member that may still change has its version in its name."""
    return {
        name: Member(name if own["ready"] else f"{name}@{own['version']}", model_of(me, own["kind"], own["best"]))
        for name, own in own_models(me).items()
    }


def frozen(model: Model | Portable) -> Frozen:
    return Frozen(model.content if isinstance(model, Portable) else Weights(model.layout, model.vector))


def model_of(me: Peer, kind: str, content: Frozen | Weights) -> Model | Portable:
    """A stored model, ready to run."""
    stored = content.content if isinstance(content, Frozen) else content
    if isinstance(stored, Tensor):
        return Portable(stored, kind)
    return Model(me.kinds.network(kind), stored.vector)
