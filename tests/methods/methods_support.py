"""Small runs of a method, with models and amounts of data that a test chooses; and a net simple enough for NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie import wiring
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.events import PeerAway, PeerRound
from coterie.core.jobs import Split
from coterie.core.net import Output
from coterie.core.peer import Peer, held_by
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer

SAMPLES = (12, 9, 6)  # of the peers, modulo
SMALL = (
    "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5", "model.hidden=[4]",
    "train.epochs=1", "train.batch=6", "train.lr=0.1", "clock.speed=12", "engine.batching=never",
)  # fmt: skip
STILL = "train.epochs=0"  # peers keep the models that they have, so that a test sees the exchange alone
MIXED = ("model.zoo=mlp,cnn3", "model.d_z=4")


def small(method: str, *words: str, peers: int = 3, rounds: int = 1) -> Experiment:
    settings = [f"method.name={method}", f"peers={peers}", f"rounds={rounds}", *SMALL, *words]
    return loading.load("panm-digits", settings)


def gather(e: Experiment) -> list[Peer]:
    """The participants, with different models and amounts of data."""
    participants = wiring.gather(e).participants
    for me in participants[: e.peers]:
        me.model.vector.copy_(torch.from_numpy(np.random.default_rng(me.id).normal(size=me.model.layout.size)))
        data = held_by(me)
        assert data is not None
        train = data.train
        me._held = replace(data, train=Split(train.pool, train.rows[: SAMPLES[me.id % 3]]))
    return participants


@dataclass
class Played:
    participants: list[Peer]
    records: list[PeerRound | PeerAway]

    def rounds(self, peer: int) -> list[PeerRound]:
        return [r for r in self.records if isinstance(r, PeerRound) and r.peer == peer]

    @property
    def messages(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for r in self.records:
            for name, count in r.messages.items() if isinstance(r, PeerRound) else ():
                found[name] = found.get(name, 0) + count
        return found


def play(e: Experiment, participants: Sequence[Peer] | None = None) -> Played:
    """Run an experiment, with participants that a test has prepared or with the experiment's own."""
    members = list(participants or wiring.gather(e).participants)
    records: list[PeerRound | PeerAway] = []
    trainer = Trainer("never", 1, 1)
    simulation = Simulation(
        LocalStage(e.method, members, e.rounds, trainer, evaluate_every=99), Clock(e.clock, e.peers, e.seed),
        asynchronous=e.engine.asynchronous, on_record=records.append,
    )  # fmt: skip
    try:
        simulation.run()
    finally:
        trainer.close()
    return Played(members, records)


class LinearNet:
    """features = x A; logits = features W^T + b."""

    def __init__(self, rng: np.random.Generator, inputs: int, features: int, classes: int) -> None:
        self.a, self.w = rng.normal(size=(inputs, features)), rng.normal(size=(classes, features))
        self.b = rng.normal(size=classes)
        tensors = {"backbone.weight": self.a, "head.weight": self.w, "head.bias": self.b}
        self.parameters: Mapping[str, Tensor] = {key: torch.from_numpy(value) for key, value in tensors.items()}

    def __call__(self, x: Tensor) -> Output:
        features = x @ self.parameters["backbone.weight"]
        return Output(features @ self.parameters["head.weight"].T + self.parameters["head.bias"], features, None)

    def numpy(self, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Logits and features."""
        features = x @ self.a
        return features @ self.w.T + self.b, features


def cross_entropy(logits: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    return float(np.mean([np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, y, strict=True)]))
