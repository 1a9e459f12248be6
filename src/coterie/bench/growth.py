"""Measure time and memory for growing numbers of peers: gossip with the small MLP, in one process per number."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from coterie.bench.engine import Engine
from coterie.bench.workloads import chosen
from coterie.core import memory
from coterie.core.errors import RunError
from coterie.core.formatting import duration, size

[SMALL] = chosen(["w2"])
PEERS = (100, 1_000, 10_000, 50_000)
SECONDS = {100: 10, 1_000: 10, 10_000: 20, 50_000: 90}  # approximate duration on two idle cores
PEER_ROUNDS = 20_000  # at least, so that a measurement takes some seconds


@dataclass
class Growth:
    peers: int
    seconds_per_round: float
    peak_memory: int

    def __str__(self) -> str:
        rate = 1e6 * self.seconds_per_round / self.peers
        return (
            f"{self.peers:>7,} peers: {duration(self.seconds_per_round)} a round ({rate:.0f} us a peer), "
            f"peak memory {size(self.peak_memory)}"
        )


def grow(peers: int, rounds: int = 0) -> Growth:
    """Run some rounds of gossip in a separate process, to measure its peak memory."""
    rounds = rounds or max(3, PEER_ROUNDS // peers)
    code = f"from coterie.bench.growth import grow_here; grow_here({peers}, {rounds})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the run with {peers} peers failed: {done.stderr.strip().splitlines()[-1:]}")
    return Growth(**json.loads(done.stdout.splitlines()[-1]))


def grow_here(peers: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(replace(SMALL, peers=peers), Path(folder))
        engine.rounds(
            1 + min(20, PEER_ROUNDS // (10 * peers))
        )  # warm-up: one-off work, such as recording, must not count
        began = time.perf_counter()
        engine.rounds(rounds)
        seconds = (time.perf_counter() - began) / rounds
    print(json.dumps(asdict(Growth(peers, seconds, memory.peak()))))
