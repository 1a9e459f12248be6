"""What a Ray cluster on this machine costs against one process with as many workers: whole rounds, in turns.

    python benchmarks/ray_overhead.py [w1|w3 ...] [--rounds 12] [--turns 3]

The best turn of each counts. A round's time is taken after the first, so that starting Ray is told apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from workloads import PRESET, words

from coterie import running
from coterie.experiment import load
from coterie.progress import RoundProgress

WORKERS = os.cpu_count() or 1
ENGINES = {"simulation": ("engine.name=simulation",), "ray": ("engine.name=ray",)}


def timed(settings: list[str], out: Path) -> tuple[float, float, dict[str, Any]]:
    """Seconds for a round, seconds until the first was done, and what came out."""
    ends: list[float] = []

    def note(_: RoundProgress) -> None:
        ends.append(time.perf_counter())

    began = time.perf_counter()
    summary = running.run(load(PRESET, settings), out, on_round=note)
    summary.pop("seconds")
    return (ends[-1] - ends[0]) / (len(ends) - 1), ends[0] - began, summary


def measure(name: str, rounds: int, turns: int, folder: Path) -> None:
    settings = [*words(name, folder), f"rounds={rounds}", f"engine.workers={WORKERS}", "engine.checkpoint=0"]
    best: dict[str, float] = {}
    first: dict[str, float] = {}
    summaries = []
    for turn in range(turns):
        for engine, more in ENGINES.items():
            each, start, summary = timed([*settings, *more], folder / f"{name}-{engine}-{turn}")
            best[engine] = min(best.get(engine, each), each)
            first[engine] = min(first.get(engine, start), start)
            summaries.append(summary)
    equal = "equal" if all(summary == summaries[0] for summary in summaries) else "NOT EQUAL"
    overhead = best["ray"] / best["simulation"] - 1
    print(f"{name}, {WORKERS} workers, summaries {equal}")
    print(f"  a round                  {best['simulation']:.3f} s, on Ray {best['ray']:.3f} s ({overhead:+.0%})")
    print(f"  until the first was done {first['simulation']:.1f} s, on Ray {first['ray']:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", default=["w3"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # as much of the cores as the other has
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            measure(name, options.rounds, options.turns, Path(folder))


if __name__ == "__main__":
    main()
