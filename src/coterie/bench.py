"""`coterie bench`: the engine against a plain PyTorch loop (one module and one optimiser a peer), in one run.

Both do the same work on the same made-up samples, in turns, and the best of several turns counts: on a
shared machine only such a ratio means anything.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F

from coterie import memory
from coterie.architecture import Architecture
from coterie.engines.clock import Clock, ClockSettings
from coterie.engines.simulation import Simulation
from coterie.engines.stage import Stage
from coterie.errors import CoterieError
from coterie.events import EventLog
from coterie.methods.gossip import Gossip
from coterie.models import ModelSettings, Net, build
from coterie.peer import Desk, Others, Peer, PeerData
from coterie.report.words import duration, size
from coterie.training import Pool, Split, Trainer, TrainSettings

NEIGHBOURS = 5
SHORTEST_TURN = 0.3  # seconds


@dataclass(frozen=True)
class Workload:
    """So many equal peers, each with so many samples."""

    title: str
    model: str
    shape: tuple[int, ...]
    peers: int
    samples: int
    batch: int
    epochs: int = 1
    hidden: tuple[int, ...] = ()
    held_out: int = 20  # validation, and as many for test

    def settings(self) -> TrainSettings:
        return TrainSettings(epochs=self.epochs, batch=self.batch, lr=0.01, momentum=0.9)

    def architecture(self) -> Architecture:
        settings = ModelSettings(hidden=self.hidden) if self.hidden else ModelSettings()
        return Architecture(self.model, partial(build, self.model, self.shape, 10, settings))

    def data(self) -> list[PeerData]:
        each = self.samples + 2 * self.held_out
        torch.manual_seed(0)
        pool = Pool(torch.randn(self.peers * each, *self.shape), torch.randint(0, 10, (self.peers * each,)))
        cuts = (0, self.samples, self.samples + self.held_out, each)
        starts = range(0, self.peers * each, each)
        return [PeerData(*(Split(pool, torch.arange(s + a, s + b)) for a, b in pairwise(cuts))) for s in starts]


SMALL = Workload("MLP 64-64-10", "mlp", (64,), 100, 100, 25, hidden=(64,))
WORKLOADS = (
    SMALL,
    Workload("MLP 784-200-200-10", "mlp", (784,), 100, 200, 100, epochs=3, hidden=(200, 200)),
    Workload("CNN, two 5x5 convolutions", "lenet", (3, 32, 32), 10, 200, 50),
    Workload("ResNet-9", "resnet9", (3, 32, 32), 4, 64, 32),
)


class PlainLoop:
    """What one would write without an engine: a module and an optimiser for every peer, one after the other."""

    def __init__(self, work: Workload) -> None:
        architecture = work.architecture()
        self.work, self.data = work, work.data()
        self.nets: list[Net] = [architecture.build() for _ in range(work.peers)]
        s = work.settings()
        self.optimizers = [torch.optim.SGD(net.parameters(), lr=s.lr, momentum=s.momentum) for net in self.nets]

    def train(self) -> None:
        for net, optimizer, data in zip(self.nets, self.optimizers, self.data, strict=True):
            net.train()
            x, y = data.train.x, data.train.y
            for _ in range(self.work.epochs):
                for rows in torch.split(torch.randperm(len(y)), self.work.batch):
                    optimizer.zero_grad()
                    F.cross_entropy(net(x[rows]).logits, y[rows]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()

    def round(self) -> None:
        """Train, average with random neighbours, measure on validation and test data."""
        self.train()
        count = min(NEIGHBOURS, self.work.peers - 1)
        states = [{k: v.clone() for k, v in net.state_dict().items()} for net in self.nets]
        for i, net in enumerate(self.nets):
            others = [j for j in torch.randperm(self.work.peers).tolist() if j != i][:count]
            group = [states[j] for j in (i, *others)]
            net.load_state_dict({k: torch.stack([s[k] for s in group]).mean(0) for k in group[0]})
        for net, data in zip(self.nets, self.data, strict=True):
            net.eval()
            with torch.inference_mode():
                for split in (data.validation, data.test):
                    (net(split.x).logits.argmax(1) == split.y).float().mean().item()


class Engine:
    """The same through the simulation, exchange, accounting and events included."""

    def __init__(self, work: Workload, folder: Path) -> None:
        self.work, self.folder = work, folder
        self.architecture = work.architecture()
        self.data = work.data()
        self.trainer = Trainer("auto", os.cpu_count() or 1)
        desk: Desk = None  # type: ignore[assignment]  # the simulation puts itself there
        self.peers = [
            Peer(i, 0, Others(work.peers, i), self.architecture.initial(0), work.settings(), desk, self.data[i])
            for i in range(work.peers)
        ]

    def train(self) -> None:
        self.trainer.fit([peer.train().job for peer in self.peers])

    def rounds(self, count: int = 1) -> None:
        method = Gossip(k=min(NEIGHBOURS, self.work.peers - 1))
        log = EventLog(self.folder / "events.jsonl")
        clock = Clock(ClockSettings(), self.work.peers, 0)
        Simulation(Stage(method, self.peers, count, self.trainer), clock, log).run()
        log.close()


@dataclass
class Result:
    title: str
    train_loop: float
    train_engine: float
    round_loop: float
    round_engine: float

    @property
    def train_ratio(self) -> float:
        return self.train_loop / self.train_engine

    @property
    def round_ratio(self) -> float:
        return self.round_loop / self.round_engine


@dataclass
class Growth:
    peers: int
    seconds_per_round: float
    peak_memory: int


@dataclass
class Report:
    machine: str
    results: list[Result] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    peak_memory: int = 0


def main(quick: bool = False, out: Path | None = None) -> None:
    turns = 3 if quick else 7
    report = Report(f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}")
    print(f"{report.machine}; best of {turns} turns; seconds, and how many times faster than the plain loop\n")
    print(f"{'workload':<28}{'training':>10}{'loop':>9}{'ratio':>8}   {'round':>9}{'loop':>9}{'ratio':>8}")
    for work in WORKLOADS:
        result = compare(work, turns)
        report.results.append(result)
        print(
            f"{work.title:<28}{result.train_engine:>10.4f}{result.train_loop:>9.4f}{result.train_ratio:>7.2f}x   "
            f"{result.round_engine:>9.4f}{result.round_loop:>9.4f}{result.round_ratio:>7.2f}x",
            flush=True,
        )
    print(f"\n{SMALL.title}, gossip with {NEIGHBOURS}: growth with the number of peers (a process each)")
    for peers in (100, 1_000) if quick else (100, 1_000, 10_000):
        grown = grow(peers)
        report.growth.append(grown)
        rate = 1e6 * grown.seconds_per_round / peers
        print(f"{peers:>7,} peers: {duration(grown.seconds_per_round)} a round ({rate:.0f} us a peer), "
              f"peak memory {size(grown.peak_memory)}", flush=True)  # fmt: skip
    report.peak_memory = memory.peak()
    print(f"\npeak memory of the comparison: {size(report.peak_memory)}")
    if out:
        out.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")


def compare(work: Workload, turns: int) -> Result:
    """Loop and engine in turns, the best of each; a turn of quick work is several rounds in a row, as in a run."""
    with tempfile.TemporaryDirectory() as folder:
        loop, engine = PlainLoop(work), Engine(work, Path(folder))
        engine.rounds()
        engine.rounds()
        all_cores = os.cpu_count() or 1  # for the loop; the engine uses them by its workers
        timed: list[tuple[int, Callable[[], None]]]
        timed = [(all_cores, loop.train), (1, engine.train), (all_cores, loop.round), (1, engine.rounds)]
        best = [float("inf")] * len(timed)
        for _ in range(turns):
            for i, (threads, work_once) in enumerate(timed):
                torch.set_num_threads(threads)
                began, count = time.perf_counter(), 0
                while count == 0 or time.perf_counter() - began < SHORTEST_TURN:
                    work_once()
                    count += 1
                best[i] = min(best[i], (time.perf_counter() - began) / count)
        engine.trainer.close()
    return Result(work.title, *best)


def grow(peers: int, rounds: int = 3) -> Growth:
    """Three rounds of gossip in a process of its own, so that its peak memory is its own."""
    code = f"from coterie.bench import grow_here; grow_here({peers}, {rounds})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CoterieError(f"the run of {peers} peers failed: {done.stderr.strip().splitlines()[-1:]}")
    return Growth(**json.loads(done.stdout.splitlines()[-1]))


def grow_here(peers: int, rounds: int) -> None:
    work = Workload(SMALL.title, SMALL.model, SMALL.shape, peers, SMALL.samples, SMALL.batch, hidden=SMALL.hidden)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(work, Path(folder))
        engine.rounds(1)  # what is done once (recording operations) is not what grows
        began = time.perf_counter()
        engine.rounds(rounds)
        seconds = (time.perf_counter() - began) / rounds
    print(json.dumps(asdict(Growth(peers, seconds, memory.peak()))))
