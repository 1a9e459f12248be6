"""The workloads of `coterie bench` as experiments: gossip with five neighbours, on synthetic data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie.bench.workloads import NEIGHBOURS, Workload, chosen

PRESET = "panm-digits"
ROUNDS = {"w1": 60, "w2": 100, "w3": 60}
GOSSIP = ("method.name=gossip", f"method.k={NEIGHBOURS}", "baseline=", "data.partition=iid")


def words(name: str, folder: Path, peers: int | None = None) -> list[str]:
    """The settings of a workload on top of PRESET, with its number of peers or another. Writes its data to `folder`."""
    [work] = chosen([name])
    count, file = peers or work.peers, folder / f"{name}.npz"
    _write_noise(work.shape, count * (work.samples + 2 * work.held_out), file)
    return [*GOSSIP, f"data.name={file}", f"peers={count}", f"rounds={ROUNDS[name]}", *_sizes(work)]


def _sizes(work: Workload) -> list[str]:
    hidden = [f"model.hidden={list(work.hidden)}"] if work.hidden else []
    held_out = [f"data.validation={work.held_out}", f"data.test={work.held_out}"]
    training = [f"data.train={work.samples}", f"train.batch={work.batch}", f"train.epochs={work.epochs}"]
    return [f"model.zoo={work.model}", *hidden, *held_out, *training]


def _write_noise(shape: tuple[int, ...], count: int, path: Path) -> None:
    """Write random samples with labels: their content does not affect the time."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8) if len(shape) == 3 else rng.normal(size=(count, *shape))
    np.savez(path, x=x if len(shape) == 3 else x.astype(np.float32), y=np.arange(count) % 10)
