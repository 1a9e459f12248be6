"""Experts: models of several sizes, of which a client owns one and may train the smaller ones, too."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from coterie.core.model import Model
from coterie.core.model_registry import ModelRegistry
from coterie.core.peer import Peer
from coterie.core.weights import Weights

SERVER, WALK, GOSSIP = SETTINGS = ("server", "device-by-device", "model-by-model")  # how experts are exchanged


def by_size(kinds: ModelRegistry) -> list[str]:
    """The architectures of the zoo, smallest first."""
    return sorted(set(kinds.zoo), key=lambda kind: (kinds.network(kind).layout.trainable, kind))


def all_experts(me: Peer) -> list[str]:
    return by_size(me.kinds)


def can_train(me: Peer) -> list[str]:
    """The experts up to the client's own, which is the last."""
    everything = all_experts(me)
    return everything[: everything.index(me.kind) + 1]


def expert(me: Peer, kind: str) -> Model:
    if kind == me.kind:
        return me.model
    return me.kinds.network(kind).view(me.state["experts"][kind])


def backbone_of(me: Peer, kind: str) -> Weights:
    """The client's copy of an expert's backbone. One that it cannot train is as it was when it was last here."""
    if kind in can_train(me):
        return expert(me, kind).part("backbone")
    carried: dict[str, Weights] = me.state["carried"]
    return carried.get(kind) or me.kinds.network(kind).initial(me.seed).part("backbone")


def load_backbone(me: Peer, kind: str, backbone: Mapping[str, Tensor]) -> None:
    if kind in can_train(me):
        expert(me, kind).load(backbone)
    else:
        me.state["carried"][kind] = Weights.of(backbone)


def pick(experts: Sequence[str], epsilon: float, rng: np.random.Generator) -> str:
    """The last, which is the client's own; with probability epsilon, one drawn uniformly from all of them."""
    if len(experts) > 1 and rng.random() < epsilon:
        return experts[int(rng.integers(len(experts)))]
    return experts[-1]


def trainings(setting: str, owners: Sequence[float], epsilon: float) -> list[float]:
    """The expected number of trainings of each expert in a round, given how many clients own each; smallest first."""
    count, clients = len(owners), sum(owners)
    expected = []
    for i, own in enumerate(owners):
        stronger = sum(owners[i + 1 :])
        if setting == WALK:  # one client holds it
            expected.append((own + epsilon * stronger) / clients)
        elif setting == GOSSIP:  # in its share of the rounds, every client that can train it does
            expected.append((own + stronger) / count)
        else:
            helping = sum(those / (j + 1) for j, those in enumerate(owners) if j >= i)
            expected.append((1 - epsilon) * own + epsilon * helping)
    return expected
