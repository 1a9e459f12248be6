"""Compare several processes, or a Ray cluster, on this machine with one process with as many workers.

    python benchmarks/engines.py [w1|w2|w3|fedpae ...] [--engines processes,ray] [--rounds 12] [--turns 3]

Whole runs, in turns; the best of each counts. The time per round excludes the first, so that start-up is separate.
FedPAE does most of its work in one of its rounds, so there the whole run counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import PRESET, words

from coterie.config.loading import load
from coterie.config.sections import PROCESSES, RAY, SIMULATION
from coterie.running import simulated
from coterie.running.progress import RoundProgress

WORKERS = os.cpu_count() or 1
FEDPAE = (
    "method.name=fedpae", "method.models=1", "baseline=", "peers=20",
    "data.train=50", "data.validation=15", "data.test=15",
)  # fmt: skip


@dataclass
class Times:
    """Seconds per round, until the end of the first round, and in total."""

    a_round: float
    first: float
    whole: float

    def best(self, other: Times) -> Times:
        return Times(*map(min, vars(self).values(), vars(other).values()))


def timed(settings: list[str], out: Path) -> tuple[Times, dict[str, Any]]:
    """The times and the summary of a run."""
    ends: list[float] = []

    def note(_: RoundProgress) -> None:
        ends.append(time.perf_counter())

    began = time.perf_counter()
    summary = simulated.run(load(PRESET, settings), out, on_round=note)
    whole = time.perf_counter() - began
    summary.pop("seconds")
    return Times((ends[-1] - ends[0]) / (len(ends) - 1), ends[0] - began, whole), summary


def measure(name: str, engines: list[str], rounds: int, turns: int, folder: Path) -> None:
    what = [*FEDPAE] if name == "fedpae" else words(name, folder)
    settings = [*what, f"rounds={rounds}", f"engine.workers={WORKERS}", "engine.checkpoint=0"]
    best: dict[str, Times] = {}
    summaries = []
    for turn in range(turns):
        for engine in engines:
            times, summary = timed([*settings, f"engine.name={engine}"], folder / f"{name}-{engine}-{turn}")
            best[engine] = times.best(best.get(engine, times))
            summaries.append(summary)
    equal = "equal" if all(summary == summaries[0] for summary in summaries) else "NOT EQUAL"
    print(f"{name}, {WORKERS} workers, summaries {equal}")
    here = best[SIMULATION]
    for engine, times in best.items():
        of_round = f"a round {times.a_round:6.3f} s ({times.a_round / here.a_round - 1:+4.0%})"
        of_all = f"in all {times.whole:6.1f} s ({times.whole / here.whole - 1:+4.0%})"
        print(f"  {engine:<11} {of_round}, the first done after {times.first:4.1f} s, {of_all}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", default=["w3"])
    parser.add_argument("--engines", default=f"{PROCESSES},{RAY}")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # the same priority as the other engines
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            engines = [SIMULATION, *options.engines.split(",")]
            measure(name, engines, options.rounds, options.turns, Path(folder))


if __name__ == "__main__":
    main()
