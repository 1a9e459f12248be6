"""Run folders made by hand, and a dashboard in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.core.events import EventLog, PeerRound, RunStarted

CONFIG = 'seed = 0\nrounds = {}\npeers = {}\n[method]\nname = "gossip"\n[data]\nname = "digits"\npartition = "iid"\n'


def make_run(folder: Path, peers: int = 2, rounds: int = 3, clusters: list[int] | None = None, **more: Any) -> EventLog:
    """A run that has just begun; its log, to write rounds to. `more` are fields of its first record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.format(rounds, peers), encoding="utf-8")
    log = EventLog(folder / "events.jsonl")
    of_peers = ["mlp"] * peers, [10] * peers, [[10]] * peers
    log.write(RunStarted("gossip", 0, peers, rounds, *of_peers, clusters, "0", **more))
    log.close()  # it opens again at the next record
    return log


def write_round(log: EventLog, round: int, accuracies: list[float], **more: Any) -> None:
    """One round of all peers, each of which received one model of 100 bytes."""
    for peer, accuracy in enumerate(accuracies):
        log.write(PeerRound(peer, round, 1.0 * round, accuracy, accuracy, 0.5, {"model": 100}, {"model": 1}, more))
    log.close()  # it opens again at the next record


def record(peer: int, round: int, accuracy: float | None = 0.5, **notes: Any) -> dict[str, Any]:
    """As the file has it."""
    return vars(PeerRound(peer, round, 1.0, accuracy, accuracy, 0.5, {"model": 100}, {"model": 1}, notes))


def start(peers: int, rounds: int, clusters: list[int] | None = None) -> dict[str, Any]:
    return vars(RunStarted("gossip", 0, peers, rounds, ["mlp"] * peers, [1] * peers, [[1]] * peers, clusters))


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Served]:
    """`coterie dashboard` on a free port, with its address (and token) as it prints it."""
    command = [sys.executable, "-m", "coterie", "dashboard", str(folder), "--port", "0", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " is at http://" in line, f"it said: {line}{process.stdout.read()}"
            yield Served(line.split()[-1], process)
        finally:
            process.terminate()
            process.wait(10)
