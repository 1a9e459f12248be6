"""What the contract suite runs: every method with small parameters, over every engine.

An engine is one function from an experiment to an `Outcome`, in ENGINES. A method is one or more lines of CASES; one
without any fails `test_every_method_is_in_the_contract`. The simulation runs every case by default; the other engines
run a few of them by default, and all with the slow tests.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from coterie.config import loading
from coterie.config.sections import PROCESSES, RAY, Experiment
from coterie.methods import METHODS
from coterie.running import simulated
from coterie.running.local_circle import LocalCircle
from coterie.running.real_peer import read_file, take_part
from coterie.simulation.director import Simulation

# The temperature: with a colder one, steps of this size are chaotic, and no two loops would agree for long.
MAPL = ("method.t_thr=2", "method.tau=5", "model.projector_hidden=4")
PAE = (
    "method.models=1", "method.patience=2", "method.k=2", "method.population=8", "method.generations=3",
)  # fmt: skip
COMP = ("method.warmup=1", "method.epsilon=0.5")
MIXED = ("model.zoo=mlp,cnn3", "model.d_z=4")
CASES: dict[str, tuple[str, ...]] = {
    "local": (),
    "fedavg": (),
    "fedavg-half": ("method.fraction=0.5",),
    "fedavg-mixed": MIXED[:1],
    "fedavg-ft": (),
    "fedavg-ft-mixed": (*MIXED[:1], "method.tune_every=2", "method.tuned=head"),
    "fedper": (),
    "fedper-mixed": MIXED[:1],
    "fedrep": ("method.head_epochs=1",),
    "fedrep-mixed": (*MIXED[:1], "method.head_epochs=1", "method.fraction=0.5"),
    "fedbabu": ("method.tune_every=2",),
    "fedbabu-mixed": MIXED[:1],
    "ditto": (),
    "ditto-mixed": MIXED[:1],
    "fedrod": (),
    "fedrod-mixed": MIXED[:1],
    "gossip": ("method.k=2",),
    "fixed": ("method.k=2",),
    "oracle": ("method.k=1",),
    "pens": ("method.l=2", "method.k=1", "method.t1=2"),
    "ifca": ("method.c=2",),
    "fedsim": (),
    "fedsim-mixed": MIXED,
    "fedclassavg": (),
    "fedclassavg-mixed": MIXED,
    "fedproto": (),
    "fedproto-mixed": MIXED,
    "fedprox": (),
    "lg-fedavg": (),
    "lg-fedavg-mixed": MIXED,
    "feddistill": (),
    "feddistill-mixed": MIXED[:1],
    "fedgh": (),
    "fedgh-mixed": MIXED,
    "fml": (),
    "fml-mixed": MIXED[:1],
    "fedkd": (),
    "fedkd-mixed": MIXED[:1],
    "pfedsim": ("method.t_warm=1",),
    "pfedsim-half": ("method.t_warm=1", "method.fraction=0.5"),
    "flt": ("method.embeddings=5",),
    "flt-half": ("method.embeddings=5", "method.fraction=0.5"),
    "dfedavgm": ("method.k=2",),
    "panm": ("method.l=2", "method.k=1", "method.t1=2", "method.tau=2"),
    "mapl": MAPL,
    "mapl-mixed": (*MAPL, *MIXED),
    "mapl-explore": (*MAPL, "method.explore=1"),
    "mapl+": MAPL,
    "mapl+-mixed": (*MAPL, *MIXED),
    "local-ensemble": ("method.models=1", "method.patience=2"),
    "local-ensemble-mixed": ("model.zoo=mlp,cnn3", "method.patience=2"),
    "fedpae": PAE,
    "fedpae-mixed": (*PAE, "model.zoo=mlp,cnn3", "method.models=0"),
    "fedpae-any-model": (*PAE, "model.zoo=logistic,tree,naive-bayes,mlp"),
    "fedpae-early": (*PAE, "method.early=true", "method.vote=hard"),
    "fedpae-predictions": (*PAE, "method.bench=predictions"),
    "fedpae-adaptive": (*PAE, "method.neighbours=adaptive", "method.few=1"),
    "compfl": COMP,
    "compfl-mixed": (*COMP, *MIXED[:1], "method.reinit=true", "method.adapt_epochs=1"),
    "compfl-half": (*COMP, *MIXED[:1], "method.fraction=0.5", "method.kl=printed", "method.teachers=held"),
    "compfl-walks": (*COMP, *MIXED[:1], "method.setting=device-by-device", "graph.kind=ring"),
    "compfl-gossip": (*COMP, *MIXED[:1], "method.setting=model-by-model"),
    "panm-grad": ("method.metric=grad", "method.l=2", "method.k=1", "method.t1=1", "method.tau=2"),
}

# Nobody waits in these, so when things arrive decides what is asked for: a network differs from the simulation.
TIMING_MATTERS = ("fedpae-predictions", "fedpae-adaptive")

# Training 12 samples at 12 a second: a round takes one second.
SMALL = (
    "peers=4", "rounds=4", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "train.epochs=1", "train.batch=6", "train.lr=0.1", "clock.speed=12",
    "engine.threads=1", "engine.checkpoint=0",
)  # fmt: skip
ASYNCHRONOUS = ("engine.asynchronous=true", "clock.spread=4", "clock.latency=[0.1, 0.2]")


class Outcome(NamedTuple):
    """What a run leaves, whatever the engine."""

    summary: dict[str, Any]
    graph: dict[str, np.ndarray]
    vectors: list[torch.Tensor]  # every participant's model, the server's last
    real_time: bool = False  # whether its times are a clock's on the wall

    @property
    def figures(self) -> dict[str, Any]:
        """What must repeat: everything but times that are measured."""
        times = ("seconds", "simulated_seconds", "over_time", "idle") if self.real_time else ("seconds",)
        return {key: value for key, value in self.summary.items() if key not in times}


def sometimes(*words: str) -> Any:
    """Settings that are tried with the slow tests alone: others, with more in them, are tried always."""
    return pytest.param(words, marks=pytest.mark.slow)


def small(case: str, *words: str) -> Experiment:
    """A tiny experiment of one case, with more `key=value` words on top."""
    if METHODS[method_of(case)].server and ASYNCHRONOUS[0] in words:
        pytest.skip("a server cannot be asynchronous: refused before anything runs, tested with the engines")
    return loading.load("panm-digits", [f"method.name={method_of(case)}", *SMALL, *CASES[case], *words])


def when_two_rounds_are_done(case: str) -> float:
    """In simulated seconds, or a little later: most need one for a round."""
    return 7.5 if method_of(case) == "compfl" else 2.5


def method_of(case: str) -> str:
    return max((name for name in METHODS if case == name or case.startswith(f"{name}-")), key=len)


# One method of each family: averaging, a server, peers that find their partners, prototypes with learned weights, walks
# and experts, ensembles, a small model that travels, a regulariser. Checks of what the engine does, not the method, run
# with these by default and with all cases in the slow tests.
FAMILIES = ("gossip", "fedavg", "panm", "mapl+", "compfl", "fedpae", "fml", "ditto")


def only_plain(case: str) -> bool:
    """A method as it is, not one of its variants (mixed architectures, half of the peers, ...)."""
    return case == method_of(case)


def of_families(case: str) -> bool:
    return case in FAMILIES


def slow_unless(fast: Callable[[str], bool], cases: Iterable[str]) -> list[Any]:
    """These cases, the others with the slow tests."""
    return [case if fast(case) else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def unlisted() -> set[str]:
    return set(METHODS) ^ {method_of(case) for case in CASES}


def read_graph(out: Path) -> dict[str, np.ndarray]:
    path = out / "graph.npz"
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def simulate(e: Experiment, out: Path | None = None, *, resume: bool = False) -> Outcome:
    """The simulation, in this process."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return simulate(e, Path(folder) / "run")
    held: list[Simulation] = []
    summary = simulated.resume(out, on_start=held.append) if resume else simulated.run(e, out, on_start=held.append)
    return Outcome(summary, read_graph(out), [peer.model.vector.clone() for peer in held[0].stage.peers.values()])


