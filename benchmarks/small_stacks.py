"""Compare ways to use two cores for stacks of small models: two threads, one thread, or parallel operations.

    python benchmarks/small_stacks.py [--busy 2] [--turns 40]

`--busy` other processes keep the machine busy meanwhile, as on a shared one. Prints the mean milliseconds over turns to
train all 200 peers of `w2` once, and for the cross entropy of 100 of them in one step.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from coterie.bench.engine import Engine
from coterie.bench.workloads import chosen
from coterie.core.formatting import count
from coterie.core.loss import sample_cross_entropy
from coterie.training import batched

WARM_UP = 5  # calls: operations are recorded in the third


def milliseconds(train: Callable[[], object], turns: int) -> float:
    for _ in range(WARM_UP):
        train()
    began = time.perf_counter()
    for _ in range(turns):
        train()
    return 1000 * (time.perf_counter() - began) / turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--turns", type=int, default=40)
    options = parser.parse_args()
    [work] = chosen(["w2"])
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(work, Path(folder))
    jobs = [peer.train().job for peer in engine.peers]
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        print(f"{count(options.busy, 'busy neighbour')}")
        print(f"  a chunk on each of two threads  {milliseconds(engine.train, options.turns):6.1f} ms")
        for threads, what in ((1, "all on one thread             "), (2, "operations that use both cores")):
            torch.set_num_threads(threads)
            print(f"  {what}  {milliseconds(lambda: batched.fit(jobs), options.turns):6.1f} ms")
        torch.set_num_threads(1)
        logits, labels = torch.randn(100, 25, 10), torch.randint(0, 10, (100, 25))
        losses = {
            "its log-softmax": lambda: -F.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)),
            "by its formula": lambda: sample_cross_entropy(logits, labels),
        }
        for how, loss in losses.items():
            print(f"  cross entropy, {how:<15}  {milliseconds(loss, options.turns):6.2f} ms")
    finally:
        for other in others:
            other.kill()
        engine.close()


if __name__ == "__main__":
    main()
