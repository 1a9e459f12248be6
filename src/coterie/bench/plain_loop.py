"""The baseline without an engine: a module and an optimiser for every peer, trained one after the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.bench.workloads import Workload
from coterie.core.net import Net

State = dict[str, Tensor]


class PlainLoop:
    def __init__(self, work: Workload, method: str = "gossip") -> None:
        architecture = work.architecture()
        self.work, self.data = work, work.data()
        self.exchange = {"gossip": self._gossip, "fedavg": self._fedavg}[method]
        self.nets: list[Net] = [architecture.build() for _ in range(work.peers)]
        s = work.settings()
        self.optimizers = [torch.optim.SGD(net.parameters(), lr=s.lr, momentum=s.momentum) for net in self.nets]

    def train(self, peers: int | None = None) -> None:
        """Train all peers, or the first few."""
        for net, optimizer, data in list(zip(self.nets, self.optimizers, self.data, strict=True))[:peers]:
            net.train()
            x, y = data.train.x, data.train.y
            for _ in range(self.work.epochs):
                for rows in torch.split(torch.randperm(len(y)), self.work.batch):
                    optimizer.zero_grad()
                    F.cross_entropy(net(x[rows]).logits, y[rows]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()

    def round(self) -> None:
        """Train, average, and measure on validation and test data."""
        self.train()
        self.exchange([{k: v.clone() for k, v in net.state_dict().items()} for net in self.nets])
        for net, data in zip(self.nets, self.data, strict=True):
            net.eval()
            with torch.inference_mode():
                for split in (data.validation, data.test):
                    (net(split.x).logits.argmax(1) == split.y).float().mean().item()

    def _gossip(self, states: list[State]) -> None:
        """Each peer averages with random neighbours."""
        for i, net in enumerate(self.nets):
            others = [j for j in torch.randperm(self.work.peers).tolist() if j != i][: self.work.neighbours]
            net.load_state_dict(_mean([states[j] for j in (i, *others)]))

    def _fedavg(self, states: list[State]) -> None:
        """All peers get the average of all models."""
        average = _mean(states)
        for net in self.nets:
            net.load_state_dict(average)


def _mean(group: list[State]) -> State:
    return {k: torch.stack([state[k] for state in group]).mean(0) for k in group[0]}