def network(e: Experiment, out: Path | None = None, *, overwrite: bool = True) -> Outcome:
    """Real peers: sockets, certificates and the network engine, as tasks of one process. (As processes: `up`.)"""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return network(e, Path(folder) / "run")
    circle, engines = LocalCircle(e, out), {}
    if overwrite:
        circle.prepare(overwrite=True)

    async def all_of_them() -> None:
        work = [
            take_part(read_file(m.file), say=lambda _: None, on_start=partial(engines.__setitem__, m.name))
            for m in circle.members
        ]
        await asyncio.gather(*work)

    asyncio.run(all_of_them())
    summary = circle.collect(0.0)
    vectors = [engines[m.name].me.model.vector.clone() for m in circle.members]
    return Outcome(summary, read_graph(out), vectors, real_time=True)


def in_processes(e: Experiment) -> Outcome:
    """The simulation's peers in two processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)  # else the first would only direct
        return simulate(_on(e, PROCESSES))


def on_ray(e: Experiment) -> Outcome:
    """The simulation's peers on a Ray cluster of this machine, which the first run begins."""
    import ray

    from coterie.simulation.ray_stage import start_local

    if not ray.is_initialized():
        start_local(num_cpus=2)
    return simulate(_on(e, RAY))


def _on(e: Experiment, engine: str) -> Experiment:
    return dataclasses.replace(e, engine=dataclasses.replace(e.engine, name=engine, workers=2))


