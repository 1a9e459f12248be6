"""Estimate roughly how long a paper's table takes on this machine, from its amount of work and a measured speed.

Work is counted in operations: samples x rounds x epochs, times the operations per sample of a network of that size,
times a factor for what a method does beyond plain training. The speed is the number of operations per second that the
engine reaches with networks of three sizes, measured in about a second.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from coterie.bench.workloads import Workload
from coterie.comparing.plan import LOCAL
from coterie.config.loading import from_tables, over, read_tables
from coterie.config.parsing import overrides
from coterie.config.sections import Experiment
from coterie.data.catalog import DOWNLOADED
from coterie.methods.compfl import CompFL
from coterie.methods.components.experts import trainings
from coterie.reproducing.papers import Table, TableColumn, TableRow

# Million operations of a forward pass, of a colour image of 32x32 and of a grey one of 28x28 (torch's FlopCounterMode).
FORWARD = {
    "mlp": (1.31, 0.40), "cnn3": (16.06, 11.42), "lenet": (35.33, 24.55), "cnn": (51.06, 38.19),
    "resnet8": (25.0, 18.69), "resnet9": (758.52, 614.33), "alexnet": (450.24, 341.91), "vgg11": (305.54, 267.51),
    "resnet18": (1110.85, 911.6), "shufflenetv2": (90.0, 75.11), "googlenet": (2894.48, 2210.67),
    "densenet121": (1776.7, 1374.46),
}  # fmt: skip
PASSES = 3  # of the forward pass's work, for training on a sample
# Relative to the time of `local`. From the runs in docs/measured.jsonl, and from `coterie plan`.
FACTORS = {
    "mapl": 2.6, "mapl+": 2.6, "fedkd": 2.5, "fml": 2.4, "pens": 2.4, "fedpae": 2.3, "ditto": 2.2, "compfl": 1.5,
    "panm": 1.5, "ifca": 1.5, "fedclassavg": 1.4, "local-ensemble": 1.4, "fedgh": 1.4, "feddistill": 1.3,
    "fedprox": 1.2, "fedrep": 1.2,
}  # fmt: skip
COMPFL = "compfl"
YARDSTICKS = ("mlp", "cnn3", "resnet9")  # small, medium and large networks reach different speeds
LONG_ENOUGH = 0.25  # seconds of measurement for each

Speeds = Mapping[str, float]  # million operations per second of all cores together, by yardstick


def seconds(table: Table, column: TableColumn, small: bool, seeds: int, speeds: Speeds) -> float:
    """The time of all runs of a column, with this number of seeds, in parallel on all cores."""
    preset, common = column.experiment(small)
    base = over(read_tables(preset), overrides(common))
    return seeds * sum(_row_seconds(base, row, small, speeds) for row in table.rows)


def _row_seconds(base: dict[str, Any], row: TableRow, small: bool, speeds: Speeds) -> float:
    words = row.words.of(small)
    sizes = tuple(word for word in words if not word.startswith("method."))
    given = base["method"] | dict(word.removeprefix("method.").split("=", 1) for word in words if word not in sizes)
    experiment, name = _sized(_Frozen(base), sizes), given["name"]
    shares = _shares_that_train(experiment, given["setting"]) if name == COMPFL and "setting" in given else {}
    return FACTORS.get(name, 1.0) * sum(work / speeds[by] for by, work in work_of(experiment, shares).items())


def _shares_that_train(e: Experiment, setting: str) -> dict[str, float]:
    """CompFL without a server: how often each network is trained, relative to all its owners training in every
    round."""
    order = sorted(set(e.model.zoo), key=lambda network: FORWARD[network][0])
    owners = [e.peers / len(order)] * len(order)
    counts = trainings(setting, owners, CompFL.epsilon)
    return {network: count / own for network, count, own in zip(order, counts, owners, strict=True)}


class _Frozen(dict[str, Any]):
    """Hashable tables, as a cache key: building an experiment from them takes a while."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


@cache
def _sized(base: _Frozen, words: tuple[str, ...]) -> Experiment:
    """An experiment of this size: peers, samples, rounds and networks. The method is the row's."""
    return from_tables(over(base, overrides([*words, "baseline=", f"method.name={LOCAL}"])))


def work_of(e: Experiment, shares: Mapping[str, float] | None = None) -> dict[str, float]:
    """Million operations of a run in which each peer trains alone, by the yardstick nearest to its networks.

    `shares` has, by network, the share of that training that takes place, where it is not all.
    """
    trained, measured = _samples(e)
    evaluations = e.rounds / e.evaluate.every
    by_yardstick: dict[str, float] = {}
    for network in e.model.zoo:
        trainings_each = e.rounds * (shares or {}).get(network, 1.0)
        each = forward_of(network, e) * (PASSES * trained * e.train.epochs * trainings_each + measured * evaluations)
        nearest = _nearest(network)
        by_yardstick[nearest] = by_yardstick.get(nearest, 0.0) + each * e.peers / len(e.model.zoo)
    return by_yardstick


def _nearest(network: str) -> str:
    return min(YARDSTICKS, key=lambda one: abs(math.log(FORWARD[one][0] / FORWARD[network][0])))


def forward_of(network: str, e: Experiment) -> float:
    colour, grey = FORWARD[network]
    entry = DOWNLOADED.get(e.data.name)
    of_shape = grey if entry is not None and entry.shape[0] == 1 else colour
    return of_shape * e.model.width**2  # convolutions of half the width do a quarter of the work


def _samples(e: Experiment) -> tuple[float, float]:
    """The number of samples that a peer trains on, and that it is measured on."""
    entry = DOWNLOADED.get(e.data.name)
    all_of_one = (entry.rows if entry is not None else 0) / e.peers

    def of(share: float) -> float:
        return share if share >= 1 else share * all_of_one  # a number of samples, or a fraction of the available ones

    return of(e.data.train), of(e.data.validation) + of(e.data.test)


def speeds_here(clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """The speeds of the engine, measured now; on a busy machine they are lower."""
    return {name: _speed(name, clock) for name in YARDSTICKS}


def _speed(network: str, clock: Callable[[], float]) -> float:
    import torch

    from coterie.bench.engine import Engine

    torch.set_num_threads(1)  # as in a run, where the engine's workers use the cores
    peers, batch = (4, 4) if network == YARDSTICKS[-1] else (16, 32)
    work = Workload(network, "", network, (3, 32, 32), peers, batch, batch, hidden=(200, 200), held_out=1)
    with tempfile.TemporaryDirectory() as folder, closing(Engine(work, Path(folder))) as engine:
        engine.train()  # warm-up: the first time, operations are recorded
        best, until = math.inf, clock() + LONG_ENOUGH
        while best == math.inf or clock() < until:
            began = clock()
            engine.train()
            best = min(best, clock() - began)  # the best of several, because other processes may disturb some
    return FORWARD[network][0] * PASSES * peers * batch / best


def about(seconds: float) -> str:
    """A duration in one unit; more digits would suggest false precision."""
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
