"""How good plans are: runs three workloads, and plans each of them before. Planned over actual, for docs/planning.md.

python benchmarks/planning.py [NAME ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from coterie.cli import main as coterie
from coterie.experiment import load
from coterie.planning.command import compared
from coterie.planning.plan import plan
from coterie.report.summary import read_summary

GOSSIP = ("method.name=gossip", "method.k=5", "baseline=", "data.partition=iid", "data.validation=20", "data.test=20")
# By name: the shape of samples, how many peers have how many of them, and what else is set.
WORKLOADS: dict[str, tuple[tuple[int, ...], int, int, tuple[str, ...]]] = {
    "mlp": ((784,), 100, 200, ("model.hidden=[200, 200]", "train.batch=100", "train.epochs=3", "rounds=60")),
    "small-mlp": ((64,), 200, 100, ("model.hidden=[64]", "train.batch=25", "train.epochs=1", "rounds=100")),
    "cnn": ((3, 32, 32), 10, 200, ("model.zoo=lenet", "train.batch=50", "train.epochs=1", "rounds=60")),
}


def made_up(shape: tuple[int, ...], count: int, path: Path) -> None:
    """Noise, with labels: what it is makes no difference to the time."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8) if len(shape) == 3 else rng.normal(size=(count, *shape))
    np.savez(path, x=x if len(shape) == 3 else x.astype(np.float32), y=np.arange(count) % 10)


def check(name: str, folder: Path) -> None:
    shape, peers, samples, words = WORKLOADS[name]
    made_up(shape, peers * (samples + 40), folder / f"{name}.npz")
    data = f"data.name={folder / f'{name}.npz'}"
    settings = [*GOSSIP, data, f"peers={peers}", f"data.train={samples}", "model.zoo=mlp", *words]
    found = plan(load("panm-digits", settings))
    if coterie(["run", "panm-digits", *settings, "--plain", "--out", str(folder / name)]):
        raise SystemExit(f"{name}: the run failed")
    print(f"\n{name}: {compared(found, read_summary(folder / name))}\n", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or WORKLOADS:
            check(name, Path(folder))


if __name__ == "__main__":
    main()
