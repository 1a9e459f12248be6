"""A simulation of hand-written methods on tiny data: what happened, when, as a list of records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from coterie import wiring
from coterie.config import loading
from coterie.config.sections import ClockSettings, Experiment
from coterie.core.artifact import Artifact
from coterie.core.events import PeerAway, PeerRound
from coterie.core.peer import Peer
from coterie.methods import Method
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer

SAMPLES = 12  # of every peer: at a speed of 12 samples a second, training takes one second
TINY = (
    "baseline=", "data.clusters=2", f"data.train={SAMPLES}", "data.validation=5", "data.test=5", "model.hidden=[4]",
    "train.epochs=1", "train.batch=6", "train.lr=0.1", "engine.threads=1", "engine.batching=never",
    "engine.checkpoint=0",
)  # fmt: skip
WORD = {"w": torch.arange(4.0)}  # something to exchange
WORD_BYTES = Artifact.snapshot("word", 0, 1, WORD, {}).nbytes  # the same for one-digit peers and rounds


def tiny(method: str, *words: str, peers: int = 3, rounds: int = 3) -> Experiment:
    settings = [f"method.name={method}", f"peers={peers}", f"rounds={rounds}", *TINY, *words]
    return loading.load("panm-digits", settings)


@dataclass
class Played:
    """What a simulation did."""

    simulation: Simulation
    records: list[PeerRound | PeerAway] = field(default_factory=list)

    def ends(self, peer: int) -> dict[int, float]:
        """When a peer finished each of its rounds."""
        return {r.round: r.time for r in self.rounds(peer)}

    def notes(self, peer: int, key: str) -> list[Any]:
        return [r.notes[key] for r in self.rounds(peer)]

    def rounds(self, peer: int) -> list[PeerRound]:
        return [r for r in self.records if isinstance(r, PeerRound) and r.peer == peer]

    @property
    def peers(self) -> list[Peer]:
        return list(self.simulation.stage.peers.values())


def play(
    method: Method,
    *,
    peers: int = 3,
    rounds: int = 1,
    asynchronous: bool = False,
    folder: Path | None = None,
    checkpoint_every: int = 0,
    saved: tuple[int, dict[str, Any]] | None = None,
    seconds: Sequence[float] = (1.0,),
    **clock: Any,
) -> Played:
    """Run a method; `seconds` is how long each peer trains, by peer, modulo; `clock` are the other settings."""
    e = dataclasses.replace(tiny("local", peers=peers, rounds=rounds), method=method)
    settings = ClockSettings(speed=tuple(SAMPLES / s for s in seconds), **clock)
    trainer = Trainer("never", 1, 1)
    played: list[PeerRound | PeerAway] = []
    stage = LocalStage(method, wiring.gather(e).participants, rounds, trainer)
    simulation = Simulation(
        stage, Clock(settings, peers, e.seed),
        asynchronous=asynchronous, folder=folder, checkpoint_every=checkpoint_every, on_record=played.append,
    )  # fmt: skip
    if saved is not None:
        simulation.restore(*saved)
    try:
        simulation.run()
    finally:
        trainer.close()
    return Played(simulation, played)


def now(me: Peer) -> float:
    """The simulated time, which methods themselves do not see."""
    assert isinstance(me.desk, LocalStage)
    return me.desk.now


@dataclass(frozen=True)
class Swap(Method):
    """Train, shelve a word, fetch all others' words; note which words of which rounds came, and when."""

    async def round(self, me: Peer) -> None:
        await me.train()
        me.shelve("word", WORD)
        got = await me.fetch(me.peers, "word")
        me.note(got={j: a.round for j, a in got.items()}, at=now(me))
