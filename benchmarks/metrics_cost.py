"""How much a metric adds to a round: rounds with and without it, in turns, in one process.

    python benchmarks/metrics_cost.py [--workloads w1 w2] [--metrics auroc] [--turns 30]

Prints the best round of each with their ratio, and the median of the ratios of all turns. On a shared machine only such
a ratio is meaningful.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from coterie.bench.engine import Engine
from coterie.bench.workloads import CLASSES, Workload, chosen
from coterie.metrics import ACCURACY_ONLY, Evaluation, evaluation_of
from coterie.simulation.local_stage import LocalStage

ROUNDS = 5  # in a turn
WARM_UP = 4  # turns: operations are recorded after several calls


def seconds(engine: Engine, evaluation: Evaluation) -> float:
    assert isinstance(engine.stage, LocalStage)
    engine.stage.evaluation = evaluation
    began = time.perf_counter()
    engine.rounds(ROUNDS)
    return (time.perf_counter() - began) / ROUNDS


def compare(work: Workload, metrics: list[str], turns: int) -> None:
    both = (ACCURACY_ONLY, evaluation_of(metrics, "auto", "", [str(c) for c in range(CLASSES)]))
    with tempfile.TemporaryDirectory() as folder, closing(Engine(work, Path(folder))) as engine:
        for _ in range(WARM_UP):
            seconds(engine, both[1])
        taken = [[seconds(engine, evaluation) for evaluation in both] for _ in range(turns)]
    one, other = (min(times) for times in zip(*taken, strict=True))
    each = statistics.median(b / a for a, b in taken)
    print(
        f"{work.name}: the best round takes {1000 * one:.2f} ms without, {1000 * other:.2f} ms with "
        f"({other / one - 1:+.1%}); median over turns {each - 1:+.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workloads", nargs="+", default=["w1", "w2"])
    parser.add_argument("--metrics", nargs="+", default=["auroc"])
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    for work in chosen(options.workloads):
        compare(work, options.metrics, options.turns)


if __name__ == "__main__":
    main()
