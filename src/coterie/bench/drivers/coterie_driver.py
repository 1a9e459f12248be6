"""The driver of Coterie itself. Short rounds are timed several at once, as in a run."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import driving
import torch

from coterie.bench.engine import Engine
from coterie.bench.workloads import chosen
from coterie.core.version import version

SHORT = 0.5  # seconds
TOGETHER = 5


def main() -> None:
    work = driving.the_work()
    torch.set_num_threads(1)  # the engine uses the cores through its workers
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(chosen([work.name])[0], Path(folder), work.method)
        engine.rounds(1)
        first = time.time() - work.began
        together = 1 if timed(engine, 1) > SHORT else TOGETHER
        seconds = [timed(engine, together) for _ in range(work.rounds - 1)]
        engine.close()
    driving.say(version(), first, seconds)


def timed(engine: Engine, rounds: int) -> float:
    began = time.perf_counter()
    engine.rounds(rounds)
    return (time.perf_counter() - began) / rounds


if __name__ == "__main__":
    main()
