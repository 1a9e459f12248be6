"""Plan a run by rehearsing it in a temporary folder, without most of its computing."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from coterie.config.sections import SIMULATION, Experiment
from coterie.core import checkpoint, memory
from coterie.core.checkpoint import packed
from coterie.core.events import PeerAway, PeerRound
from coterie.core.run_folder import RunFolder
from coterie.planning.rehearsal import Rehearsal
from coterie.running import simulated
from coterie.simulation.director import Simulation

EXCHANGING, CHECKPOINTS = "exchanging, averaging, recording", "checkpoints"
MEMORY_PER_TEXT = 6  # bytes of memory per byte of an event's text, when the report is made


@dataclass(frozen=True)
class Plan:
    """The predicted cost of a run."""

    method: str
    peers: int
    rounds: int
    parts: dict[str, float]  # seconds by purpose, as counted in a summary
    around: float  # seconds before and after: reading the data, writing the report
    bytes: dict[str, int]  # exchanged by peers, by artifact
    messages: dict[str, int]  # likewise
    busiest: int  # bytes of the peer (or server) that receives or pushes most
    samples: int  # trained on, by all peers
    memory: int  # peak, in bytes
    rehearsed: int  # rounds; if fewer than all, the others are extrapolated
    unforeseen: str = ""  # what depends on how well training goes

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


@dataclass
class _Watch:
    """Collects figures while a run is rehearsed."""

    experiment: Experiment
    rehearsal: Rehearsal
    simulation: Simulation | None = None
    began: float = 0.0
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    of_peers: Counter[int] = field(default_factory=Counter)

    def start(self, simulation: Simulation) -> None:
        self.began, self.simulation = time.perf_counter(), simulation
        self.rehearsal.attend(simulation)

    def count(self, record: PeerRound | PeerAway) -> None:
        """Add what a peer exchanged in a round, as often as the round represents others."""
        times = self.rehearsal.leaps.stands_for.get(record.round, 1)
        if isinstance(record, PeerRound):
            self.bytes.update({name: times * n for name, n in record.bytes.items()})
            self.messages.update({name: times * n for name, n in record.messages.items()})
            self.of_peers[record.peer] += times * sum(record.bytes.values())

    def plan(self, called: float, seconds: float, folder: Path) -> Plan:
        """The plan after the rehearsal, which was called at time `called` and took `seconds` by its summary."""
        e, rehearsal = self.experiment, self.rehearsal
        before, whole = self.began - called, time.perf_counter() - called
        rehearsed = rehearsal.leaps.rehearsed
        text = RunFolder(folder / "run").events.stat().st_size / rehearsed
        return Plan(
            e.method_name, e.peers, e.rounds,
            parts=self._parts(seconds - (rehearsal.left - self.began), folder),
            around=before + (whole - before - seconds) * e.rounds / rehearsed,
            bytes=dict(sorted(self.bytes.items())),
            messages=dict(sorted(self.messages.items())),
            busiest=max(self.of_peers.values(), default=0),
            samples=rehearsal.samples,
            memory=memory.peak() + int(MEMORY_PER_TEXT * text * (e.rounds - rehearsed)),
            rehearsed=rehearsed,
            unforeseen=e.method.unforeseen,
        )  # fmt: skip

    def _parts(self, ending: float, folder: Path) -> dict[str, float]:
        """`ending` is the time after the last computing, in which models are written."""
        rehearsal, every = self.rehearsal, self.experiment.engine.checkpoint
        assert self.simulation is not None
        checkpoints = (self.experiment.rounds - 1) // every if every else 0
        parts = {
            **rehearsal.seconds(),
            EXCHANGING: rehearsal.engine + ending,
            CHECKPOINTS: checkpoints * _checkpoint_seconds(self.simulation, folder) if checkpoints else 0.0,
        }
        return {purpose: seconds for purpose, seconds in parts.items() if seconds}


def plan(experiment: Experiment, all_rounds: bool = False) -> Plan:
    """Rehearse an experiment: all rounds, or some of a long run. Leaves no files behind."""
    engine = dataclasses.replace(experiment.engine, name=SIMULATION, address="", sinks=())
    e = dataclasses.replace(experiment, engine=engine)
    called = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="coterie-plan-") as name,
        closing(Rehearsal(e, all_rounds)) as rehearsal,
    ):
        folder, watch = Path(name), _Watch(e, rehearsal)
        stand_ins = simulated.StandIns(rehearsal, rehearsal.leaps.following, watch.count)
        summary = simulated.rehearse(e, folder / "run", stand_ins, watch.start)
        return watch.plan(called, summary.seconds, folder)


def _checkpoint_seconds(simulation: Simulation, folder: Path) -> float:
    """Seconds to write a checkpoint at the end of the run."""
    began = time.perf_counter()
    shelves = [packed(s.artifact) for s in simulation.shelves.until(simulation.rounds)]
    peers = [checkpoint.of_peer(peer) for peer in simulation.stage.peers.values()]
    checkpoint.save(folder, simulation.rounds, {"participants": peers, "shelves": shelves})
    return time.perf_counter() - began
