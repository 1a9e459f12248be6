"""Compare the engine with a plain PyTorch loop (one module and one optimiser per peer), in one run.

Both do the same work on the same synthetic samples, in turns, and the best of several turns counts: on a shared machine
only such a ratio is meaningful.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from coterie.bench.engine import Engine
from coterie.bench.plain_loop import PlainLoop
from coterie.bench.workloads import Workload

SHORTEST_TURN = 0.4  # seconds: fast work is repeated, as in a run
HEAD = (
    f"{'workload':<32}{'training':>10}{'loop':>9}{'ratio':>8}   {'round':>9}{'loop':>9}{'ratio':>8}"
    f"   {'processes':>9}{'ratio':>8}"
)


@dataclass
class Result:
    name: str
    title: str
    train_loop: float
    train_engine: float
    round_loop: float
    round_engine: float
    round_processes: float  # with engine.name = processes

    @property
    def train_ratio(self) -> float:
        return self.train_loop / self.train_engine

    @property
    def round_ratio(self) -> float:
        return self.round_loop / self.round_engine

    @property
    def processes_ratio(self) -> float:
        return self.round_loop / self.round_processes

    def __str__(self) -> str:
        return (
            f"{f'{self.name}: {self.title}':<32}{self.train_engine:>10.4f}{self.train_loop:>9.4f}"
            f"{self.train_ratio:>7.2f}x   {self.round_engine:>9.4f}{self.round_loop:>9.4f}{self.round_ratio:>7.2f}x"
            f"   {self.round_processes:>9.4f}{self.processes_ratio:>7.2f}x"
        )


OnProgress = Callable[[float, str], None]  # the share that is done, and the current step
MEASURED = (  # the steps of a turn, in order
    "the loop's training, one thread", "the loop's training, all cores", "the loop's round, one thread",
    "the loop's round, all cores", "training", "a round", "a round in several processes",
)  # fmt: skip


def compare(work: Workload, turns: int, seconds: float = 0.0, on_progress: OnProgress = lambda *_: None) -> Result:
    """Run loop and engine in turns and take the best of each; a turn of fast work is several rounds of one run.

    Each takes at least `turns` turns, and more until `seconds` are over: short turns are easily disturbed.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Engine(work, Path(folder))) as engine,
        closing(Engine(work, Path(folder), spread=True)) as spread,
    ):
        loop = PlainLoop(work)
        engine.rounds(2)
        spread.rounds(2)
        cores = os.cpu_count() or 1
        # The loop with one thread and with one per core, because small operations are slower on many threads; the
        # engine uses the cores through its workers.
        timed: list[tuple[int, Callable[[int], None]]]
        timed = [(threads, _repeated(do)) for do in (loop.train, loop.round) for threads in (1, cores)]
        timed += [(1, _repeated(engine.train)), (1, engine.rounds), (1, spread.rounds)]
        best = [float("inf")] * len(timed)
        start, turn = time.perf_counter(), 0
        while turn < turns or time.perf_counter() < start + seconds:
            turn += 1
            for i, (threads, do) in enumerate(timed):
                on_progress(*_progress(turn, turns, i, (time.perf_counter() - start) / seconds if seconds else 1.0))
                torch.set_num_threads(threads)
                count = max(1, round(SHORTEST_TURN / best[i]))  # once in the first turn
                began = time.perf_counter()
                do(count)
                best[i] = min(best[i], (time.perf_counter() - began) / count)
    return Result(work.name, work.title, min(best[0:2]), best[4], min(best[2:4]), *best[5:])


def _progress(turn: int, turns: int, i: int, of_time: float) -> tuple[float, str]:
    """The share of the turns or of the time, whichever is smaller, and the current step."""
    of_turns = (turn - 1 + i / len(MEASURED)) / turns
    return min(of_turns, of_time), f"turn {turn} of {turns}{' or more' if of_time < 1 else ''}: {MEASURED[i]}"


def _repeated(do: Callable[[], None]) -> Callable[[int], None]:
    def several(count: int) -> None:
        for _ in range(count):
            do()

    return several
