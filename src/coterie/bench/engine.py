"""The same through the simulation, exchange, accounting and events included."""

from __future__ import annotations

import os
from pathlib import Path

from coterie.bench.workloads import CLASSES, Workload
from coterie.engines.clock import Clock, ClockSettings
from coterie.engines.simulation import Simulation
from coterie.engines.stage import Stage
from coterie.events import EventLog
from coterie.kinds import Kinds
from coterie.methods.base import Method
from coterie.methods.fedavg import FedAvg
from coterie.methods.gossip import Gossip
from coterie.peer import Desk, Others, Peer
from coterie.training import Trainer


class Engine:
    def __init__(self, work: Workload, folder: Path, method: str = "gossip") -> None:
        self.work, self.folder = work, folder
        self.method: Method = FedAvg() if method == "fedavg" else Gossip(k=work.neighbours)
        self.architecture = work.architecture()
        self.data = work.data()
        self.trainer = Trainer("auto", os.cpu_count() or 1)
        self.server = work.peers if self.method.with_server() else None
        self.kinds = Kinds((work.model,), work.shape, CLASSES, lambda _: self.architecture)
        self.peers = [self._peer(i) for i in range(work.peers)]
        self.participants = [*self.peers, *([] if self.server is None else [self._peer(self.server)])]

    def _peer(self, number: int) -> Peer:
        desk: Desk = None  # type: ignore[assignment]  # the simulation puts itself there
        return Peer(
            number, 0, Others(self.work.peers, number), self.architecture.initial(0), self.work.settings(), desk,
            None if number == self.server else self.data[number], self.server, kind=self.work.model, kinds=self.kinds,
        )  # fmt: skip

    def train(self) -> None:
        self.trainer.fit([peer.train().job for peer in self.peers])

    def rounds(self, count: int = 1) -> None:
        log = EventLog(self.folder / "events.jsonl")
        clock = Clock(ClockSettings(), self.work.peers, 0)
        Simulation(Stage(self.method, self.participants, count, self.trainer), clock, log).run()
        log.close()
