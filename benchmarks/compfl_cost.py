"""The cost of a round of CompFL in each of its settings: seconds, bytes, and how often strong clients helped.

    python benchmarks/compfl_cost.py [--rounds 24]

It runs the small preset (which needs `coterie data get cifar10`) on one core, without evaluations on the way. With a
server every client trains in a round; with walks, only clients that hold an expert: so it prints how many do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from coterie.config.loading import load
from coterie.core.events import PeerRound, read
from coterie.running import simulated
from coterie.running.progress import RoundProgress

PRESET = "compfl-cifar10-small"
BEFORE = 1  # warm-up rounds that are not counted
SETTINGS = {
    "server": (),
    "model by model, p = 1.0": ("method.setting=model-by-model", "graph.kind=complete"),
    "model by model, p = 0.6": ("method.setting=model-by-model", "graph.kind=erdos-renyi", "graph.p=0.6"),
    "device by device, p = 1.0": ("method.setting=device-by-device", "graph.kind=complete"),
    "device by device, p = 0.6": ("method.setting=device-by-device", "graph.kind=erdos-renyi", "graph.p=0.6"),
}


def measure(name: str, rounds: int, folder: Path) -> None:
    ends: list[float] = []

    def note(_: RoundProgress) -> None:
        ends.append(time.perf_counter())

    words = ["baseline=", f"rounds={rounds}", f"evaluate.every={rounds}", "data.classes_per_peer=10"]
    more = ["method.warmup=0", "engine.workers=1", "engine.checkpoint=0", "engine.models=false"]
    summary = simulated.run(load(PRESET, [*words, *more, *SETTINGS[name]]), folder / "run", on_round=note)
    seconds = (ends[-2] - ends[BEFORE - 1]) / (rounds - 1 - BEFORE)  # the last round includes the evaluation
    messages, size = summary["messages"]["total"] / rounds, summary["bytes"]["total"] / rounds
    records = (r for r in read(folder / "run" / "events.jsonl") if isinstance(r, PeerRound))
    trainings = sum("trained" in r.notes for r in records) / rounds
    print(f"{name:>26}: {seconds:>5.2f} s, {trainings:>4.1f} trainings, {messages:>5.1f} messages, {size / 1e6:>5.2f} "
          f"MB a round; the strong helped in {100 * summary['helped']:.0f}%", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=24)
    options = parser.parse_args()
    for name in SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