SIMULATION, NETWORK = "simulation", "network"
ENGINES: dict[str, Callable[[Experiment], Outcome]] = {
    SIMULATION: simulate,
    PROCESSES: in_processes,
    RAY: on_ray,
    NETWORK: network,
}
# Averaging, a server, views with a norm over the batch, messages: what the other engines run by default. Ray takes a
# quarter of a minute to begin, and has the same shards as processes: slow tests alone.
REPRESENTATIVE = {PROCESSES: ("gossip", "compfl-walks"), RAY: (), NETWORK: ("gossip", "fedavg", "mapl", "compfl-walks")}
# A deadline that is never reached, however busy the machine is; short intervals, because the runs are short.
PATIENT = ("network.deadline=60", "network.interval=0.2", "network.linger=30")


def every_method_on(*engines: str, fast: Callable[[str], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Every case on each of these engines; those that are not `fast` run with the slow tests alone."""
    cases = []
    for engine in engines:
        for case in CASES:
            if engine == NETWORK and case in TIMING_MATTERS:
                continue
            slow = engine != SIMULATION and case not in REPRESENTATIVE[engine]
            slow = slow or not fast(case)
            cases.append(pytest.param(engine, case, id=f"{engine}-{case}", marks=[pytest.mark.slow] if slow else []))
    return pytest.mark.parametrize(("engine", "case"), cases)


@cache
def once(engine: str, case: str, *words: str) -> Outcome:
    """A run that several tests compare with."""
    return run(engine, case, *words)


def run(engine: str, case: str, *words: str) -> Outcome:
    more = PATIENT if engine == NETWORK else ()
    return ENGINES[engine](small(case, *more, *words))


def same(one: Outcome, other: Outcome) -> None:
    """Equal to the last bit."""
    assert one.figures == other.figures
    assert one.graph.keys() == other.graph.keys()
    for key, array in one.graph.items():
        np.testing.assert_array_equal(array, other.graph[key])
    assert len(one.vectors) == len(other.vectors)
    for a, b in zip(one.vectors, other.vectors, strict=True):
        assert torch.equal(a, b)
