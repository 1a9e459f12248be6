"""A Ray cluster of two nodes (two raylets on this machine), one of which is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contract_support import Outcome, read_graph, same, simulate, small

from coterie.running import simulated
from coterie.running.progress import RoundProgress
from coterie.simulation.director import Simulation

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture
def nodes() -> Iterator[object]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def alive() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def on(nodes: object) -> tuple[str, ...]:
    return "engine.name=ray", f"engine.address={nodes.address}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", ["gossip", "fedavg"])
def test_equals_the_simulation(nodes: object, case: str) -> None:
    same(simulate(small(case)), simulate(small(case, *on(nodes))))


@pytest.mark.parametrize(
    "words",
    [
        ("data.train=200", "model.hidden=[200, 200]", "train.batch=100", "train.epochs=3", "peers=100"),
        ("data.train=200", "model.zoo=lenet", "train.batch=50", "peers=10"),
    ],
    ids=["w1", "cnn"],
)
def test_larger_workloads_equal_the_simulation(nodes: object, words: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file, shape = tmp_path / "made-up.npz", (3, 32, 32) if "model.zoo=lenet" in words else (784,)
    count = 240 * int(words[-1].removeprefix("peers="))
    np.savez(file, x=rng.integers(0, 256, (count, *shape), dtype=np.uint8), y=np.arange(count) % 10)
    common = (f"data.name={file}", "data.partition=iid", "data.validation=20", "data.test=20", "rounds=3", *words)
    same(simulate(small("gossip", *common)), simulate(small("gossip", *common, *on(nodes))))


def test_goes_on_when_a_node_is_lost(nodes: object, tmp_path: Path) -> None:
    held: list[Simulation] = []

    def lose_one(progress: RoundProgress) -> None:
        if progress.round == 3 and len(held) == 1:
            assert alive() == 2
            nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)  # type: ignore[attr-defined]
            end = time.monotonic() + 90
            while alive() > 1 and time.monotonic() < end:  # these rounds are so short that they would be over before
                time.sleep(0.2)
            time.sleep(3)  # its processes notice it, too

    e = small("gossip", *on(nodes), "rounds=6", "engine.checkpoint=2")
    summary = simulated.run(e, tmp_path / "run", on_round=lose_one, on_start=held.append)
    assert len(held) > 1
    vectors = [peer.model.vector for peer in held[-1].stage.peers.values()]
    undisturbed = simulate(small("gossip", "rounds=6", "engine.checkpoint=2"))
    same(undisturbed, Outcome(summary, read_graph(tmp_path / "run"), vectors))
