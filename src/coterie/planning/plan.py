"""A plan: the whole run is rehearsed in a temporary folder, without most of its computing."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from coterie.config.sections import SIMULATION, Experiment
from coterie.core import checkpoint, memory
from coterie.core.checkpoint import packed
from coterie.core.events import PeerAway, PeerRound
from coterie.planning.rehearsal import Rehearsal
from coterie.running import simulated
from coterie.simulation.director import Simulation

EXCHANGING, CHECKPOINTS = "exchanging, averaging, recording", "checkpoints"
OF_A_RECORD = 6  # bytes of memory for each byte of a record's text, when the report is made


@dataclass(frozen=True)
class Plan:
    """What a run is going to take."""

    method: str
    peers: int
    rounds: int
    parts: dict[str, float]  # seconds, by what they are for: as a summary counts them
    around: float  # seconds before and after: reading the data, writing the report
    bytes: dict[str, int]  # that peers exchange, by artifact
    messages: dict[str, int]  # the same
    busiest: int  # bytes of the peer (or server) that receives, or pushes, most
    samples: int  # trained on, by all peers
    memory: int  # bytes, at the most
    rehearsed: int  # rounds; fewer than all: the others were taken to be like those
    unforeseen: str = ""  # what depends on how well training goes

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


@dataclass
class _Watch:
    """What comes to light while a run is rehearsed."""

    experiment: Experiment
    all_rounds: bool
    rehearsal: Rehearsal | None = None
    began: float = 0.0
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    of_peers: Counter[int] = field(default_factory=Counter)

    def start(self, simulation: Simulation) -> None:
        """Put the rehearsal in the place of the trainer."""
        engine = self.experiment.engine
        self.began = time.perf_counter()
        self.rehearsal = rehearsal = Rehearsal(simulation, engine, self.all_rounds)
        simulation.stage.trainer.close()
        simulation.stage.trainer, simulation.following = rehearsal, rehearsal.leaps.following
        simulation.without_checkpoints()  # they are priced apart
        told = simulation.on_record

        def tell(record: PeerRound | PeerAway) -> None:
            self.see(record, rehearsal.leaps.stands_for.get(record.round, 1))
            if told:
                told(record)

        simulation.on_record = tell

    def see(self, record: PeerRound | PeerAway, times: int) -> None:
        if isinstance(record, PeerRound):
            self.bytes.update({name: times * count for name, count in record.bytes.items()})
            self.messages.update({name: times * count for name, count in record.messages.items()})
            self.of_peers[record.peer] += times * sum(record.bytes.values())

    def plan(self, called: float, seconds: float, folder: Path) -> Plan:
        """When it is done: it was called at this time, and its summary tells of so many seconds."""
        e, rehearsal = self.experiment, self.rehearsal
        assert rehearsal is not None
        before, whole = self.began - called, time.perf_counter() - called
        rehearsed = rehearsal.leaps.rehearsed
        text = (folder / "run" / "events.jsonl").stat().st_size / rehearsed
        return Plan(
            e.method_name, e.peers, e.rounds,
            parts=self._parts(rehearsal, seconds - (rehearsal.left - self.began), folder),
            around=before + (whole - before - seconds) * e.rounds / rehearsed,
            bytes=dict(sorted(self.bytes.items())),
            messages=dict(sorted(self.messages.items())),
            busiest=max(self.of_peers.values(), default=0),
            samples=rehearsal.samples,
            memory=memory.peak() + int(OF_A_RECORD * text * (e.rounds - rehearsed)),
            rehearsed=rehearsed,
            unforeseen=e.method.unforeseen,
        )  # fmt: skip

    def _parts(self, rehearsal: Rehearsal, ending: float, folder: Path) -> dict[str, float]:
        """`ending` are the seconds after the last computing, in which models are written."""
        every = self.experiment.engine.checkpoint
        checkpoints = (self.experiment.rounds - 1) // every if every else 0
        found = {
            **rehearsal.seconds(),
            EXCHANGING: rehearsal.engine + ending,
            CHECKPOINTS: checkpoints * _of_checkpoint(rehearsal.simulation, folder) if checkpoints else 0.0,
        }
        return {what: seconds for what, seconds in found.items() if seconds}


def plan(experiment: Experiment, all_rounds: bool = False) -> Plan:
    """Rehearse an experiment, of a long one some rounds or all; nothing is left of it."""
    engine = dataclasses.replace(experiment.engine, name=SIMULATION, address="", sinks=())
    e = dataclasses.replace(experiment, engine=engine)
    watch, called = _Watch(e, all_rounds), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="coterie-plan-") as name:
        folder = Path(name)
        try:
            summary = simulated.run(e, folder / "run", on_start=watch.start)
            return watch.plan(called, summary["seconds"], folder)
        finally:
            if watch.rehearsal:
                watch.rehearsal.close()


def _of_checkpoint(simulation: Simulation, folder: Path) -> float:
    """Seconds to write one, as it would be at the end."""
    began = time.perf_counter()
    shelves = [packed(s.artifact) for s in simulation.shelves.until(simulation.rounds)]
    peers = [checkpoint.of_peer(peer) for peer in simulation.stage.peers.values()]
    checkpoint.save(folder, simulation.rounds, {"participants": peers, "shelves": shelves})
    return time.perf_counter() - began
