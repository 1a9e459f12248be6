"""The workloads of the benchmarks: equal peers with synthetic samples and one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import count
from coterie.core.jobs import Pool, Split, TrainSettings
from coterie.core.model import Architecture
from coterie.core.peer_data import PeerData
from coterie.models import ModelSettings, build

NEIGHBOURS = 5
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """A number of equal peers, each with the same number of samples."""

    name: str
    title: str
    model: str
    shape: tuple[int, ...]
    peers: int
    samples: int
    batch: int
    epochs: int = 1
    hidden: tuple[int, ...] = ()
    held_out: int = 20  # validation samples, and as many test samples
    lr: float = 0.01
    momentum: float = 0.9

    @property
    def neighbours(self) -> int:
        return min(NEIGHBOURS, self.peers - 1)

    @property
    def summary(self) -> str:
        size = "x".join(map(str, self.shape))
        return (
            f"{count(self.peers, 'peer')} with {count(self.samples, 'sample')} of {size}, {self.title}, "
            f"batch {self.batch}, {count(self.epochs, 'epoch')}"
        )

    def settings(self) -> TrainSettings:
        return TrainSettings(epochs=self.epochs, batch=self.batch, lr=self.lr, momentum=self.momentum)

    def net(self) -> Any:
        settings = ModelSettings(hidden=self.hidden) if self.hidden else ModelSettings()
        return build(self.model, self.shape, CLASSES, settings)

    def architecture(self) -> Architecture:
        return Architecture(self.model, partial(Workload.net, self))

    def data(self) -> list[PeerData]:
        each = self.samples + 2 * self.held_out
        torch.manual_seed(0)
        pool = Pool(torch.randn(self.peers * each, *self.shape), torch.randint(0, CLASSES, (self.peers * each,)))
        cuts = (0, self.samples, self.samples + self.held_out, each)
        starts = range(0, self.peers * each, each)
        return [PeerData(*(Split(pool, torch.arange(s + a, s + b)) for a, b in pairwise(cuts))) for s in starts]

    def as_json(self) -> dict[str, Any]:
        """The workload for drivers, which run in environments without Coterie."""
        return {**asdict(self), "classes": CLASSES, "neighbours": self.neighbours}


WORKLOADS = (
    Workload("w1", "MLP 784-200-200-10", "mlp", (784,), 100, 200, 100, epochs=3, hidden=(200, 200)),
    Workload("w2", "MLP 64-64-10", "mlp", (64,), 200, 100, 25, hidden=(64,)),
    Workload("w3", "CNN, two 5x5 convolutions", "lenet", (3, 32, 32), 10, 200, 50),
    Workload("w4", "ResNet-9", "resnet9", (3, 32, 32), 4, 64, 32),
)


def chosen(names: Sequence[str]) -> list[Workload]:
    """The workloads with these names, in their usual order."""
    known = {work.name: work for work in WORKLOADS}
    for name in names:
        if name not in known:
            raise ConfigError(unknown("workload", name, known))
    return [work for work in WORKLOADS if work.name in names]
