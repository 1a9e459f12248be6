"""Run a workload through the simulation, including exchange, accounting and events."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from coterie.bench.workloads import CLASSES, Workload
from coterie.config.sections import ClockSettings
from coterie.core.events import EventLog
from coterie.core.others import Others
from coterie.core.peer import Desk, Peer
from coterie.core.run_folder import RunFolder
from coterie.methods.base import Method
from coterie.methods.fedavg import FedAvg
from coterie.methods.gossip import Gossip
from coterie.models.registry import registry
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.placement import sharded
from coterie.simulation.processes import Processes
from coterie.simulation.protocol import Stage
from coterie.training import Trainer


class SyntheticPeers:
    """A workload's participants, with the server last, if there is one."""

    def __init__(self, work: Workload, method: str) -> None:
        self.method: Method = FedAvg() if method == "fedavg" else Gossip(k=work.neighbours)
        architecture, data = work.architecture(), work.data()
        server = work.peers if self.method.with_server() else None
        kinds = registry((work.model,), work.shape, CLASSES, lambda _: architecture)
        desk: Desk = None  # type: ignore[assignment]  # set by the stage
        self.participants = [
            Peer(
                i, 0, Others(work.peers, i), architecture.initial(0), work.settings(), desk,
                None if i == server else data[i], server, kind=work.model, kinds=kinds,
            )
            for i in range(work.peers + (server is not None))
        ]  # fmt: skip

    def stage(self, members: Sequence[int], workers: int) -> LocalStage:
        return LocalStage(self.method, [self.participants[i] for i in members], 1, Trainer("auto", workers))


def stage_of(members: Sequence[int], work: Workload, method: str) -> LocalStage:
    """A stage with some of the participants, for another process."""
    return SyntheticPeers(work, method).stage(members, workers=1)


class Engine:
    """A workload in this process with a thread per core, or `spread` over a process per core."""

    def __init__(self, work: Workload, folder: Path, method: str = "gossip", *, spread: bool = False) -> None:
        self.work, self.folder = work, folder
        circle, cores = SyntheticPeers(work, method), os.cpu_count() or 1
        participants = circle.participants
        self.peers = participants[: work.peers]
        if spread:
            members = sharded(participants, work.shape, work.epochs, cores, directs=True)
            common = {"work": work, "method": method}
            here = circle.stage(members[0], 1)
            self.stage: Stage = Processes(here, participants, members, stage_of, common)
        else:
            self.stage = here = circle.stage(range(len(participants)), cores)
        self.trainer = here.trainer

    def train(self) -> None:
        """Train all peers in this process."""
        self.trainer.fit([peer.train().job for peer in self.peers])

    def rounds(self, count: int = 1) -> None:
        self.stage.rounds = count
        log = EventLog(RunFolder(self.folder).events)
        Simulation(self.stage, Clock(ClockSettings(), self.work.peers, 0), log).run()
        log.close()

    def close(self) -> None:
        self.stage.close()
